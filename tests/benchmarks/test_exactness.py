"""The comparison with oracles alternates slot counts and detects wrong optima."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import jax
import pytest

from benchmarks import exactness, oracles
from jaxlake.solver import solve_batch

KINDS = [exactness.BoardKind(2, size, ratio, True) for size in (3, 4) for ratio in (0.0, 0.2)]


@pytest.fixture(autouse=True)
def _use_small_boards(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exactness, "AGENTS", (2, 3))
    monkeypatch.setattr(exactness, "SIZES", (2, 3, 4))
    monkeypatch.setattr(exactness, "CHUNK_SIZE", 8)
    monkeypatch.setattr(exactness, "OWN_SLOTS_BATCH", 3)
    # `solve_batch` gives the same answers and compiles only the searches that the boards need.
    monkeypatch.setattr(exactness, "_compile_solver", lambda: solve_batch)


@pytest.fixture(scope="module")
def pool():
    with oracles.start_judging_pool(1) as pool:
        yield pool


@pytest.mark.slow
def test_strata_alternate_slot_counts(pool: ProcessPoolExecutor):
    assert [exactness.count_slots(index, KINDS) for index in range(16)] == 2 * ([3] * 4 + [2] * 4)
    result = exactness.compare_chunk(0, 0, 16, KINDS, pool)
    assert result["disputes"] == []
    for row in result["counts"].values():
        assert (row["boards"], row["in_own_slots"]) == (4, 2)
        assert row["optimal"] + row["unsolvable"] == 4


@pytest.mark.parametrize("num_slots", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_wrong_optimum_is_a_mismatch(
    num_slots: int, pool: ProcessPoolExecutor, monkeypatch: pytest.MonkeyPatch
):
    def solve_with_wrong_cost(boards: exactness.jaxlake.Instance) -> exactness.jaxlake.Solution:
        solution = jax.device_get(solve_batch(boards))
        is_wrong = boards.agent_mask.shape[1] == num_slots
        return replace(solution, sum_of_costs=solution.sum_of_costs + int(is_wrong))

    monkeypatch.setattr(exactness, "_compile_solver", lambda: solve_with_wrong_cost)
    result = exactness.compare_chunk(0, 0, 16, KINDS, pool)
    mismatches = [row["mismatches"] for row in result["counts"].values()]
    assert sum(mismatches) == len(result["disputes"]) > 0
    disputed_rounds = {dispute["board"] // len(KINDS) % 2 for dispute in result["disputes"]}
    assert disputed_rounds == {1 if num_slots == 2 else 0}
