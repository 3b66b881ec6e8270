"""Quotas of boards: when drawing stops for a cell, and which candidates are duplicates.

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
    twenty_boards, accepted, counts = fill_two_by_two(1, 20, 0)
    assert accepted == [20, 0]
    assert counts["candidates"] - counts["duplicates"] == 20
    _, accepted, counts = fill_two_by_two(2, BOARDS, 0, twenty_boards)
    assert accepted == [BOARDS - 20, 0]
    assert counts["candidates"] - counts["duplicates"] == BOARDS - 20
    assert BUDGET <= counts["candidates"] < 2 * BUDGET


def test_draw_stops_at_exhausted_cells_after_a_few_calls(monkeypatch):
    all_boards, accepted, _ = fill_two_by_two(6, BOARDS, 0)
    assert accepted == [BOARDS, 0]
    calls = []
    draw = DrawOptions.draw
    monkeypatch.setattr(DrawOptions, "draw", lambda *arguments: calls.append(0) or draw(*arguments))
    _, accepted, counts = fill_two_by_two(7, 1, 0, all_boards)
    assert accepted == [0, 0]
    assert BUDGET <= counts["candidates"] == counts["duplicates"] < 2 * BUDGET
    assert len(calls) < 30


def test_surplus_boards_are_not_duplicates():
    """The first call draws a seen board; the second draws at least eight and accepts one."""
    first, accepted, counts = fill_two_by_two(3, 1, 0)
    assert (accepted, counts["candidates"], counts["duplicates"]) == ([1, 0], 1, 0)
    _, accepted, counts = fill_two_by_two(3, 1, 0, first, oversample=True)
    assert accepted == [1, 0]
    # Depends on whether the eight contain the seen board.
    assert counts["candidates"] - counts["duplicates"] in (7, 8)
