"""Outcomes of plans against a walk in plain Python."""

import random
from itertools import product

import jax
import numpy as np
import pytest

import jaxlake
from benchmarks import oracles
from benchmarks.oracles.boards import ParsedBoard
from jaxlake import Failure, Solution, Status
from jaxlake.board.dynamics import as_actions
from jaxlake.board.instance import pad_instance
from jaxlake.environment import split_joint_action
from tests.jaxlake.solver.boards import make_instances

MAX_AGENTS, UNKNOWN_ACTIONS = 4, (-3, 5, 99)
"""Slots of the boards below, and invalid action numbers."""


def _draw_board_and_plan(
    rng: random.Random, size: int, num_agents: int
) -> tuple[ParsedBoard, list[list[int]]]:
    """Return a board whose goals are the ends of a random valid walk, and that walk."""
    while True:
        free_cells = [(r, c) for r in range(size) for c in range(size) if rng.random() < 0.8]
        if len(free_cells) < 2 * num_agents:
            continue
        cells = starts = rng.sample(free_cells, num_agents)
        plan = []
        for _ in range(rng.choice([1, 4, 7, 8, 9, 12, 16, 17, 20])):
            actions = [rng.randrange(5) for _ in range(num_agents)]
            moves = [oracles.MOVES[action] for action in actions]
            next_cells = [(r + dr, c + dc) for (r, c), (dr, dc) in zip(cells, moves, strict=True)]
            has_swap = any(
                next_cells[i] == cells[j] and next_cells[j] == cells[i]
                for i in range(num_agents)
                for j in range(i)
            )
            if (
                not set(next_cells) <= set(free_cells)
                or len(set(next_cells)) < num_agents
                or has_swap
            ):
                actions, next_cells = [0] * num_agents, cells
            plan.append(actions)
            cells = next_cells
        if all(start != goal for start, goal in zip(starts, cells, strict=True)):
            return ParsedBoard(size, frozenset(free_cells), tuple(starts), tuple(cells)), plan


def _corrupt_plan(rng: random.Random, plan: list[list[int]]) -> list[list[int]]:
    """Return the plan unchanged, cut, or with random and unknown actions."""
    plan = [list(actions) for actions in plan]
    for _ in range(rng.choice([0, 0, 1, 2, 4])):
        actions = rng.choice(plan)
        is_known = rng.random() < 0.8
        action = rng.randrange(5) if is_known else rng.choice(UNKNOWN_ACTIONS)
        actions[rng.randrange(len(actions))] = action
    return plan[: rng.choice([len(plan)] * 3 + [rng.randrange(len(plan) + 1)])]


def _find_agents_at_goal(board: ParsedBoard, plan: list[list[int]], num_steps: int) -> list[bool]:
    at_goal = []
    for i, (r, c) in enumerate(board.starts):
        for actions in plan[:num_steps]:
            dr, dc = oracles.MOVES[actions[i]]
            r, c = r + dr, c + dc
        at_goal.append((r, c) == board.goals[i])
    return at_goal + [False] * (MAX_AGENTS - len(at_goal))


def _make_optima(status: np.ndarray, sum_of_costs: np.ndarray, makespan: np.ndarray) -> Solution:
    """Return a solution with these optima and empty plans."""
    shape = np.shape(status)
    return Solution(
        status=np.asarray(status, np.int8),
        sum_of_costs=np.asarray(sum_of_costs, np.int16),
        makespan=np.asarray(makespan, np.int16),
        needs_wait=np.zeros(shape, bool),
        plan=np.zeros((*shape, 0, MAX_AGENTS), np.int8),
        makespan_plan=np.zeros((*shape, 0, MAX_AGENTS), np.int8),
        expansions=np.zeros(shape, np.int32),
    )


_verify = jax.jit(jaxlake.verify)
_verify_all = jax.jit(jax.vmap(jaxlake.verify))


@pytest.fixture(scope="module")
def corrupted_plans():
    """Return the oracle's verdicts, the agents at their goals, and the arguments of `verify`.

    The boards have 2 to 4 agents, and about half of the plans are valid. The optima equal the
    plans' costs, are one less, or are unknown.
    """
    rng = random.Random(17)
    grids, plans = [], []
    for _ in range(1500):
        num_agents = rng.randint(2, MAX_AGENTS)
        grid, plan = _draw_board_and_plan(rng, rng.randint(num_agents + 1, 7), num_agents)
        grids.append(grid)
        plans.append(_corrupt_plan(rng, plan))
    padded_plans = np.full((len(plans), 21, MAX_AGENTS), 4, np.int8)
    for row, plan in zip(padded_plans, plans, strict=True):
        if plan:
            row[: len(plan), : len(plan[0])] = plan
    lengths = np.array([len(plan) for plan in plans], np.int32)
    with pytest.MonkeyPatch.context() as patch:
        for action in UNKNOWN_ACTIONS:
            patch.setitem(oracles.MOVES, action, (100, 100))
        verdicts = [oracles.check_plan(grid, plan) for grid, plan in zip(grids, plans, strict=True)]
        at_goal = [
            _find_agents_at_goal(grid, plan, len(plan) if verdict.time is None else verdict.time)
            for grid, plan, verdict in zip(grids, plans, verdicts, strict=True)
        ]
    np_rng = np.random.default_rng(17)
    costs = np.array([[v.sum_of_costs or 9, v.makespan or 9] for v in verdicts])
    costs -= np_rng.integers(0, 2, costs.shape)
    optima = _make_optima(np_rng.choice([Status.OPTIMAL, Status.UNKNOWN], len(plans)), *costs.T)
    parsed = np.ones(len(plans), bool)
    boards = make_instances(grids, 7, MAX_AGENTS)
    return verdicts, at_goal, (boards, padded_plans, lengths, parsed, optima)


def test_verify_matches_python_reference(corrupted_plans):
    verdicts, at_goal, arguments = corrupted_plans
    outcomes = jax.tree.map(np.asarray, _verify_all(*arguments))
    batch, *_, optima = arguments
    flags, seen_kinds = set(), set()
    for i, verdict in enumerate(verdicts):
        failure = Failure(outcomes.failure[i])
        assert failure.label == (verdict.failure or "none"), i
        assert outcomes.parsed[i]
        assert outcomes.valid[i] == (verdict.failure is None)
        expected = [verdict.agent, verdict.time, verdict.sum_of_costs, verdict.makespan]
        actual = [
            getattr(outcomes, name)[i] for name in ("agent", "time", "sum_of_costs", "makespan")
        ]
        assert actual == [-1 if value is None else value for value in expected], i
        is_comparable = verdict.failure is None and optima.status[i] == Status.OPTIMAL
        equal_costs = (optima.sum_of_costs[i] == actual[2], optima.makespan[i] == actual[3])
        optimal_flags = (outcomes.optimal_sum_of_costs[i], outcomes.optimal_makespan[i])
        assert optimal_flags == tuple(is_comparable and equal for equal in equal_costs), i
        assert outcomes.at_goal[i].tolist() == at_goal[i], i
        flags.add((is_comparable, *map(bool, optimal_flags)))
        seen_kinds.add((failure, int(batch.agent_mask[i].sum())))
    failures = [kind for kind in Failure if kind != Failure.PARSE_ERROR]
    assert seen_kinds == {(kind, num_agents) for kind in failures for num_agents in (2, 3, 4)}
    assert flags == {(False, False, False), *product([True], [True, False], [True, False])}


def test_unparsed_text_is_a_parse_error(corrupted_plans):
    _, _, (batch, plans, lengths, parsed, optima) = corrupted_plans
    outcomes = jax.tree.map(np.asarray, _verify_all(batch, plans, lengths, ~parsed, optima))
    assert (outcomes.failure == Failure.PARSE_ERROR).all()
    for name in ("agent", "time", "sum_of_costs", "makespan"):
        assert (getattr(outcomes, name) == -1).all()
    for name in ("parsed", "valid", "optimal_sum_of_costs", "optimal_makespan", "at_goal"):
        assert not getattr(outcomes, name).any()


# The look-up of holes differs between rows of up to 16, up to 32 and more cells.
@pytest.mark.parametrize("size", [16, 17, 32, 33])
def test_verify_detects_every_hole(size):
    rng = random.Random(size)
    num_boards, num_steps = 30, 6
    grids = [oracles.random_grid(rng, min(size, 32), 0.3, MAX_AGENTS) for _ in range(num_boards)]
    plans = [
        [[rng.randrange(5) for _ in range(MAX_AGENTS)] for _ in range(num_steps)] for _ in grids
    ]
    lengths, parsed = np.full(num_boards, num_steps, np.int32), np.ones(num_boards, bool)
    optima = _make_optima(*np.zeros((3, num_boards), int))
    padded_boards = [pad_instance(jaxlake.parse_grid(grid), size, MAX_AGENTS) for grid in grids]
    boards, actions = jaxlake.stack_instances(padded_boards), np.array(plans, np.int8)
    outcomes = _verify_all(boards, actions, lengths, parsed, optima)
    verdicts = [oracles.check_plan(grid, plan) for grid, plan in zip(grids, plans, strict=True)]
    failures = [Failure(kind).label for kind in np.asarray(outcomes.failure)]
    assert failures == [verdict.failure or "none" for verdict in verdicts]
    failure_places = list(zip(outcomes.agent.tolist(), outcomes.time.tolist(), strict=True))
    assert failure_places == [(verdict.agent, verdict.time) for verdict in verdicts]
    assert failures.count("hole") > num_boards // 2


def test_verify_needs_only_board_and_plan():
    board = jaxlake.parse_grid(["S F G", "s H F", "g F F"])
    plan = np.array([[4, 2], [4, 0]])
    outcome = jaxlake.verify(board, plan)
    assert (outcome.valid, outcome.sum_of_costs, outcome.makespan) == (True, 3, 2)
    assert not outcome.optimal_sum_of_costs
    assert not outcome.optimal_makespan
    assert jaxlake.verify(board, plan, 1).failure == Failure.GOAL_NOT_REACHED
    no_plan = np.zeros((0, 2), np.int8)
    solution = Solution(
        *np.array([Status.OPTIMAL, 3, 2], np.int16), np.bool_(False), no_plan, no_plan, np.int32(0)
    )
    assert jaxlake.verify(board, plan, solution=solution).optimal_sum_of_costs


INVALID_PLANS = {
    "ragged": ([[4, 4], [1]], ValueError, r"plan must have shape \(T, K\), got rows of"),
    "one axis": (np.zeros(2, np.int8), ValueError, r"plan must have shape \(T, 2\), got "),
    "three slots": (
        np.zeros((2, 3), np.int8),
        ValueError,
        r"plan must have shape .* 2 slots, 0 \(WAIT\)",
    ),
    "long": (
        np.zeros((16_384, 2), np.int8),
        ValueError,
        "at most 32767, got 16384 steps of 2 agents",
    ),
    "float32": (
        np.ones((2, 2), np.float32),
        TypeError,
        r"plan must hold integers \(.*\), got float32",
    ),
    "bool": (np.ones((2, 2), bool), TypeError, r"plan must hold integers \(.*\), got bool"),
    "words": ([["UP", "UP"]], TypeError, r"plan must hold integers \(0 WAIT, 1 UP"),
    "9": (
        np.array([[4, 2], [9, 0]]),
        ValueError,
        "plan must hold actions .*, got action 9 in step 1 of agent 0",
    ),
    "256": (np.array([[4, 2], [4, 256]]), ValueError, "got action 256 in step 1 of agent 1"),
    "no plan": (np.full((3, 2), -1), ValueError, "-1 .* not OPTIMAL have no plan"),
}


@pytest.mark.parametrize("name", INVALID_PLANS)
def test_verify_rejects_invalid_plans_outside_jit(name):
    plan, error_type, message = INVALID_PLANS[name]
    board = jaxlake.parse_grid(["S F G", "s H F", "g F F"])
    with pytest.raises(error_type, match=message):
        jaxlake.verify(board, plan)


@pytest.mark.parametrize("wide_action", [260, 2**32 + 4, -(2**32) + 1, 2**40, 2**63 - 1])
def test_out_of_range_actions_leave_the_board(wide_action):
    # The first agent would reach its goal by RIGHT and RIGHT.
    board = jaxlake.parse_grid(["S F G", "s H F", "g F F"])
    plan = np.array([[wide_action, 2], [4, 0]])
    outcome = jaxlake.verify(board, plan, parsed=np.asarray(True))
    assert (outcome.failure, outcome.agent, outcome.time) == (Failure.OFF_BOARD, 0, 0)
    plan[0, 0] = 4
    assert jaxlake.verify(board, plan, parsed=np.asarray(True)).valid
    assert split_joint_action(np.int64(wide_action), 2).tolist() == [5, 5]
    assert int(as_actions(np.uint64(2**64 - 1))) == 2**31 - 1


def test_verify_ignores_actions_of_padding():
    board = jaxlake.parse_grid(["S G", "F F"])  # its second slot is empty
    assert jaxlake.verify(board, np.array([[4, 9], [-1, -1]]), 1).valid
    assert jaxlake.verify(board, [[4, 0]]).valid
    assert jaxlake.verify(board, np.full((2, 2), 9), parsed=False).failure == Failure.PARSE_ERROR
