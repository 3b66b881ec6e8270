"""Boards for tests, and comparisons of the solver with the oracles."""

import itertools
import operator
import random
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from itertools import cycle, islice

import jax
import jax.numpy as jnp
import numpy as np

import jaxlake
from benchmarks import oracles
from benchmarks.oracles.boards import BoardLike, ParsedBoard
from jaxlake import Status
from jaxlake.board.instance import numpy_instance
from jaxlake.solver import DEFAULT_HORIZON, limits_for, many_agents
from jaxlake.solver.certificates import PreparedBoards
from jaxlake.solver.pairs.bounds import pair_staircases
from jaxlake.solver.space_time import NEVER

ANSWER_FIELDS = ("status", "sum_of_costs", "makespan", "needs_wait")
"""Fields of a solution that do not depend on the search."""


def draw_grids(
    seed: int,
    count: int,
    sizes: tuple[int, ...] = tuple(range(2, 11)),
    agent_counts: tuple[int, ...] = (2, 3, 4, 5),
    hole_ratio: float = 0.5,
) -> list[list[str]]:
    """Return `count` grids, cycling through sizes and numbers of agents.

    The share of holes is at most `hole_ratio`. On half of the grids all agents share a component
    if it has room.
    """
    rng = random.Random(seed)
    kinds = [
        (together, n, k)
        for together, n, k in itertools.product((False, True), sizes, agent_counts)
        if 2 * k <= n * n
    ]
    return [
        oracles.random_grid(rng, n, rng.uniform(0, hole_ratio), k, together=together)
        for together, n, k in islice(cycle(kinds), count)
    ]


def draw_starts_on_goals(seed: int, count: int, **options) -> list[ParsedBoard]:
    """Return boards of `draw_grids` in which some goals are starts of other agents."""
    rng = random.Random(seed)
    boards = []
    for board in map(oracles.parse_board, draw_grids(seed, count, **options)):
        starts, goals = board.starts, board.starts
        while not set(starts) & set(goals) or any(map(operator.eq, starts, goals)):
            goals = tuple(rng.sample(starts + board.goals, len(starts)))
        boards.append(replace(board, goals=goals))
    return boards


def make_filled_boards(*agent_counts: int) -> list[ParsedBoard]:
    """Return boards whose 3 to 5 agents fill all free cells, with every assignment of goals."""
    shapes = {
        3: [((0, 0), (0, 1), (0, 2)), ((0, 0), (0, 1), (1, 0))],
        4: [((0, 0), (0, 1), (1, 0), (1, 1)), ((0, 0), (0, 1), (0, 2), (1, 1))],
        5: [((0, 0), (0, 1), (1, 0), (1, 1), (2, 1))],
    }
    return [
        ParsedBoard(3, frozenset(cells), cells, goals)
        for cells in itertools.chain(*map(shapes.get, agent_counts))
        for goals in itertools.permutations(cells)
        if not any(map(operator.eq, cells, goals))
    ]


def make_instances(grids: list[BoardLike], max_size: int, max_agents: int) -> jaxlake.Instance:
    return jaxlake.stack_instances([_make_instance(grid, max_size, max_agents) for grid in grids])


def _make_instance(grid: BoardLike, max_size: int, max_agents: int) -> jaxlake.Instance:
    if not isinstance(grid, ParsedBoard):
        return jaxlake.parse_grid(grid, max_size=max_size, max_agents=max_agents)
    holes, endpoints = np.ones((max_size, max_size), bool), np.zeros((2, max_agents, 2), np.int8)
    holes[tuple(np.transpose(list(grid.free)))] = False
    num_agents = len(grid.starts)
    endpoints[:, :num_agents] = grid.starts, grid.goals
    return numpy_instance(holes, grid.size, *endpoints, num_agents)


def draw_pool(
    seed: int,
    count: int,
    sizes: list[int],
    agent_counts: list[int],
    max_size: int,
    max_agents: int,
    hole_ratio: float = 0.25,
) -> tuple[list[list[str]], jaxlake.Instance]:
    """Return random grids with the given sizes and numbers of agents, and their batch."""
    rng = random.Random(seed)
    grids = [
        oracles.random_grid(
            rng, rng.choice(sizes), rng.uniform(0, hole_ratio), rng.choice(agent_counts)
        )
        for _ in range(count)
    ]
    return grids, make_instances(grids, max_size, max_agents)


def permute_slots(boards: jaxlake.Instance, slots: np.ndarray) -> jaxlake.Instance:
    """Move the agent in slot `slots[i, j]` of board i to slot j."""

    def permute(leaf: np.ndarray) -> np.ndarray:
        return np.take_along_axis(leaf, slots.reshape(slots.shape + (1,) * (leaf.ndim - 2)), axis=1)

    agent_leaves = map(permute, (boards.starts, boards.goals, boards.agent_mask))
    return jaxlake.Instance(boards.holes, boards.size, *agent_leaves)


@cache
def make_solver(**options):
    return jax.jit(jax.vmap(partial(jaxlake.solve, **options)))


def solve_batches(boards: jaxlake.Instance, batch_size: int, **options) -> jaxlake.Solution:
    """Solve in batches of one shape; the last batch repeats boards."""
    count = boards.size.shape[0]
    parts = []
    for start in range(0, count, batch_size):
        rows = np.resize(np.arange(start, min(start + batch_size, count)), batch_size)
        part = make_solver(**options)(jax.tree.map(lambda leaf, rows=rows: leaf[rows], boards))
        parts.append(jax.device_get(part))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *parts)


@cache
def _make_tree_solver(horizon: int):
    def solve(boards, max_expansions):
        limit = many_agents.broadcast_max_expansions(boards, max_expansions)
        return many_agents.solve_many_agents(boards, horizon, limit, limits_for(), dense=False)

    return jax.jit(solve)


def solve_by_trees(boards, horizon=DEFAULT_HORIZON, max_expansions=None) -> jaxlake.Solution:
    """Solve boards of three or more slots in one batch, without the dense tier."""
    return jax.device_get(_make_tree_solver(horizon)(boards, max_expansions))


def compute_pair_staircases(batch: jaxlake.Instance, boards: PreparedBoards) -> jax.Array:
    """Return the staircases of all connected pairs, uint32 (2, P, B)."""
    batch = jax.tree.map(jnp.asarray, batch)
    num_slots, count = boards.starts.shape
    upper_bounds = jnp.full((num_slots * (num_slots - 1) // 2, count), 3 * NEVER)
    return pair_staircases(batch, boards, upper_bounds, jnp.ones(count, bool), limits_for())


def select_rows(tree, i):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[i], tree)


def assert_same(actual, expected) -> None:
    """Assert that two trees have equal structure, dtypes and values."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for x, y in zip(*map(jax.tree.leaves, (actual, expected)), strict=True):
        assert np.asarray(x).dtype == np.asarray(y).dtype
        np.testing.assert_array_equal(x, y)


def check_solutions(
    grids: list[BoardLike],
    solutions: jaxlake.Solution,
    truths: list[oracles.Truth],
    slots: np.ndarray | None = None,
) -> Counter[str]:
    """Assert that all solutions agree with the oracles; return the counts of board kinds.

    Agent k of board i is in slot `slots[i, k]`, by default slot k.
    """
    failures = []
    counts: Counter[str] = Counter()
    for i, (grid, truth) in enumerate(zip(grids, truths, strict=True)):
        num_agents = len(oracles.parse_board(grid).starts)
        agent_slots = (np.arange(num_agents) if slots is None else slots[i, :num_agents]).tolist()
        answer = _make_oracle_answer(select_rows(solutions, i), agent_slots)
        mistakes = oracles.find_mistakes(grid, truth, answer)
        if mistakes:
            failures.append((grid, mistakes))
        counts[oracles.classify_board(grid, truth)] += 1
        counts[answer.status] += 1
        if answer.status == "OPTIMAL":
            is_shortest = oracles.check_plan(grid, answer.plan).makespan == truth.makespan
            counts["one plan for both optima" if is_shortest else "optima in different plans"] += 1
    assert not failures, f"{len(failures)} boards, such as {failures[:3]}"
    return counts


def _make_oracle_answer(solution: jaxlake.Solution, slots: list[int]) -> oracles.SolverAnswer:
    """Return a solution as plain values; check the fields that its status leaves undefined."""
    status = Status(int(solution.status))
    other_slots = np.delete(np.arange(solution.plan.shape[-1]), slots)
    for plan in (solution.plan, solution.makespan_plan):
        assert (plan[:, other_slots] == 0).all() if status is Status.OPTIMAL else (plan == -1).all()
    if status is not Status.OPTIMAL:
        assert int(solution.sum_of_costs) == int(solution.makespan) == -1
        assert not solution.needs_wait
    assert solution.expansions >= 0
    plan_slots = slots if status is Status.OPTIMAL else []
    return oracles.SolverAnswer(
        status=status.name,
        sum_of_costs=int(solution.sum_of_costs),
        makespan=int(solution.makespan),
        needs_wait=bool(solution.needs_wait),
        plan=solution.plan[:, plan_slots].tolist(),
        makespan_plan=solution.makespan_plan[:, plan_slots].tolist(),
    )
