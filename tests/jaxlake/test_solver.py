"""The exact solver against independent oracles: CBS in C++, SAT, searches in plain Python.

JAXLAKE_ORACLE_BOARDS and JAXLAKE_ORACLE_SEED run the comparison on more, or on other, boards.
"""

import os
import random
from collections import Counter
from functools import cache, partial
from itertools import cycle, islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxlake
from jaxlake import Status
from tests import oracles

BOARDS = int(os.environ.get("JAXLAKE_ORACLE_BOARDS", "2000"))
SEED = int(os.environ.get("JAXLAKE_ORACLE_SEED", "0"))

# Nearly all tests solve batches of this shape, so that few programs have to be compiled.
BATCH, SIZE, SLOTS = 250, 10, 5
UNKNOWN_RATES = {2: 0.001, 3: 0.001, 4: 0.01, 5: 0.03}


def _random_grids(
    seed: int,
    count: int,
    sizes: tuple[int, ...] = tuple(range(2, 11)),
    agents: tuple[int, ...] = (2, 3, 4, 5),
    holes: float = 0.5,
) -> list[list[str]]:
    """As many boards of each size and number of agents, with up to that share of holes.

    On half of them all agents share a component, if it has room.
    """
    rng = random.Random(seed)
    strata = [(n, k, half) for half in (0, 1) for n in sizes for k in agents if 2 * k <= n * n]
    return [
        oracles.random_grid(rng, n, rng.uniform(0, holes), k, together=bool(half))
        for n, k, half in islice(cycle(strata), count)
    ]


def _boards(
    grids: list[list[str]], max_size: int = SIZE, max_agents: int = SLOTS
) -> jaxlake.Instance:
    return jaxlake.stack_instances(
        [jaxlake.parse_grid(grid, max_size=max_size, max_agents=max_agents) for grid in grids]
    )


def _solve(boards: jaxlake.Instance, **options: int) -> jaxlake.Solution:
    """Solve in batches of one shape, the last one filled up with its own boards."""
    count = boards.size.shape[0]
    parts = []
    for start in range(0, count, BATCH):
        rows = np.resize(np.arange(start, min(start + BATCH, count)), BATCH)
        part = _solver(**options)(jax.tree.map(lambda leaf, rows=rows: leaf[rows], boards))
        parts.append(jax.device_get(part))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *parts)


@cache
def _solver(**options: int):
    return jax.jit(jax.vmap(partial(jaxlake.solve, **options)))


def _row(solutions: jaxlake.Solution, i: int) -> jaxlake.Solution:
    return jax.tree.map(lambda leaf: leaf[i], solutions)


def _answer(solution: jaxlake.Solution, slots: list[int]) -> oracles.Answer:
    """One solution as plain values, after a look at what it says where it says nothing."""
    status = Status(int(solution.status))
    others = np.delete(np.arange(solution.plan.shape[-1]), slots)
    for plan in (solution.plan, solution.makespan_plan):
        if status is Status.OPTIMAL:
            assert (plan[:, others] == 0).all()
        else:
            assert (plan == -1).all()
    if status is not Status.OPTIMAL:
        assert int(solution.sum_of_costs) == int(solution.makespan) == -1
        assert not solution.needs_wait
    assert solution.expansions >= 0
    known = slots if status is Status.OPTIMAL else []
    return oracles.Answer(
        status=status.name,
        sum_of_costs=int(solution.sum_of_costs),
        makespan=int(solution.makespan),
        needs_wait=bool(solution.needs_wait),
        plan=solution.plan[:, known].tolist(),
        makespan_plan=solution.makespan_plan[:, known].tolist(),
    )


def _agents(grid: list[str]) -> int:
    return len(oracles.read(grid).starts)


def _compare(
    grids: list[list[str]], solutions: jaxlake.Solution, truths: list[oracles.Truth]
) -> Counter[str]:
    """Compare all answers with what is true; returns the kinds of boards there were."""
    wrong = []
    kinds: Counter[str] = Counter()
    for i, (grid, truth) in enumerate(zip(grids, truths, strict=True)):
        answer = _answer(_row(solutions, i), list(range(_agents(grid))))
        found = oracles.mistakes(grid, truth, answer)
        if found:
            wrong.append((grid, found))
        kinds[oracles.kind(grid, truth)] += 1
        kinds[answer.status] += 1
        if answer.status == "OPTIMAL":
            shortest = oracles.check(grid, answer.plan).makespan == truth.makespan
            kinds["one plan for both optima" if shortest else "optima in different plans"] += 1
    assert not wrong, f"{len(wrong)} boards, such as {wrong[:3]}"
    return kinds


ALL_KINDS = {
    *("disconnected", "blocked by each other", "optima in different plans"),
    *("needs_wait=False, excess 0", "needs_wait=True, excess 1"),
    *("needs_wait=True, excess 2", "needs_wait=False, excess 2"),
}


def test_every_answer_agrees_with_all_oracles_from_two_to_five_agents_in_one_batch():
    grids = _random_grids(SEED, BOARDS)
    truths = oracles.judge_all(grids)
    solutions = _solve(_boards(grids))
    kinds = _compare(grids, solutions, list(truths))
    assert kinds.keys() >= ALL_KINDS
    assert kinds["undecided"] <= 0.002 * BOARDS
    # Crowded small boards are the hardest ones; UNKNOWN_RATES are for 10x10 with 35% holes.
    assert kinds["UNKNOWN"] <= 0.015 * BOARDS


def test_every_answer_agrees_with_all_oracles_where_only_two_agents_fit():
    grids = _random_grids(SEED + 1, BOARDS // 6, agents=(2,))
    truths = oracles.judge_all(grids)
    solutions = _solve(_boards(grids, max_agents=2))
    kinds = _compare(grids, solutions, list(truths))
    assert kinds.keys() >= ALL_KINDS
    assert kinds["UNKNOWN"] == 0


@pytest.mark.parametrize(("agents", "rate"), UNKNOWN_RATES.items())
def test_little_is_unknown_on_boards_of_full_size_with_a_third_of_holes(agents, rate):
    rng = random.Random(agents)
    grids = [oracles.random_grid(rng, 10, 0.35, agents) for _ in range(4 * BATCH)]
    unknown = np.sum(_solve(_boards(grids)).status == Status.UNKNOWN)
    assert unknown <= rate * len(grids)


def test_more_padding_changes_no_answer():
    max_size, max_agents = 12, 5
    grids = _random_grids(2, BATCH)
    expected = _solve(_boards(grids))
    padded = _solve(_boards(grids, max_size, max_agents))
    for name in ("status", "sum_of_costs", "makespan", "needs_wait"):
        assert (getattr(padded, name) == getattr(expected, name)).all(), name
    for i, grid in enumerate(grids):
        answer = _answer(_row(padded, i), list(range(_agents(grid))))
        if answer.status == "OPTIMAL":
            assert oracles.check(grid, answer.plan).sum_of_costs == answer.sum_of_costs
            assert oracles.check(grid, answer.makespan_plan).makespan == answer.makespan


def test_boards_larger_than_the_default_are_solved_exactly():
    grids = _random_grids(3, 60, sizes=(13, 17, 20), agents=(2, 3), holes=0.4)
    truths = oracles.judge_all(grids)
    solutions = _solve(_boards(grids, 20, 3))
    kinds = _compare(grids, solutions, list(truths))
    assert kinds["OPTIMAL"] > 30
    assert kinds["UNKNOWN"] <= 3


@pytest.mark.parametrize("max_size", [2, 32])
def test_any_static_size_gives_the_right_answers(max_size):
    sizes = tuple(range(2, min(max_size, 6) + 1))
    grids = _random_grids(max_size, 30, sizes, agents=(2,))
    solver = _solver(horizon=24)
    solutions = jax.device_get(solver(_boards(grids, max_size, 2)))
    kinds = _compare(grids, solutions, [oracles.judge(grid) for grid in grids])
    assert kinds["OPTIMAL"] > 15
    assert kinds["UNKNOWN"] == 0


def test_jit_vmap_nested_vmap_and_a_single_call_give_equal_answers():
    grids = _random_grids(4, BATCH, sizes=(3, 4, 5, 6))
    boards = _boards(grids)
    reference = _solve(boards)
    folded = jax.tree.map(lambda leaf: leaf.reshape(10, BATCH // 10, *leaf.shape[1:]), boards)
    nested = jax.jit(jax.vmap(jax.vmap(jaxlake.solve)))(folded)
    one = jax.jit(jaxlake.solve)
    for got, expected in zip(jax.tree.leaves(nested), jax.tree.leaves(reference), strict=True):
        assert got.dtype == expected.dtype
        assert (np.asarray(got).reshape(expected.shape) == expected).all()
    for i in range(0, BATCH, 25):
        alone = one(_row(boards, i))
        for got, expected in zip(jax.tree.leaves(alone), jax.tree.leaves(reference), strict=True):
            assert got.dtype == expected.dtype
            assert (np.asarray(got) == expected[i]).all()


def test_the_other_boards_of_a_batch_and_their_order_change_no_answer():
    grids = _random_grids(5, BATCH)
    boards = _boards(grids)
    reference = _solve(boards)
    order = np.random.default_rng(0).permutation(BATCH)
    shuffled = _solve(jax.tree.map(lambda leaf: leaf[order], boards))
    same = _solve(jax.tree.map(lambda leaf: leaf[np.zeros(BATCH, int)], boards))
    for name in ("status", "sum_of_costs", "makespan", "needs_wait"):
        assert (getattr(shuffled, name) == getattr(reference, name)[order]).all(), name
    for leaf, expected in zip(jax.tree.leaves(same), jax.tree.leaves(reference), strict=True):
        assert (leaf == leaf[:1]).all()
        if leaf.ndim == 1 and leaf.dtype != np.int32:
            assert leaf[0] == expected[0]


def test_agents_may_sit_in_any_slots_and_nobody_answers_for_the_empty_ones():
    grids = _random_grids(6, BATCH, sizes=(3, 4, 5, 6), agents=(2, 3))
    rng = np.random.default_rng(1)
    boards = _boards(grids)
    moved, places = [], []
    for i in range(BATCH):
        slots = rng.permutation(SLOTS)
        moved.append(
            jaxlake.Instance(
                boards.holes[i],
                boards.size[i],
                boards.starts[i][slots],
                boards.goals[i][slots],
                boards.agent_mask[i][slots],
            )
        )
        places.append(
            [int(np.flatnonzero(slots == agent)[0]) for agent in range(_agents(grids[i]))]
        )
    expected = _solve(boards)
    solutions = _solve(jaxlake.stack_instances(moved))
    # The order of the agents decides how long a search takes, and so what stays unknown.
    known = (solutions.status != Status.UNKNOWN) & (expected.status != Status.UNKNOWN)
    assert known.mean() > 0.98
    for name in ("status", "sum_of_costs", "makespan", "needs_wait"):
        assert (getattr(solutions, name) == getattr(expected, name))[known].all(), name
    for i, grid in enumerate(grids):
        answer = _answer(_row(solutions, i), places[i])
        if answer.status == "OPTIMAL":
            assert oracles.check(grid, answer.plan).sum_of_costs == answer.sum_of_costs
            assert oracles.check(grid, answer.makespan_plan).makespan == answer.makespan


def test_one_agent_is_never_answered_wrongly():
    grids = _random_grids(7, 60, agents=(1,))
    _compare(grids, _solve(_boards(grids)), [oracles.judge(grid) for grid in grids])


def test_only_part_of_an_instance_may_be_batched():
    board = jaxlake.parse_grid(["S F F", "s F F", "G g F"])
    goals = np.array([[[0, 2], [1, 2]], [[2, 2], [2, 1]], [[1, 2], [0, 2]]], np.int8)
    axes = jaxlake.Instance(holes=None, size=None, starts=None, goals=0, agent_mask=None)
    varied = jaxlake.Instance(board.holes, board.size, board.starts, goals, board.agent_mask)
    solutions = jax.jit(jax.vmap(jaxlake.solve, in_axes=(axes,)))(varied)
    single_solver = jax.jit(jaxlake.solve)
    for i in range(3):
        single = single_solver(
            jaxlake.Instance(board.holes, board.size, board.starts, goals[i], board.agent_mask)
        )
        assert int(solutions.sum_of_costs[i]) == int(single.sum_of_costs)
    assert len(set(solutions.sum_of_costs.tolist())) > 1


@pytest.mark.parametrize("agents", [2, 3])
def test_the_horizon_bounds_plans_exactly_and_beyond_it_nothing_is_guessed(agents):
    corridor = {
        2: ["S F F F", "H H H F", "G F F F", "s g F F"],
        3: ["S F F F", "H H H F", "G F F F", "s g A a"],
    }[agents]
    truth = oracles.judge(corridor)
    boards = _boards([corridor], 4, agents)
    at, below = (jax.device_get(_solver(horizon=truth.makespan - n)(boards)) for n in (0, 1))
    assert at.plan.shape == at.makespan_plan.shape == (1, truth.makespan, agents)
    assert _compare([corridor], at, [truth])["OPTIMAL"] == 1
    assert _compare([corridor], below, [truth])["UNKNOWN"] == 1


def test_a_short_horizon_never_changes_an_answer_to_another_one():
    boards = _boards(_random_grids(8, BATCH, sizes=(3, 4, 5, 6, 7, 8)))
    full = _solve(boards)
    cut = _solve(boards, horizon=9)
    known = (cut.status != Status.UNKNOWN) & (full.status != Status.UNKNOWN)
    for name in ("status", "sum_of_costs", "makespan", "needs_wait"):
        assert (getattr(cut, name)[known] == getattr(full, name)[known]).all(), name
    assert (cut.makespan <= 9).all()
    assert set(cut.status.tolist()) == set(Status)


def test_values_do_not_retrace():
    traces = []

    def counted(board):
        traces.append(1)
        return jaxlake.solve(board)

    solver = jax.jit(counted)
    for grid in _random_grids(9, 34):
        solver(jax.tree.map(jnp.asarray, jaxlake.parse_grid(grid, max_size=SIZE, max_agents=SLOTS)))
    assert len(traces) == 1


def test_arguments_out_of_range_are_named():
    board = jaxlake.parse_grid(["S G", "s g"])
    with pytest.raises(ValueError, match="horizon: got 0"):
        jaxlake.solve(board, horizon=0)
    with pytest.raises(ValueError, match="agent_mask"):
        jaxlake.solve(jaxlake.parse_grid(["S G", "F F"], max_agents=1))


def test_distances_agree_with_breadth_first_search():
    field_of = jax.jit(jax.vmap(jaxlake.distances))
    grids = _random_grids(10, 60)
    boards = _boards(grids)
    fields = np.asarray(field_of(boards.holes, boards.goals[:, 0]))
    assert fields.dtype == np.int16
    for grid, field in zip(grids, fields, strict=True):
        board = oracles.read(grid)
        expected = np.full((10, 10), jaxlake.UNREACHABLE)
        for (r, c), steps in oracles.distances_to(board, board.goals[0]).items():
            expected[r, c] = steps
        assert (field == expected).all()
