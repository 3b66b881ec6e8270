"""Boards made to quotas: when a kind is given up, and what counts as drawn in vain.

On 2x2 boards without holes there are 24 boards of two agents; all of them can be solved and none
needs a wait. So every candidate is a board that is taken, a surplus one, or a duplicate.
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


def filled(key, no_wait, wait, *known, oversample=False):
    """Fill quotas of 2x2 boards; return the results and the numbers of candidates."""
    params = lake_params([2, 4], [0.0, 0.3])
    quotas = np.array([[no_wait, wait], [0, 0]])
    seen = DigestSet(*known)
    before = len(seen)
    found = fill_quotas(jax.random.key(key), params, quotas, seen, OPTIONS, oversample=oversample)
    assert len(seen) == before + len(found.boards) == before + found.counts.sum()
    counts = {name: values[0] for name, values in found.counters.items()}
    assert counts["candidates"] == counts["solvable"]
    assert counts["unsolvable"] == counts["unknown"] == 0
    return found.boards.instances, found.counts[0].tolist(), counts


def test_draw_continues_while_half_of_the_boards_are_new():
    twenty, made, counts = filled(1, 20, 0)
    assert made == [20, 0]
    assert counts["candidates"] - counts["duplicates"] == 20
    _, made, counts = filled(2, BOARDS, 0, twenty)
    assert made == [BOARDS - 20, 0]
    assert counts["candidates"] - counts["duplicates"] == BOARDS - 20
    assert BUDGET <= counts["candidates"] < 2 * BUDGET


def test_draw_gives_up_exhausted_cells_after_a_few_calls(monkeypatch):
    known, made, _ = filled(6, BOARDS, 0)
    assert made == [BOARDS, 0]
    calls = []
    draw = DrawOptions.draw
    monkeypatch.setattr(DrawOptions, "draw", lambda *asked: calls.append(0) or draw(*asked))
    _, made, counts = filled(7, 1, 0, known)
    assert made == [0, 0]
    assert BUDGET <= counts["candidates"] == counts["duplicates"] < 2 * BUDGET
    assert len(calls) < 30


def test_surplus_boards_are_not_duplicates():
    """The first call draws a known board; the second one at least eight, of which one is taken."""
    first, made, counts = filled(3, 1, 0)
    assert (made, counts["candidates"], counts["duplicates"]) == ([1, 0], 1, 0)
    _, made, counts = filled(3, 1, 0, first, oversample=True)
    assert made == [1, 0]
    assert counts["candidates"] - counts["duplicates"] in (7, 8)  # is the known one among the eight
