"""Pallas kernels are bit-identical to XLA's loops.

The kernels are compiled on a GPU or TPU and interpreted on other platforms.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas

from jaxlake.solver import Kernels, Limits, Status, certificates, limits_for, space_time
from jaxlake.solver.chunks import NODE_LANES, SHARED_SPLITS, TEAM_LANES
from jaxlake.solver.kernels import joint, planning, tree
from jaxlake.solver.kernels.pair_lanes import num_lanes
from jaxlake.solver.pairs import arrivals, joint_search
from jaxlake.solver.pairs.bounds import agent_pairs
from jaxlake.solver.pairs.two_agents import search_by_loops
from jaxlake.solver.trees.node import TreeQueries
from jaxlake.solver.trees.search import search_trees
from tests.jaxlake.solver.boards import (
    assert_same,
    compute_pair_staircases,
    draw_grids,
    draw_starts_on_goals,
    make_instances,
    solve_batches,
)

triton = pytest.importorskip("jax.experimental.pallas.triton")

HORIZON = 12
BACKEND = limits_for().kernels or Kernels.INTERPRETED


def _make_boards(seed, count, size, max_agents):
    grids = draw_grids(seed, count, sizes=(size,), agent_counts=(2, max_agents))
    return make_instances(grids, size, max_agents)


@pytest.mark.parametrize("upwards", [False, True])
def test_planning_kernels_equal_loops(upwards):
    limits = Limits(1, 1, 1, 1)
    boards = certificates.prepare_boards(_make_boards(1, 600, 4, 3), limits)
    free, starts, goals, solo_distances = boards
    assert (planning.compute_solo_distances(free, starts, goals, BACKEND) == solo_distances).all()
    connected_mask = jnp.all(solo_distances < space_time.NEVER, axis=0)
    latest = jnp.where(connected_mask, jnp.int16(HORIZON), jnp.int16(-1))
    latest = jnp.broadcast_to(latest, starts.shape)
    buffers = space_time.search_buffers(HORIZON, len(free), free.shape[1], levels=1)
    plans, _ = jax.jit(certificates.plan_in_order, static_argnames="upwards")(
        free, starts, goals, latest, buffers, upwards=upwards
    )
    arrival, paths = planning.plan_in_order(
        free, starts, goals, latest, HORIZON, BACKEND, upwards=upwards
    )
    assert (arrival == plans.arrival).all()
    assert (paths == plans.paths).all()
    num_late = jnp.sum((arrival < space_time.NEVER) & (arrival > solo_distances))
    assert num_late > 20  # agents delayed by others
    assert jnp.sum(connected_mask & jnp.any(arrival == space_time.NEVER, axis=0)) > 5


def _compare_joint_searches(batch, playing_mask, horizon, *, waiting=True, backend=BACKEND):
    """Assert that loops and kernel agree; return the kernel's plans and the searched boards."""
    count, size = batch.holes.shape[:2]
    geometry = joint_search.geometry(size)
    solo_distances = certificates.prepare_boards(batch, Limits(1, 1, 1, 1)).solo_distances
    board_arrays = ~batch.holes, batch.starts, batch.goals
    lanes = joint_search.two_agent_lanes(*board_arrays, playing_mask, geometry, solo_distances)
    pairs = lanes.lay_out(board_arrays[0], geometry)
    layers = jnp.zeros((horizon + 1, geometry.words, geometry.cells, count), jnp.uint32)
    walks = jnp.zeros((2 * horizon + 2, geometry.words, 2, count), jnp.uint32)
    history = joint_search.JointHistory(layers, walks)

    def search_with_loops(running_mask, cost):
        waitless_cost = jnp.zeros_like(running_mask, jnp.int32) if cost is None else cost
        arguments = pairs, running_mask, history, waitless_cost, horizon, geometry, cost is None
        return search_by_loops(*arguments)[0]

    def search_with_kernel(running_mask, cost):
        return joint.search_pairs(pairs, running_mask, horizon, geometry, backend, cost)

    def search_costs_with_kernel(running_mask, cost):
        return joint.search_costs(pairs, running_mask, horizon, geometry, backend, cost)

    running_mask, cost = lanes.connected, None
    expected = jax.jit(search_with_loops)(running_mask, None)
    if not waiting:
        optima = expected.optima
        solved_mask, cost = optima.makespan < joint_search.FAR, optima.sum_of_costs
        running_mask = joint_search.needs_waitless_search(pairs.solo_distances, solved_mask, cost)
        expected = jax.jit(search_with_loops)(running_mask, cost)
    actual = jax.jit(search_with_kernel)(running_mask, cost)
    assert_same(actual, expected)
    assert_same(jax.jit(search_costs_with_kernel)(running_mask, cost), expected.optima)
    return actual, running_mask


@pytest.mark.slow
@pytest.mark.parametrize("waiting", [True, False])
@pytest.mark.parametrize(
    ("seed", "size", "count", "horizon"), [(2, 4, 700, HORIZON), (8, 10, 3000, 64)]
)
def test_joint_search_kernels_equal_loops(seed, size, count, horizon, waiting):
    playing_mask = (jnp.arange(count) % 9 > 0) | (size == 10)
    boards = _make_boards(seed, count, size, 2)
    result, running_mask = _compare_joint_searches(boards, playing_mask, horizon, waiting=waiting)
    settled_mask = (result.optima.sum_of_costs < joint_search.FAR) & running_mask
    assert jnp.sum(settled_mask) >= (300 if waiting else 20)
    if waiting and size == 4:
        assert jnp.sum(result.optima.stuck) >= 5
        assert jnp.sum(jnp.any(result.plan != result.makespan_plan, axis=(0, 1))) >= 3


@pytest.mark.parametrize("size", [5, *(pytest.param(n, marks=pytest.mark.slow) for n in (9, 12))])
def test_joint_search_kernel_ignores_lanes_beyond_sets(size):
    geometry = joint_search.geometry(size)
    assert num_lanes(BACKEND, geometry) > 32 * geometry.words
    boards = _make_boards(14, 200, size, 2)
    _compare_joint_searches(boards, jnp.ones(200, bool), 32)


@pytest.mark.slow
def test_kernel_equals_loops_for_plans_longer_than_lanes():
    # The agents can pass each other only at the far end of the corridor.
    corridor = ["G s S F g F", "H H H H H F", "F F F F F F", "F H H H H H", "F F F F F F"]
    batch = make_instances([[*corridor, "H H H H F H"]], 6, 2)
    result, _ = _compare_joint_searches(batch, jnp.ones(1, bool), 80)
    assert 64 < result.optima.sum_of_costs[0] < 2 * result.length[0]


@pytest.mark.parametrize(
    "backend", [pytest.param(Kernels.GPU, marks=pytest.mark.slow), Kernels.TPU]
)
def test_joint_search_backends_equal_loops(backend, monkeypatch):
    # In interpreted mode all lanes write before any lane reads, so no barrier is needed.
    monkeypatch.setattr(pallas, "pallas_call", partial(pallas.pallas_call, interpret=True))
    monkeypatch.setattr(triton, "debug_barrier", lambda: None)
    result, running_mask = _compare_joint_searches(
        _make_boards(9, 60, 4, 2), jnp.ones(60, bool), HORIZON, backend=backend
    )
    assert jnp.sum((result.optima.sum_of_costs < joint_search.FAR) & running_mask) >= 30


def _compare_staircases(batch, request_mask, backend=BACKEND):
    """Assert that loops and kernel agree; return the staircases, uint32 (2, B)."""
    solo_distances = certificates.prepare_boards(batch, Limits(1, 1, 1, 1)).solo_distances
    arguments = ~batch.holes, batch.starts, batch.goals, solo_distances, request_mask
    compute_staircases = jax.jit(arrivals.staircases, static_argnums=5)
    expected = compute_staircases(*arguments, Limits(64, 64, 64, 1 << 26))
    actual = compute_staircases(*arguments, Limits(64, 64, 1 << 12, 1 << 26, backend))
    assert (actual == expected).all()
    return actual


@pytest.mark.parametrize(
    ("seed", "sizes", "count", "hole_ratio"),
    [(11, (3, 5), 900, 0.6), pytest.param(13, (10,), 3000, 0.5, marks=pytest.mark.slow)],
)
def test_staircase_kernel_equals_loops(seed, sizes, count, hole_ratio):
    batch = make_instances(
        draw_grids(seed, count, sizes, agent_counts=(2,), hole_ratio=hole_ratio), sizes[-1], 2
    )
    words = _compare_staircases(batch, jnp.arange(count) % 9 > 0)
    assert len({tuple(row) for row in words.T.tolist()}) >= 30
    assert jnp.sum(jnp.any(words != 0, axis=0)) > 100


@pytest.mark.parametrize("backend", [Kernels.GPU, Kernels.TPU])
def test_staircase_backends_equal_loops(backend, monkeypatch):
    monkeypatch.setattr(pallas, "pallas_call", partial(pallas.pallas_call, interpret=True))
    monkeypatch.setattr(triton, "debug_barrier", lambda: None)
    batch = make_instances(draw_grids(12, 60, sizes=(4,), agent_counts=(2,), hole_ratio=0.6), 4, 2)
    words = _compare_staircases(batch, jnp.ones(60, bool), backend)
    assert jnp.sum(jnp.any(words != 0, axis=0)) >= 10


def _make_tree_queries(seed, count, size, num_agents):
    """Return queries: half per objective, a third without waits, a ninth inactive."""
    batch = _make_boards(seed, count, size, num_agents)
    boards = certificates.prepare_boards(batch, Limits(1, 1, 1, 1))
    connected_mask = jnp.all(boards.solo_distances < space_time.NEVER, axis=0)
    solo_distances = jnp.where(connected_mask, boards.solo_distances, 0)
    index = jnp.arange(count)
    sum_mask = index % 2 == 0
    min_bound = jnp.where(
        sum_mask, jnp.sum(solo_distances, axis=0), jnp.max(solo_distances, axis=0)
    ).astype(jnp.int16)
    max_bound = min_bound + (index % 7).astype(jnp.int16)
    excess = jnp.where(index % 10 == 4, 2, 0)
    pairs = [solo_distances[i] + solo_distances[j] + excess for i, j in agent_pairs(num_agents)]
    return TreeQueries(
        *boards[:3],
        solo_distances=solo_distances,
        staircases=compute_pair_staircases(batch, boards),
        pair_costs=jnp.stack(pairs).astype(jnp.int16),
        sum_objective=sum_mask,
        may_wait=index % 3 > 0,
        min_bound=min_bound,
        max_bound=jnp.where(sum_mask, max_bound, jnp.minimum(max_bound, HORIZON)),
        max_expansions=jnp.where(index % 4 == 0, 64, 600),
        active=connected_mask & (index % 9 > 0),
    )


def _compare_tree_searches(queries):
    """Assert that loops and kernels agree for lanes and teams; return the answers."""

    def search_with_loops(queries, team, split):
        lanes = 4 * TEAM_LANES
        return search_trees(queries, horizon=HORIZON, lanes=lanes, team=team, split=split)

    def search_with_kernel(queries, team, split, helpers):
        # With this little memory, each program processes several rounds of queries.
        options = {"horizon": HORIZON, "backend": BACKEND, "limits": Limits(1, 1, 1, 1 << 20)}
        return tree.search_trees(queries, **options, team=team, split=split, helpers=helpers)

    run_loops, answers = jax.jit(search_with_loops), []
    run_kernel = jax.jit(search_with_kernel, static_argnames="helpers")
    for team, split in [(1, 0), (TEAM_LANES, SHARED_SPLITS), (TEAM_LANES, 1)]:
        expected = run_loops(queries, team, split)
        for helpers in (1, NODE_LANES) if team > 1 else (1,):
            actual = run_kernel(queries, team, split, helpers=helpers)
            label = (team, split, helpers)
            for name in ("solved", "gave_up", "bound", "expansions"):
                assert (getattr(actual, name) == getattr(expected, name)).all(), (name, *label)
            assert ((actual.paths == expected.paths) | ~expected.solved).all(), label
        answers.append(expected)
    return answers


@pytest.mark.slow
def test_tree_search_kernel_equals_loops():
    queries = _make_tree_queries(5, 300, 4, 3)
    answers = _compare_tree_searches(queries)
    single_lane, *_ = answers
    refuted_mask = queries.active & ~single_lane.solved & ~single_lane.gave_up
    assert jnp.sum(single_lane.solved & (single_lane.bound > queries.min_bound)) >= 20
    assert jnp.sum(refuted_mask) >= 5
    assert all(jnp.sum(answer.gave_up) >= 3 for answer in answers)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "num_agents", "count"), [(6, 4, 4000), (5, 5, 4000)])
def test_tree_search_kernel_equals_loops_on_many_trees(size, num_agents, count):
    answers = _compare_tree_searches(_make_tree_queries(6, count, size, num_agents))
    assert all(jnp.sum(answer.solved) >= 1000 for answer in answers)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "num_agents", "count"), [(6, 2, 20_000), (4, 3, 128), (5, 4, 64)])
def test_solver_with_kernels_equals_loops(size, num_agents, count):
    options = {"sizes": tuple(range(2, size + 1)), "agent_counts": (2, num_agents)}
    grids = draw_grids(3, count // 2, **options) + draw_starts_on_goals(3, count // 2, **options)
    boards = make_instances(grids, size, num_agents)
    limits = Limits(1 << 13, 1 << 7, 1 << 13, 1 << 30)
    expected = solve_batches(boards, count, limits=limits)
    assert_same(solve_batches(boards, count, limits=replace(limits, kernels=BACKEND)), expected)
    assert set(expected.status.tolist()) >= {Status.OPTIMAL, Status.UNSOLVABLE}


def test_single_agent_kernels_equal_loops():
    boards = make_instances(draw_grids(4, 200, (2, 3, 4), agent_counts=(1,)), 4, 1)
    limits = Limits(64, 1, 1, 1 << 30)
    expected = solve_batches(boards, 200, limits=limits)
    assert_same(solve_batches(boards, 200, limits=replace(limits, kernels=BACKEND)), expected)
    assert set(expected.status.tolist()) == {Status.OPTIMAL, Status.UNSOLVABLE}
