"""Generated sets: quotas, distinct boards, shortfalls and reproducibility."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxlake
from benchmarks import oracles
from jaxlake import Status, lake_params
from jaxlake.generator import generate, generate_sharded
from jaxlake.generator.candidates import decode_boards, draw_codes
from jaxlake.generator.generation import _sharded_batch_size
from jaxlake.solver import default_horizon, limits_for
from jaxlake.solver.solution import unknown_solution
from tests.jaxlake.solver.boards import assert_same, select_rows

MAX_SIZE, HORIZON, MAX_CANDIDATES, NUM_BOARDS = 6, 8, 600, 60
SETTINGS = {"max_size": MAX_SIZE, "horizon": HORIZON, "max_candidates": MAX_CANDIDATES}

MIXTURES = [
    # Two components of one kind with other waits, an infeasible one, and one beyond max_size.
    lake_params(
        size=[3, 5, 3, 3, 7],
        hole_ratio=[0.3, 0.5, 0.3, 0.7, 0.1],
        wait_ratio=[0.25, 0.3, 0.5, 0.0, 0.5],
        data_ratio=[16, 15, 13, 5, 11],
    ),
    # 24 boards exist on 2x2 without holes, and none needs a wait.
    lake_params(
        size=[2, 4, 2, 6, 6],
        hole_ratio=[0.0, 0.1, 0.0, 0.2, 0.5],
        wait_ratio=[0.5, 0.0, 0.0, 0.1, 1.0],
        data_ratio=[10, 20, 18, 10, 2],
    ),
    lake_params(
        size=[4, 4, 4, 4, 3],
        hole_ratio=[0.2, 0.2, 0.2, 0.1, 0.4],
        wait_ratio=[0.1, 0.4, 0.0, 0.3, 0.5],
        num_agents=[2, 2, 2, 3, 2],
        data_ratio=[0.2, 0.1, 0.3, 0.25, 0.15],
    ),
]
STACKED_PARAMS = jax.tree.map(lambda *leaves: jnp.stack(leaves), *MIXTURES)
COUNTER_NAMES = ("candidates", "solvable", "unsolvable", "unknown", "duplicates")


@pytest.fixture(scope="module")
def generation():
    """Return a compiled generator and its results for each mixture."""
    jit_generate = jax.jit(partial(generate, n=NUM_BOARDS, batch_size=128, **SETTINGS))
    results = [jax.device_get(jit_generate(jax.random.key(7), params)) for params in MIXTURES]
    return jit_generate, results


def _select_filled(result):
    pairs = jax.tree.map(np.asarray, (result.instances, result.solutions))
    return [
        (int(result.component[i]), *select_rows(pairs, i)) for i in np.flatnonzero(result.filled)
    ]


@pytest.mark.parametrize("index", range(len(MIXTURES)))
def test_boards_match_their_component_and_optimum(generation, index):
    result, params = generation[1][index], jax.tree.map(np.asarray, MIXTURES[index])
    boards = _select_filled(result)
    counts = np.zeros((2, params.size.size), int)
    for component, instance, solution in boards:
        grid = jaxlake.format_grid(instance)
        board = oracles.parse_board(grid)
        size = int(params.size[component])
        assert board.size == size
        assert len(board.free) == size**2 - int(
            float(params.hole_ratio[component]) * size**2 + 1e-4
        )
        assert len({*board.starts, *board.goals}) == 2 * int(params.num_agents[component])
        expected = jaxlake.parse_grid(grid, max_size=MAX_SIZE)
        assert_same(instance, expected)
        cost, needs_wait = oracles.least_sum_of_costs(grid)
        assert Status(int(solution.status)) is Status.OPTIMAL
        assert (solution.sum_of_costs, solution.needs_wait) == (cost, needs_wait)
        assert oracles.check_plan(grid, solution.plan.tolist()).sum_of_costs == cost
        counts[int(needs_wait), component] += 1
    assert len({tuple(jaxlake.format_grid(instance)) for _, instance, _ in boards}) == len(boards)
    assert (counts[0] == result.requested_no_wait - result.shortfall_no_wait).all()
    assert (counts[1] == result.requested_wait - result.shortfall_wait).all()


@pytest.mark.parametrize("index", range(len(MIXTURES)))
def test_requests_are_split_by_share_in_component_order(generation, index):
    result, params = generation[1][index], MIXTURES[index]
    num_requested = result.requested_wait + result.requested_no_wait
    assert num_requested.sum() == NUM_BOARDS
    shares = np.asarray(params.data_ratio) / np.asarray(params.data_ratio).sum()
    assert (abs(num_requested - shares * NUM_BOARDS) < 1).all()
    num_waits = np.asarray(params.wait_ratio) * num_requested
    assert (result.requested_wait == np.floor(num_waits + 0.5 + 1e-6)).all()
    assert (np.bincount(result.component, minlength=5) == num_requested).all()
    assert (np.diff(result.component) >= 0).all()
    for component in range(5):
        filled = result.filled[result.component == component]
        assert (np.diff(filled.astype(int)) <= 0).all()
        num_missing = result.shortfall_wait[component] + result.shortfall_no_wait[component]
        assert filled.sum() == num_requested[component] - num_missing
    for leaf in jax.tree.leaves(result.instances):
        assert not leaf[~result.filled].any()
    missing_rows = select_rows(result.solutions, ~result.filled)
    assert_same(missing_rows, jax.vmap(lambda _: unknown_solution(HORIZON, 2))(missing_rows.status))


def test_infeasible_boards_are_missing(generation):
    first_result, second_result, _ = generation[1]
    num_missing = first_result.shortfall_wait + first_result.shortfall_no_wait
    assert num_missing.tolist() == [0, 0, 0, 5, 11]
    assert first_result.candidates[3:].tolist() == [0, 0]
    assert second_result.shortfall_wait[[0, 2]].tolist() == [5, 0]
    assert second_result.shortfall_no_wait.tolist() == [0, 0, 0, 0, 0]
    assert second_result.candidates[0] == second_result.candidates[2] == MAX_CANDIDATES
    # One of the 24 boards never gets a slot, so it does not count as a duplicate.
    assert second_result.solvable[0] == MAX_CANDIDATES
    assert 0.8 * MAX_CANDIDATES < second_result.duplicates[0] < MAX_CANDIDATES - 23


@jax.jit
def _solve_candidates(key, size, num_holes, num_agents):
    """Return the first candidates of a stream with their solutions."""
    for number in (size, num_holes, num_agents):
        key = jax.random.fold_in(key, number)
    kind = [jnp.full(MAX_CANDIDATES, number, jnp.int32) for number in (size, num_holes, num_agents)]
    numbers = jnp.arange(MAX_CANDIDATES, dtype=jnp.int32)
    shapes = {"max_size": MAX_SIZE, "max_agents": 2}
    codes = draw_codes(jnp.broadcast_to(key, MAX_CANDIDATES), numbers, *kind, **shapes)
    boards = decode_boards(codes, kind[0], kind[2], **shapes)
    return boards, jax.vmap(partial(jaxlake.solve, horizon=HORIZON))(boards)


def _fill_sequentially(key, kind, quotas):
    """Fill quotas in plain Python, one candidate at a time.

    `quotas` is {needs_wait: {component: boards}} and is reduced in place. Return the candidates,
    the rows of each component, and the counts.
    """
    boards, solutions = jax.tree.map(np.asarray, _solve_candidates(key, *kind))
    rows, seen_boards, counts = {}, set(), dict.fromkeys(COUNTER_NAMES, 0)
    for row in range(MAX_CANDIDATES):
        if not any(sum(components.values()) for components in quotas.values()):
            break
        status = Status(int(solutions.status[row]))
        counts["candidates"] += 1
        counts[{0: "solvable", 1: "unsolvable", 2: "unknown"}[status]] += 1
        if status is not Status.OPTIMAL:
            continue
        board = tuple(leaf[row].tobytes() for leaf in (boards.holes, boards.starts, boards.goals))
        if board in seen_boards:
            counts["duplicates"] += 1
            continue
        for component, quota in quotas[bool(solutions.needs_wait[row])].items():
            if quota:
                quotas[bool(solutions.needs_wait[row])][component] -= 1
                rows.setdefault(component, []).append(row)
                seen_boards.add(board)
                break
    return boards, rows, counts


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_generate_equals_sequential_candidates(generation, index):
    result, params = generation[1][index], jax.tree.map(np.asarray, MIXTURES[index])
    holes = np.floor(params.hole_ratio.astype(float) * params.size**2 + 1e-4).astype(int)
    kinds = list(zip(params.size.tolist(), holes.tolist(), params.num_agents.tolist(), strict=True))
    for kind in set(kinds):
        components = [
            component
            for component, kind_of_component in enumerate(kinds)
            if kind_of_component == kind
        ]
        if kind[0] > MAX_SIZE or kind[1] + 2 * kind[2] > kind[0] ** 2:
            continue
        quotas = {
            True: {component: int(result.requested_wait[component]) for component in components},
            False: {
                component: int(result.requested_no_wait[component]) for component in components
            },
        }
        boards, rows, counts = _fill_sequentially(jax.random.key(7), kind, quotas)
        for component in components:
            assert {name: getattr(result, name)[component] for name in COUNTER_NAMES} == counts
            assert result.shortfall_wait[component] == quotas[True][component]
            assert result.shortfall_no_wait[component] == quotas[False][component]
            filled_mask = (result.component == component) & result.filled
            for name in ("holes", "starts", "goals"):
                actual, expected = getattr(result.instances, name), getattr(boards, name)
                assert (actual[filled_mask] == expected[rows.get(component, [])]).all()


@pytest.mark.slow
def test_boards_are_independent_of_the_batch_size(generation):
    for index in (0, 1):
        # Under jit, a component beyond `max_size` is not rejected but counted as shortfall.
        program = jax.jit(partial(generate, n=NUM_BOARDS, batch_size=7, **SETTINGS))
        assert_same(generation[1][index], program(jax.random.key(7), MIXTURES[index]))


@pytest.mark.slow
def test_vmapped_generate_equals_single_calls(generation):
    jit_generate, results = generation
    keys = jnp.stack([jax.random.key(8), jax.random.key(7)])
    products = jax.vmap(jax.vmap(jit_generate, (None, 0)), (0, None))(keys, STACKED_PARAMS)
    assert products.filled.shape == (2, 3, NUM_BOARDS)
    for row, result in enumerate(results):
        assert_same(result, jax.tree.map(lambda leaf, row=row: leaf[1, row], products))
    assert_same(jit_generate(keys[0], MIXTURES[0]), jax.tree.map(lambda leaf: leaf[0, 0], products))


def test_boards_beyond_the_horizon_are_counted(generation):
    first_result, second_result, _ = generation[1]
    assert first_result.unsolvable[1] > 0
    assert second_result.unknown[3] > 0
    for result in generation[1]:
        assert (result.solvable + result.unsolvable + result.unknown == result.candidates).all()
        assert (result.solutions.makespan <= HORIZON).all()


@pytest.mark.slow
def test_components_may_differ_in_agents():
    params = lake_params([4, 4, 3], [0.2, 0.1, 0.3], [0.5, 0.25, 0.5], [2, 3, 3])
    sizes = {"max_size": 4, "max_agents": 3, "horizon": 16}
    result = generate(jax.random.key(0), params, 24, batch_size=64, max_candidates=2000, **sizes)
    assert result.filled.all()
    for component, instance, solution in _select_filled(result):
        grid = jaxlake.format_grid(instance)
        assert len(oracles.parse_board(grid).starts) == int(params.num_agents[component])
        cost, needs_wait = oracles.least_sum_of_costs(grid)
        assert (solution.sum_of_costs, solution.needs_wait) == (cost, needs_wait)
        plan = solution.plan[:, : int(params.num_agents[component])]
        assert oracles.check_plan(grid, plan.tolist()).sum_of_costs == cost
    wait_counts = np.bincount(result.component[result.solutions.needs_wait], minlength=3)
    assert (wait_counts == result.requested_wait).all()


@pytest.mark.slow
def test_generate_is_equal_on_several_devices(generation, tmp_path):
    program = """
import json, sys
import jax, numpy as np
from jaxlake import lake_params
from jaxlake.generator import generate_sharded
fields, n, settings = json.load(sys.stdin)
assert len(jax.devices()) == 8
def generate(key, params):
    return generate_sharded(key, params, n, batch_size=100, **settings)
# Under jit, a component beyond `max_size` is not rejected but counted as shortfall.
result = jax.jit(generate)(jax.random.key(7), lake_params(**fields))
assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(result))
np.savez(sys.argv[1], *jax.tree.leaves(result))
"""
    fields = {name: leaf.tolist() for name, leaf in vars(MIXTURES[0]).items()}
    file = tmp_path / "result.npz"
    subprocess.run(
        [sys.executable, "-c", program, str(file)],
        input=json.dumps([fields, NUM_BOARDS, SETTINGS]),
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        text=True,
        check=True,
        timeout=300,
    )
    with np.load(file) as arrays:
        assert_same(jax.tree.leaves(generation[1][0]), list(arrays.values()))


@pytest.mark.parametrize("num_devices", [1, 3, 8, 257, 5000])
def test_devices_share_a_batch_equally(num_devices):
    with pytest.raises(ValueError, match="devices must have at least 1 device"):
        generate_sharded(jax.random.key(0), MIXTURES[0], 4, devices=())
    batch_size = _sharded_batch_size(None, 1 << 24, num_devices, limits_for("gpu"))
    assert batch_size % num_devices == 0
    assert 1 <= batch_size <= 1 << 20
    batch_size = _sharded_batch_size(2 * num_devices + 1, 8, num_devices, limits_for("cpu"))
    assert batch_size == 3 * num_devices


def _make_unchecked_params(**fields):
    """Return parameters that `lake_params` would reject."""
    return replace(lake_params(3), **{name: jnp.array([value]) for name, value in fields.items()})


@pytest.mark.parametrize(
    ("changes", "error_type", "message"),
    [
        ({"n": 2.5}, TypeError, "n must be an integer, got 2.5"),
        ({"n": "5"}, TypeError, "n must be an integer, got '5'"),
        ({"n": 0}, ValueError, r"n must be in \[1, .*\], got 0"),
        ({"max_size": 33}, ValueError, r"max_size must be in \[2, 32\], got 33"),
        ({"max_agents": 6}, ValueError, r"max_agents must be in \[1, 5\], got 6"),
        ({"batch_size": 0}, ValueError, "batch_size must be in .*, got 0"),
        ({"max_candidates": -1}, ValueError, "max_candidates must be in .*, got -1"),
        (
            {"params": STACKED_PARAMS},
            ValueError,
            r"params.size must have shape \(S,\), .*, got \(3, 5\)",
        ),
        ({"key": MIXTURES[0]}, TypeError, r"key must be a typed key .* got LakeParams"),
        ({"params": jax.random.key(0)}, TypeError, "params must be a LakeParams, got .*Array"),
        (
            {"params": _make_unchecked_params(hole_ratio=np.nan)},
            ValueError,
            r"params.hole_ratio must be in \[0, 1\], got nan",
        ),
        (
            {"params": _make_unchecked_params(wait_ratio=2.0)},
            ValueError,
            r"params.wait_ratio must be in \[0, 1\], got 2.0",
        ),
        (
            {"params": _make_unchecked_params(num_agents=-1)},
            ValueError,
            r"params.num_agents must be in \[1, 5\], got -1",
        ),
        ({"key": jax.random.PRNGKey(0)}, TypeError, "typed key"),
        ({"max_candidates": 1.5}, TypeError, "max_candidates must be an integer, got 1.5"),
        ({"horizon": "64"}, TypeError, "horizon must be an integer, got '64'"),
        ({"horizon": 5000}, ValueError, r"horizon must be in \[1, 4096\], got 5000"),
        ({"part": (0.5, 2)}, TypeError, "part must be two integers, got 0.5 of 2"),
        (
            {"key": jax.random.split(jax.random.key(0))},
            ValueError,
            r"key must have shape \(\), got \(2,\)",
        ),
    ],
)
def test_generate_names_invalid_arguments(changes, error_type, message):
    arguments = {"key": jax.random.key(0), "params": jaxlake.lake_params(3), "n": 4, "max_size": 3}
    with pytest.raises(error_type, match=message):
        jaxlake.generate(**(arguments | changes))


def test_generate_infers_padding_and_warns_of_missing_boards():
    params = lake_params([3, 3, 9], hole_ratio=[0.2, 1.0, 0.0], data_ratio=[1, 1, 0])
    # test_compilations.py compiles the solver for the same shapes.
    options = {"horizon": 8, "batch_size": 32, "max_candidates": 64, "part": [0, 1]}
    with pytest.warns(UserWarning, match="^generate: 4 of 8 boards could not be made") as record:
        result = jaxlake.generate(jax.random.key(0), params, np.int64(8), **options)
    assert len(record) == 1
    assert result.instances.holes.shape == (8, 3, 3)
    assert result.instances.agent_mask.shape == (8, 2)
    assert result.shortfall_no_wait.tolist() == [0, 4, 0]
    assert (np.asarray(result.solutions.status) == np.where(result.filled, 0, Status.UNKNOWN)).all()
    assert ((np.asarray(result.solutions.sum_of_costs) < 0) == ~np.asarray(result.filled)).all()


def test_default_horizon_follows_the_size():
    assert [default_horizon(size) for size in (2, 10, 11, 16, 17, 32)] == [64, 64, 96, 96, 160, 160]
    generate_shapes = partial(generate, params=lake_params(3), n=2, max_size=11)
    assert jax.eval_shape(generate_shapes, jax.random.key(0)).solutions.plan.shape == (2, 96, 2)
