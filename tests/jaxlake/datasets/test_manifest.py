"""What a manifest sums up over its shards, and which ones are refused, on given numbers."""

import json
import re
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxlake.datasets.manifest import Manifest, Request, Shard, read_manifest, write_manifest
from jaxlake.datasets.source_files import DatasetError
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


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("request.count", "24", "request.count: got '24', a whole number from 1 is needed"),
        ("request.count", 8.5, "request.count: got 8.5, a whole number from 1"),
        ("request.count", -3, "request.count: got -3, a whole number from 1"),
        ("request.shard_size", 0, "request.shard_size: got 0, a whole number from 1"),
        ("request.parts", 0, "request.parts: got 0, a whole number from 1"),
        ("request.part", 5, "request.part: got 5, 0 to 0 are allowed"),
        ("request.key_impl", 1, "request.key_impl: got 1, a text"),
        ("request.key_data", ["a"], "request.key_data: "),
        ("request.quotas", [], "request.quotas: "),
        ("request.quotas", [[8]], "request.quotas: "),
        ("request.params", [], "request.params: "),
        ("request.params.size", [2, 3], "request.params.size: .*3 numbers are needed"),
        ("request.params.hole_ratio", [0.1, 0.1, None], "request.params.hole_ratio: "),
        ("shards", {}, "shards: a list is needed"),
        ("shards.0.file", 7, r"shards\[0\].file: got 7, a text is needed"),
        ("shards.0.rows", "4", r"shards\[0\].rows: got '4', a whole number from 0"),
        ("shards.0.made", [[4]], r"shards\[0\].made: .*whole numbers \(3, 2\)"),
        ("shards.0.asked", [[1, 2], [1, 2], [1, -2]], r"shards\[0\].asked: "),
        ("shards.0.counters", {}, r"shards\[0\].counters: .* needed for each of candidates"),
    ],
)
def test_a_value_that_no_set_has_is_named(tmp_path: Path, place: str, value: Any, said: str):
    parameters = {name: [0.5, 0.0, 1.0] for name in ("data_ratio", "hole_ratio", "wait_ratio")}
    params = PARAMS | parameters | {"num_agents": [2, 2, 2]}
    shard = ([[2, 1], [0, 1], [3, 1]], [[2, 1], [0, 0], [3, 1]])
    given = manifest(shard)
    given = replace(given, request=replace(given.request, params=params))
    write_manifest(tmp_path, given)
    assert read_manifest(tmp_path) == given
    path = tmp_path / "manifest.json"
    whole = json.loads(path.read_text())
    *outer, last = (int(name) if name.isdigit() else name for name in place.split("."))
    reduce(getitem, outer, whole)[last] = value
    path.write_text(json.dumps(whole))
    with pytest.raises(DatasetError, match=f"^{re.escape(str(path))}: {said}"):
        read_manifest(tmp_path)
