"""Outcomes of plans against a plain-Python walk."""

import random

import jax
import numpy as np
import pytest

import jaxlake
from jaxlake import Failure, Status
from tests import oracles

STEPS = 40


@pytest.fixture(scope="module")
def boards():
    rng = random.Random(11)
    grids = [oracles.random_grid(rng, rng.randint(2, 7), rng.uniform(0, 0.4)) for _ in range(300)]
    instances = jaxlake.stack_instances([jaxlake.parse_grid(grid) for grid in grids])
    solutions = jax.jit(jax.vmap(jaxlake.solve))(instances)
    return grids, instances, jax.tree.map(np.asarray, solutions)


@pytest.fixture(scope="module")
def verify_all():
    return jax.jit(jax.vmap(jaxlake.verify))


def _mutated(rng: random.Random, plan: list[list[int]]) -> list[list[int]]:
    """An optimal plan with a few of its steps changed, dropped, delayed or added."""
    plan = [list(actions) for actions in plan]
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        kind = rng.randrange(5)
        at = rng.randrange(len(plan) + 1)
        if kind == 0 and plan:
            plan[min(at, len(plan) - 1)][rng.randrange(2)] = rng.randrange(5)
        elif kind == 1 and plan:
            plan.pop(min(at, len(plan) - 1))
        elif kind == 2:
            plan.insert(at, [0, 0])
        elif kind == 3 and plan:
            late = rng.randrange(2)
            column = [0, *[actions[late] for actions in plan]]
            plan.append([0, 0])
            for actions, action in zip(plan, column, strict=True):
                actions[late] = action
        else:
            plan.extend([rng.randrange(5), rng.randrange(5)] for _ in range(rng.randint(1, 3)))
    return plan[:STEPS]


def test_failure_agent_time_and_costs_agree_with_a_plain_walk(boards, verify_all):
    grids, instances, solutions = boards
    rng = random.Random(5)
    seen, optimal = set(), set()
    for _ in range(8):
        plans, padded = [], np.full((len(grids), STEPS, 2), 4, np.int8)
        for i in range(len(grids)):
            plan = []
            if solutions.status[i] == Status.OPTIMAL:
                plan = solutions.plan[i][: solutions.plan[i].any(axis=1).sum()].tolist()
            plans.append(_mutated(rng, plan))
            if plans[i]:
                padded[i, : len(plans[i])] = plans[i]
        lengths = np.array([len(plan) for plan in plans], np.int32)
        outcomes = jax.tree.map(
            np.asarray,
            verify_all(instances, padded, lengths, np.ones(len(grids), bool), solutions),
        )
        for i, (grid, plan) in enumerate(zip(grids, plans, strict=True)):
            verdict = oracles.check(grid, plan)
            label = Failure(outcomes.failure[i]).label
            assert label == (verdict.failure or "none"), (grid, plan)
            assert outcomes.valid[i] == (verdict.failure is None)
            expected = [verdict.agent, verdict.time, verdict.sum_of_costs, verdict.makespan]
            got = [
                getattr(outcomes, name)[i] for name in ("agent", "time", "sum_of_costs", "makespan")
            ]
            assert got == [-1 if value is None else value for value in expected], (grid, plan)
            if verdict.failure is None:
                least = (solutions.sum_of_costs[i], solutions.makespan[i])
                by = (verdict.sum_of_costs == least[0], verdict.makespan == least[1])
                flags = (outcomes.optimal_sum_of_costs[i], outcomes.optimal_makespan[i])
                assert flags == by, (grid, plan)
                optimal.add(by)
            else:
                assert not outcomes.optimal_sum_of_costs[i]
                assert not outcomes.optimal_makespan[i]
            seen.add(label)
    assert seen == {kind.label for kind in Failure if kind != Failure.PARSE_ERROR}
    assert optimal == {(True, True), (True, False), (False, True), (False, False)}


def test_a_text_that_was_not_parsed_is_a_parse_error_whatever_the_plan(boards, verify_all):
    grids, instances, solutions = boards
    unparsed = np.zeros(len(grids), bool)
    lengths = np.full(len(grids), 64, np.int32)
    outcomes = verify_all(instances, solutions.plan, lengths, unparsed, solutions)
    assert (np.asarray(outcomes.failure) == Failure.PARSE_ERROR).all()
    for name in ("agent", "time", "sum_of_costs", "makespan"):
        assert (np.asarray(getattr(outcomes, name)) == -1).all()
    for name in ("parsed", "valid", "optimal_sum_of_costs", "optimal_makespan"):
        assert not np.asarray(getattr(outcomes, name)).any()


def _outcome(grid, plan, *, max_agents=2):
    instance = jaxlake.parse_grid(grid, max_size=6, max_agents=max_agents)
    solution = jax.jit(jaxlake.solve)(instance)
    padded = np.full((8, max_agents), 99, np.int8)
    for t, actions in enumerate(plan):
        padded[t, : len(actions)] = actions
    verify = jax.jit(jaxlake.verify)
    return verify(instance, padded, np.int32(len(plan)), np.bool_(True), solution)


def test_waiting_at_the_goal_counts_only_if_the_agent_leaves_again():
    grid = ["S G F", "s g F", "F F F"]
    stays = _outcome(grid, [[4, 4], [0, 0], [0, 0]])
    assert (int(stays.sum_of_costs), int(stays.makespan)) == (2, 1)
    leaves = _outcome(grid, [[4, 4], [0, 0], [4, 0], [3, 0], [0, 0]])
    assert (int(leaves.sum_of_costs), int(leaves.makespan)) == (5, 4)
    assert bool(leaves.valid)
    assert not bool(leaves.optimal_sum_of_costs)


def test_an_agent_at_its_goal_still_blocks_it():
    outcome = _outcome(["s S G g"] + ["F F F F"] * 3, [[4, 4], [0, 4], [0, 4]])
    assert Failure(int(outcome.failure)) is Failure.VERTEX_CONFLICT
    assert (int(outcome.agent), int(outcome.time)) == (0, 1)


def test_within_one_step_the_order_of_kinds_decides_and_then_the_lowest_agent():
    grid = ["S F F", "H s F", "G g F"]
    both = _outcome(grid, [[1, 3]])
    assert (Failure(int(both.failure)), int(both.agent)) == (Failure.OFF_BOARD, 0)
    hole = _outcome(grid, [[2, 3]])
    assert (Failure(int(hole.failure)), int(hole.agent)) == (Failure.HOLE, 0)


def test_an_empty_plan_fails_at_time_zero_with_the_lowest_agent():
    outcome = _outcome(["S G", "s g"], [])
    assert Failure(int(outcome.failure)) is Failure.GOAL_NOT_REACHED
    assert (int(outcome.agent), int(outcome.time)) == (0, 0)


def test_three_agents_are_verified_but_never_called_optimal_without_an_optimum():
    grid = ["S G F", "s g F", "A a F"]
    outcome = _outcome(grid, [[4, 4, 4]], max_agents=3)
    assert bool(outcome.valid)
    assert (int(outcome.sum_of_costs), int(outcome.makespan)) == (3, 1)
    assert not bool(outcome.optimal_sum_of_costs)
    assert not bool(outcome.optimal_makespan)


def test_labels_are_the_published_kinds_in_order():
    assert [kind.label for kind in Failure] == [
        "none",
        "parse_error",
        "off_board",
        "hole",
        "vertex_conflict",
        "swapping_conflict",
        "goal_not_reached",
    ]
