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

NUM_BOARDS = 24
MAX_CANDIDATES = small_set.OPTIONS["max_candidates"]
_DRAW_OPTIONS = {name: value for name, value in small_set.OPTIONS.items() if name != "part_size"}
OPTIONS = DrawOptions(small_set.OPTIONS["part_size"], **_DRAW_OPTIONS)


def fill_small_quotas(seed, no_wait, wait, *seen_boards, oversample=False):
    """Fill quotas of 2x2 boards; return the results and the numbers of candidates."""
    params = lake_params([2, 4], [0.0, 0.3])
    quotas = np.array([[no_wait, wait], [0, 0]])
    digests = DigestSet(*seen_boards)
    num_seen = len(digests)
    key = jax.random.key(seed)
    result = fill_quotas(key, params, quotas, digests, OPTIONS, oversample=oversample)
    assert len(digests) == num_seen + len(result.boards) == num_seen + result.counts.sum()
    counts = {name: values[0] for name, values in result.counters.items()}
    assert counts["candidates"] == counts["solvable"]
    assert counts["unsolvable"] == counts["unknown"] == 0
    return result.boards.instances, result.counts[0].tolist(), counts


def test_draw_continues_while_half_of_the_boards_are_new():
    twenty_boards, num_accepted, counts = fill_small_quotas(1, 20, 0)
    assert num_accepted == [20, 0]
    assert counts["candidates"] - counts["duplicates"] == 20
    _, num_accepted, counts = fill_small_quotas(2, NUM_BOARDS, 0, twenty_boards)
    assert num_accepted == [NUM_BOARDS - 20, 0]
    assert counts["candidates"] - counts["duplicates"] == NUM_BOARDS - 20
    assert MAX_CANDIDATES <= counts["candidates"] < 2 * MAX_CANDIDATES


def test_draw_stops_at_exhausted_cells_after_a_few_calls(monkeypatch):
    all_boards, num_accepted, _ = fill_small_quotas(6, NUM_BOARDS, 0)
    assert num_accepted == [NUM_BOARDS, 0]
    calls = []
    draw = DrawOptions.draw
    monkeypatch.setattr(DrawOptions, "draw", lambda *arguments: calls.append(0) or draw(*arguments))
    _, num_accepted, counts = fill_small_quotas(7, 1, 0, all_boards)
    assert num_accepted == [0, 0]
    assert MAX_CANDIDATES <= counts["candidates"] == counts["duplicates"] < 2 * MAX_CANDIDATES
    assert len(calls) < 30


def test_surplus_boards_are_not_duplicates():
    """The first call draws a seen board; the second draws at least eight and accepts one."""
    first_board, num_accepted, counts = fill_small_quotas(3, 1, 0)
    assert (num_accepted, counts["candidates"], counts["duplicates"]) == ([1, 0], 1, 0)
    _, num_accepted, counts = fill_small_quotas(3, 1, 0, first_board, oversample=True)
    assert num_accepted == [1, 0]
    # Depends on whether the eight contain the seen board.
    assert counts["candidates"] - counts["duplicates"] in (7, 8)
