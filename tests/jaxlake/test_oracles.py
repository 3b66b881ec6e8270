"""Five oracles without shared search code agree with one another."""

import math
import random
from dataclasses import replace

import pytest

from benchmarks import oracles


def _draw_small_grids(seed: int, count: int, max_states: int) -> list[list[str]]:
    """Random boards of 2 to 5 agents whose joint cells can be searched in plain Python."""
    rng = random.Random(seed)
    grids = []
    while len(grids) < count:
        num_agents, size = rng.randint(2, 5), rng.randint(2, 6)
        if 2 * num_agents > size * size:
            continue
        grid = oracles.random_grid(rng, size, rng.uniform(0, 0.5), num_agents, rng.random() < 0.7)
        if math.perm(len(oracles.parse_board(grid).free), num_agents) <= max_states:
            grids.append(grid)
    return grids


def test_permutations_match_joint_search():
    blocked_agent_counts = set()
    for grid in _draw_small_grids(0, 300, max_states=1_500):
        is_solvable = oracles.least_makespan(grid) is not None
        assert oracles.has_plan(grid) == is_solvable, grid
        if not is_solvable and oracles.sum_of_distances(grid) is not None:
            blocked_agent_counts.add(len(oracles.parse_board(grid).starts))
    assert blocked_agent_counts >= {2, 3}


def test_sat_optima_match_joint_search():
    seen_kinds = set()
    for grid in _draw_small_grids(1, 120, max_states=4_000):
        makespan = oracles.least_makespan(grid)
        if makespan is None:
            continue
        makespan_optimum, cost_optimum = oracles.sat_makespan(grid), oracles.sat_sum_of_costs(grid)
        assert makespan_optimum.value == makespan, grid
        assert oracles.check_plan(grid, makespan_optimum.plan).makespan == makespan, grid
        cost, needs_wait = oracles.least_sum_of_costs(grid)
        assert (cost_optimum.value, cost_optimum.needs_wait) == (cost, needs_wait), grid
        assert oracles.check_plan(grid, cost_optimum.plan).sum_of_costs == cost, grid
        assert (oracles.count_waits_before_arrival(grid, cost_optimum.plan) > 0) == needs_wait, grid
        excess = cost - oracles.sum_of_distances(grid)
        seen_kinds.add((needs_wait, min(excess, 2)))
        # A walk without waits has the parity of the distance, so an odd excess needs one.
        assert needs_wait or excess % 2 == 0
    assert seen_kinds == {(False, 0), (True, 1), (True, 2), (False, 2)}


def test_cbs_matches_sat_on_full_size_boards():
    rng = random.Random(2)
    excesses = []
    for n in range(60):
        grid = oracles.random_grid(rng, 10, 0.35, agents=2 + n % 4, together=True)
        if not oracles.has_plan(grid):
            continue
        cost = oracles.cbs_sum_of_costs(grid, seconds=2.0)
        if cost is not None:
            assert oracles.sat_sum_of_costs(grid).value == cost, grid
            excesses.append(cost - oracles.sum_of_distances(grid))
    assert len(excesses) > 50
    assert max(excesses) > 4


def test_search_at_its_limit_returns_unknown():
    grid = oracles.random_grid(random.Random(17), 4, 0.3, agents=5, together=True)
    assert oracles.has_plan(grid)
    makespan, cost = oracles.sat_makespan(grid).value, oracles.sat_sum_of_costs(grid).value
    assert oracles.sat_makespan(grid, max_steps=makespan).value == makespan
    assert oracles.sat_makespan(grid, max_steps=makespan - 1) is None
    assert oracles.sat_sum_of_costs(grid, max_cost=cost).value == cost
    assert oracles.sat_sum_of_costs(grid, max_cost=cost - 1) is None
    with pytest.raises(oracles.GaveUpError, match="more than 1 conflicts"):
        oracles.sat_sum_of_costs(grid, conflicts=1)


def find_optimal_answer(grid: list[str]) -> oracles.SolverAnswer:
    optima = (oracles.sat_sum_of_costs(grid), oracles.sat_makespan(grid))
    values, plans = [optimum.value for optimum in optima], [optimum.plan for optimum in optima]
    return oracles.SolverAnswer("OPTIMAL", *values, optima[0].needs_wait, *plans)


def test_mistakes_reports_every_wrong_field():
    grid = ["S F F F", "H H H F", "G F F F", "s g A a"]
    truth, answer = oracles.judge(grid), find_optimal_answer(grid)
    assert oracles.find_mistakes(grid, truth, answer) == []
    wait_plan = [[0, 0, 0]] * len(answer.plan)
    for change, expected_mistake in [
        ({"sum_of_costs": answer.sum_of_costs - 1}, "sum_of_costs"),
        ({"makespan": answer.makespan + 1}, "makespan"),
        ({"needs_wait": not answer.needs_wait}, "needs_wait"),
        ({"plan": wait_plan}, "plan: goal_not_reached"),
        ({"makespan_plan": wait_plan}, "makespan_plan: goal_not_reached"),
        ({"plan": [[0, 0, 0], *answer.plan]}, "plan: sum_of_costs"),
        ({"makespan_plan": [[0, 0, 0], *answer.makespan_plan]}, "makespan_plan: makespan"),
        ({"status": "UNSOLVABLE"}, "status: UNSOLVABLE"),
    ]:
        mistakes = oracles.find_mistakes(grid, truth, replace(answer, **change))
        assert mistakes, change
        assert mistakes[0].startswith(expected_mistake)
    assert oracles.find_mistakes(grid, truth, replace(answer, status="UNKNOWN")) == []
    blocked_grid = ["S g s G", "H H H H", "H H H H", "H H H H"]
    mistakes = oracles.find_mistakes(blocked_grid, oracles.judge(blocked_grid), answer)
    assert mistakes == ["status: OPTIMAL, there is no plan"]


def test_judging_in_processes_keeps_order_and_verdicts():
    grids = _draw_small_grids(4, 40, max_states=1_000)
    assert list(oracles.judge_all(grids)) == [oracles.judge(grid) for grid in grids]
