"""Quotas of boards: when generation gives up a kind, and which candidates are duplicates.

24 boards of two agents exist on 2x2 without holes. All are solvable and none needs a wait, so every
candidate is accepted, surplus, or a duplicate.
"""

import jax
import numpy as np

from jaxlake.generator import lake_params
from jaxlake.generator.board_digests import DigestSet
from jaxlake.generator.quotas import DrawOptions, fill_quotas
from tests.jaxlake.datasets import small_set

BOARDS = 24
BUDGET = small_set.OPTIONS["max_candidates"]
_CHANGES = {name: value for name, value in small_set.OPTIONS.items() if name != "part_size"}
OPTIONS = DrawOptions(small_set.OPTIONS["part_size"], **_CHANGES)


def fill_two_by_two(key, no_wait, wait, *seen_boards, oversample=False):
    """Fill quotas of 2x2 boards; return the results and the numbers of candidates."""
    params = lake_params([2, 4], [0.0, 0.3])
    quotas = np.array([[no_wait, wait], [0, 0]])
    seen = DigestSet(*seen_boards)
    seen_before = len(seen)
    result = fill_quotas(jax.random.key(key), params, quotas, seen, OPTIONS, oversample=oversample)
    assert len(seen) == seen_before + len(result.boards) == seen_before + result.counts.sum()
    counts = {name: values[0] for name, values in result.counters.items()}
    assert counts["candidates"] == counts["solvable"]
    assert counts["unsolvable"] == counts["unknown"] == 0
    return result.boards.instances, result.counts[0].tolist(), counts


def test_draw_continues_while_half_of_the_boards_are_new():
    twenty, counts_made, counts = fill_two_by_two(1, 20, 0)
    assert counts_made == [20, 0]
    assert counts["candidates"] - counts["duplicates"] == 20
    _, counts_made, counts = fill_two_by_two(2, BOARDS, 0, twenty)
    assert counts_made == [BOARDS - 20, 0]
    assert counts["candidates"] - counts["duplicates"] == BOARDS - 20
    assert BUDGET <= counts["candidates"] < 2 * BUDGET


def test_draw_gives_up_exhausted_cells_after_a_few_calls(monkeypatch):
    all_boards, counts_made, _ = fill_two_by_two(6, BOARDS, 0)
    assert counts_made == [BOARDS, 0]
    calls = []
    draw = DrawOptions.draw
    monkeypatch.setattr(DrawOptions, "draw", lambda *arguments: calls.append(0) or draw(*arguments))
    _, counts_made, counts = fill_two_by_two(7, 1, 0, all_boards)
    assert counts_made == [0, 0]
    assert BUDGET <= counts["candidates"] == counts["duplicates"] < 2 * BUDGET
    assert len(calls) < 30


def test_surplus_boards_are_not_duplicates():
    """The first call draws a seen board; the second draws at least eight and accepts one."""
    first, counts_made, counts = fill_two_by_two(3, 1, 0)
    assert (counts_made, counts["candidates"], counts["duplicates"]) == ([1, 0], 1, 0)
    _, counts_made, counts = fill_two_by_two(3, 1, 0, first, oversample=True)
    assert counts_made == [1, 0]
    assert counts["candidates"] - counts["duplicates"] in (
        7,
        8,
    )  # depends on whether the eight contain the seen board
