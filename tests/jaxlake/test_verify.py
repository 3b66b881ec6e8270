"""Outcomes of plans against a plain-Python walk."""

import random
from functools import partial

import jax
import numpy as np
import pytest

import jaxlake
from jaxlake import Failure, Solution, Status
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
    for name in ("parsed", "valid", "optimal_sum_of_costs", "optimal_makespan", "at_goal"):
        assert not np.asarray(getattr(outcomes, name)).any()


AGENTS, UNKNOWN = 4, (-3, 5, 99)
"""Slots of the boards below, and numbers that name no action."""


def _walked(rng: random.Random, size: int, agents: int) -> tuple[list[str], list[list[int]]]:
    """A board whose goals are where a random walk that keeps the rules leads, and that walk."""
    while True:
        free = [(r, c) for r in range(size) for c in range(size) if rng.random() < 0.8]
        if len(free) < 2 * agents:
            continue
        here = starts = rng.sample(free, agents)
        plan = []
        for _ in range(rng.choice([1, 4, 7, 8, 9, 12, 16, 17, 20])):
            actions = [rng.randrange(5) for _ in range(agents)]
            moves = [oracles.MOVES[action] for action in actions]
            there = [(r + dr, c + dc) for (r, c), (dr, dc) in zip(here, moves, strict=True)]
            swaps = any(
                there[i] == here[j] and there[j] == here[i] for i in range(agents) for j in range(i)
            )
            if not set(there) <= set(free) or len(set(there)) < agents or swaps:
                actions, there = [0] * agents, here
            plan.append(actions)
            here = there
        if not set(here) & set(starts):
            letters = dict(zip(starts, "SsABC", strict=False)) | dict(
                zip(here, "Ggabc", strict=False)
            )
            grid = [
                " ".join(letters.get((r, c), "F" if (r, c) in free else "H") for c in range(size))
                for r in range(size)
            ]
            return grid, plan


def _spoiled(rng: random.Random, plan: list[list[int]]) -> list[list[int]]:
    """The plan as it is, cut, or with some actions changed, a few of them to unknown ones."""
    plan = [list(actions) for actions in plan]
    for _ in range(rng.choice([0, 0, 1, 2, 4])):
        actions = rng.choice(plan)
        known = rng.random() < 0.8
        actions[rng.randrange(len(actions))] = rng.randrange(5) if known else rng.choice(UNKNOWN)
    return plan[: rng.choice([len(plan)] * 3 + [rng.randrange(len(plan) + 1)])]


def _at_goal(grid: list[str], plan: list[list[int]], end: int) -> list[bool]:
    board = oracles.read(grid)
    standing = []
    for i, (r, c) in enumerate(board.starts):
        for actions in plan[:end]:
            dr, dc = oracles.MOVES[actions[i]]
            r, c = r + dr, c + dc
        standing.append((r, c) == board.goals[i])
    return standing + [False] * (AGENTS - len(standing))


def _made_up_optima(rng: np.random.Generator, batch: int) -> Solution:
    """Optima to compare with: some are those of the plans by chance, some are not known."""
    return Solution(
        status=rng.choice([Status.OPTIMAL, Status.UNKNOWN], batch).astype(np.int8),
        sum_of_costs=rng.integers(2, 40, batch).astype(np.int16),
        makespan=rng.integers(1, 21, batch).astype(np.int16),
        needs_wait=np.zeros(batch, bool),
        plan=np.zeros((batch, 0, AGENTS), np.int8),
        makespan_plan=np.zeros((batch, 0, AGENTS), np.int8),
        expansions=np.zeros(batch, np.int32),
    )


@pytest.fixture(scope="module")
def spoiled():
    """Boards of 2 to 4 agents with plans of which about half are valid, and the arguments."""
    rng = random.Random(17)
    grids, plans = [], []
    for _ in range(1500):
        agents = rng.randint(2, AGENTS)
        grid, plan = _walked(rng, rng.randint(agents + 1, 7), agents)
        grids.append(grid)
        plans.append(_spoiled(rng, plan))
    instances = jaxlake.stack_instances(
        [jaxlake.parse_grid(grid, max_size=7, max_agents=AGENTS) for grid in grids]
    )
    padded = np.full((len(plans), 21, AGENTS), 4, np.int8)
    for row, plan in zip(padded, plans, strict=True):
        if plan:
            row[: len(plan), : len(plan[0])] = plan
    lengths = np.array([len(plan) for plan in plans], np.int32)
    parsed = np.ones(len(plans), bool)
    optima = _made_up_optima(np.random.default_rng(17), len(plans))
    return grids, plans, (instances, padded, lengths, parsed, optima)


def test_unknown_actions_more_agents_and_ends_within_a_block_agree_with_a_plain_walk(
    spoiled, verify_all, monkeypatch
):
    for action in UNKNOWN:
        monkeypatch.setitem(oracles.MOVES, action, (100, 100))
    grids, plans, arguments = spoiled
    outcomes = jax.tree.map(np.asarray, verify_all(*arguments))
    optima, seen = arguments[-1], set()
    for i, (grid, plan) in enumerate(zip(grids, plans, strict=True)):
        verdict = oracles.check(grid, plan)
        assert Failure(outcomes.failure[i]).label == (verdict.failure or "none"), (grid, plan)
        wanted = [verdict.agent, verdict.time, verdict.sum_of_costs, verdict.makespan]
        got = [getattr(outcomes, name)[i] for name in ("agent", "time", "sum_of_costs", "makespan")]
        assert got == [-1 if value is None else value for value in wanted], (grid, plan)
        known = verdict.failure is None and optima.status[i] == Status.OPTIMAL
        assert outcomes.optimal_sum_of_costs[i] == (known and got[2] == optima.sum_of_costs[i])
        assert outcomes.optimal_makespan[i] == (known and got[3] == optima.makespan[i])
        end = len(plan) if verdict.time is None else verdict.time
        assert outcomes.at_goal[i].tolist() == _at_goal(grid, plan, end), (grid, plan)
        seen.add((Failure(outcomes.failure[i]), len(plan[0]) if plan else 0))
    kinds = [kind for kind in Failure if kind != Failure.PARSE_ERROR]
    assert seen >= {(kind, agents) for kind in kinds for agents in (2, 3, 4)}


@pytest.mark.parametrize("size", [15, 16, 17, 31, 32, 33, 64, 100])
def test_holes_are_seen_wherever_they_are_on_boards_of_any_size(size, verify_all):
    rng = random.Random(size)
    batch, steps = 200, 6
    grids = [oracles.random_grid(rng, size, 0.3, AGENTS) for _ in range(batch)]
    plans = [[[rng.randrange(5) for _ in range(AGENTS)] for _ in range(steps)] for _ in grids]
    instances = jaxlake.stack_instances(
        [jaxlake.parse_grid(grid, max_size=size, max_agents=AGENTS) for grid in grids]
    )
    outcomes = verify_all(
        instances,
        np.array(plans, np.int8),
        np.full(batch, steps, np.int32),
        np.ones(batch, bool),
        _made_up_optima(np.random.default_rng(size), batch),
    )
    verdicts = [oracles.check(grid, plan) for grid, plan in zip(grids, plans, strict=True)]
    found = [Failure(kind).label for kind in np.asarray(outcomes.failure)]
    assert found == [verdict.failure or "none" for verdict in verdicts]
    named = list(zip(outcomes.agent.tolist(), outcomes.time.tolist(), strict=True))
    assert named == [(verdict.agent, verdict.time) for verdict in verdicts]
    assert found.count("hole") > batch // 2


def test_a_plan_without_room_for_a_step_is_an_empty_plan():
    grid = ["S G", "s g"]
    instance = jaxlake.parse_grid(grid, max_size=2, max_agents=2)
    optimum = jax.tree.map(lambda leaf: leaf[0], _made_up_optima(np.random.default_rng(0), 1))
    outcome = jaxlake.verify(
        instance, np.zeros((0, 2), np.int8), np.int32(0), np.bool_(True), optimum
    )
    assert Failure(int(outcome.failure)) is Failure.GOAL_NOT_REACHED
    assert (int(outcome.agent), int(outcome.time)) == (0, 0)


def test_nested_batches_and_shared_boards_give_what_one_plan_at_a_time_gives(spoiled, verify_all):
    _, _, arguments = spoiled
    few = jax.tree.map(lambda leaf: leaf[:12], arguments)
    flat = jax.tree.map(np.asarray, verify_all(*few))
    nested = jax.jit(jax.vmap(jax.vmap(jaxlake.verify)))(
        *jax.tree.map(lambda leaf: leaf.reshape(3, 4, *leaf.shape[1:]), few)
    )
    instances, plans, lengths, parsed, optima = few
    one = jax.tree.map(lambda leaf: leaf[5], (instances, lengths, parsed, optima))
    shared = jax.jit(jax.vmap(partial(jaxlake.verify, one[0]), in_axes=(0, None, None, None)))(
        plans, *one[1:]
    )
    alone = jax.jit(jaxlake.verify)(one[0], plans[5], *one[1:])
    trees = (flat, nested, shared, alone)
    for a, b, c, d in zip(*map(jax.tree.leaves, trees), strict=True):
        assert (a == np.asarray(b).reshape(a.shape)).all()
        assert (a[5] == np.asarray(c)[5]).all()
        assert (a[5] == np.asarray(d)).all()
        assert a.dtype == b.dtype == c.dtype == d.dtype


def test_plans_whose_costs_do_not_fit_are_refused(spoiled):
    _, _, (instances, _, lengths, parsed, optima) = spoiled
    one = jax.tree.map(lambda leaf: leaf[0], (instances, lengths, parsed, optima))
    with pytest.raises(ValueError, match="plan: got 8192 steps of 4 agents"):
        jaxlake.verify(one[0], np.zeros((8192, AGENTS), np.int8), *one[1:])


def _outcome(grid, plan, *, optimum=None):
    """The outcome of a plan of up to 8 steps; `optimum` is (sum of costs, makespan) if known."""
    instance = jaxlake.parse_grid(grid, max_size=7, max_agents=AGENTS)
    padded = np.full((8, AGENTS), 99, np.int8)
    for t, actions in enumerate(plan):
        padded[t, : len(actions)] = actions
    cost, makespan = (0, 0) if optimum is None else optimum
    solution = Solution(
        status=np.int8(Status.UNKNOWN if optimum is None else Status.OPTIMAL),
        sum_of_costs=np.int16(cost),
        makespan=np.int16(makespan),
        needs_wait=np.bool_(False),
        plan=np.zeros((0, AGENTS), np.int8),
        makespan_plan=np.zeros((0, AGENTS), np.int8),
        expansions=np.int32(0),
    )
    return _verify(instance, padded, np.int32(len(plan)), np.bool_(True), solution)


_verify = jax.jit(jaxlake.verify)


def test_waiting_at_the_goal_counts_only_if_the_agent_leaves_again():
    grid = ["S G F", "s g F", "F F F"]
    stays = _outcome(grid, [[4, 4], [0, 0], [0, 0]], optimum=(2, 1))
    assert bool(stays.optimal_sum_of_costs)
    assert bool(stays.optimal_makespan)
    assert (int(stays.sum_of_costs), int(stays.makespan)) == (2, 1)
    leaves = _outcome(grid, [[4, 4], [0, 0], [4, 0], [3, 0], [0, 0]], optimum=(2, 1))
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


def test_a_plan_is_never_called_optimal_without_an_optimum():
    grid, plan = ["S G F", "s g F", "A a F"], [[4, 4, 4]]
    unknown, known = _outcome(grid, plan), _outcome(grid, plan, optimum=(3, 1))
    for outcome in (unknown, known):
        assert bool(outcome.valid)
        assert (int(outcome.sum_of_costs), int(outcome.makespan)) == (3, 1)
    assert not bool(unknown.optimal_sum_of_costs)
    assert not bool(unknown.optimal_makespan)
    assert bool(known.optimal_sum_of_costs)
    assert bool(known.optimal_makespan)


def test_who_stands_at_its_goal_is_told_before_the_step_that_breaks_a_rule():
    grid = ["S G F", "s F g", "A F a"]
    plan = [[4, 4, 4], [0, 4, 2]]
    outcome = _outcome(grid, plan)
    assert Failure(int(outcome.failure)) is Failure.OFF_BOARD
    assert outcome.at_goal.tolist() == [True, False, False, False]


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
