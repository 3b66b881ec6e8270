"""What a manifest sums up over its shards, on numbers that are given here."""

import numpy as np

from jaxlake.datasets.manifest import Manifest, Request, Shard
from jaxlake.generator.quotas import COUNTERS

QUOTAS = [[6, 3], [0, 3], [9, 3]]
PARAMS = {"size": [2, 3, 4]}


def manifest(*shards: tuple[list[list[int]], list[list[int]]], drawn: int = 5) -> Manifest:
    """A set of eight boards a shard, of which these shards were asked, and made, so many boards."""
    request = Request("fry", [0, 1], 24, 8, 4, 2, 16, 2048, PARAMS, QUOTAS)
    counters = {name: [drawn, 0, number] for number, name in enumerate(COUNTERS)}
    written = (
        Shard(f"{n}", int(np.sum(made)), "", "", asked, made, counters)
        for n, (asked, made) in enumerate(shards)
    )
    return Manifest(request, tuple(written), "1.0")


def test_a_kind_is_given_up_where_a_shard_asked_for_it_and_got_none():
    shards = (
        ([[2, 1], [0, 1], [3, 1]], [[2, 1], [0, 0], [1, 1]]),
        ([[2, 0], [0, 0], [3, 2]], [[1, 0], [0, 0], [0, 2]]),
    )
    nothing = [[False, False]] * 3
    assert manifest().given_up.tolist() == nothing
    # Neither a kind that nothing was asked of, nor one that came short, is given up.
    assert manifest(shards[0]).given_up.tolist() == [nothing[0], [False, True], nothing[0]]
    both = [nothing[0], [False, True], [True, False]]
    assert manifest(*shards).given_up.tolist() == manifest(*shards[::-1]).given_up.tolist() == both


def test_sums_over_shards_go_beyond_32_bits():
    shard = ([[2, 1], [0, 1], [3, 1]], [[2, 1], [0, 0], [3, 1]])
    drawn = 2**31 - 1
    whole = manifest(shard, shard, shard, drawn=drawn)
    assert whole.total("candidates").tolist() == [3 * drawn, 0, 0]
    assert whole.total(COUNTERS[2]).tolist() == [3 * drawn, 0, 6]
    assert [cell["candidates"] for cell in whole.cells] == [3 * drawn, 0, 0]
    many = ([[2, 1], [0, 1], [3, 1]], [[drawn, 1], [0, 0], [3, 1]])
    assert manifest(many, many).made.tolist() == [[2 * drawn, 2], [0, 0], [6, 2]]
    assert manifest(many, many).rows == 2 * (drawn + 5)
