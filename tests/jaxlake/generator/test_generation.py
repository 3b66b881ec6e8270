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

N, HORIZON, LIMIT, BOARDS = 6, 8, 600, 60
SETTINGS = {"max_size": N, "horizon": HORIZON, "max_candidates": LIMIT}

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
STACKED = jax.tree.map(lambda *leaves: jnp.stack(leaves), *MIXTURES)
COUNTS = ("candidates", "solvable", "unsolvable", "unknown", "duplicates")


@pytest.fixture(scope="module")
def generated():
    """Return a compiled generator and its results for each mixture."""
    compiled = jax.jit(partial(generate, n=BOARDS, batch_size=128, **SETTINGS))
    results = [jax.device_get(compiled(jax.random.key(7), params)) for params in MIXTURES]
    return compiled, results


def _filled_boards(result):
    pairs = jax.tree.map(np.asarray, (result.instances, result.solutions))
    return [
        (int(result.component[i]), *select_rows(pairs, i)) for i in np.flatnonzero(result.filled)
    ]


@pytest.mark.parametrize("case", range(len(MIXTURES)))
def test_boards_match_their_cell_and_optimum(generated, case):
    result, params = generated[1][case], jax.tree.map(np.asarray, MIXTURES[case])
    boards = _filled_boards(result)
    waits = np.zeros((2, params.size.size), int)
    for component, instance, solution in boards:
        grid = jaxlake.format_grid(instance)
        board = oracles.read(grid)
        size = int(params.size[component])
        assert board.size == size
        assert len(board.free) == size**2 - int(
            float(params.hole_ratio[component]) * size**2 + 1e-4
        )
        assert len({*board.starts, *board.goals}) == 2 * int(params.num_agents[component])
        expected = jaxlake.parse_grid(grid, max_size=N)
        assert_same(instance, expected)
        cost, needs_wait = oracles.least_sum_of_costs(grid)
        assert Status(int(solution.status)) is Status.OPTIMAL
        assert (solution.sum_of_costs, solution.needs_wait) == (cost, needs_wait)
        assert oracles.check(grid, solution.plan.tolist()).sum_of_costs == cost
        waits[int(needs_wait), component] += 1
    assert len({tuple(jaxlake.format_grid(instance)) for _, instance, _ in boards}) == len(boards)
    assert (waits[0] == result.requested_no_wait - result.shortfall_no_wait).all()
    assert (waits[1] == result.requested_wait - result.shortfall_wait).all()


@pytest.mark.parametrize("case", range(len(MIXTURES)))
def test_requests_are_split_by_share_in_cell_order(generated, case):
    result, params = generated[1][case], MIXTURES[case]
    requested = result.requested_wait + result.requested_no_wait
    assert requested.sum() == BOARDS
    share = np.asarray(params.data_ratio) / np.asarray(params.data_ratio).sum()
    assert (abs(requested - share * BOARDS) < 1).all()
    waits = np.asarray(params.wait_ratio) * requested
    assert (result.requested_wait == np.floor(waits + 0.5 + 1e-6)).all()
    assert (np.bincount(result.component, minlength=5) == requested).all()
    assert (np.diff(result.component) >= 0).all()
    for component in range(5):
        filled = result.filled[result.component == component]
        assert (np.diff(filled.astype(int)) <= 0).all()
        missing = result.shortfall_wait[component] + result.shortfall_no_wait[component]
        assert filled.sum() == requested[component] - missing
    for leaf in jax.tree.leaves(result.instances):
        assert not leaf[~result.filled].any()
    missing = select_rows(result.solutions, ~result.filled)
    assert_same(missing, jax.vmap(lambda _: unknown_solution(HORIZON, 2))(missing.status))


def test_infeasible_boards_are_missing(generated):
    mixed, tiny, _ = generated[1]
    assert (mixed.shortfall_wait + mixed.shortfall_no_wait).tolist() == [0, 0, 0, 5, 11]
    assert mixed.candidates[3:].tolist() == [0, 0]
    assert tiny.shortfall_wait[[0, 2]].tolist() == [5, 0]
    assert tiny.shortfall_no_wait.tolist() == [0, 0, 0, 0, 0]
    assert tiny.candidates[0] == tiny.candidates[2] == LIMIT
    # One of the 24 boards never gets a slot, so it does not count as a duplicate.
    assert tiny.solvable[0] == LIMIT
    assert 0.8 * LIMIT < tiny.duplicates[0] < LIMIT - 23


@jax.jit
def _solve_candidates(key, size, holes, agents):
    """Return the first candidates of a stream with their solutions."""
    for number in (size, holes, agents):
        key = jax.random.fold_in(key, number)
    kind = [jnp.full(LIMIT, number, jnp.int32) for number in (size, holes, agents)]
    numbers = jnp.arange(LIMIT, dtype=jnp.int32)
    shapes = {"max_size": N, "max_agents": 2}
    codes = draw_codes(jnp.broadcast_to(key, LIMIT), numbers, *kind, **shapes)
    boards = decode_boards(codes, kind[0], kind[2], **shapes)
    return boards, jax.vmap(partial(jaxlake.solve, horizon=HORIZON))(boards)


def _fill_sequentially(key, kind, missing):
    """Fill quotas in plain Python, one candidate at a time.

    `missing` is {needs_wait: {component: boards}} and is reduced in place. Return the candidates,
    the rows of each component, and the counts.
    """
    boards, solutions = jax.tree.map(np.asarray, _solve_candidates(key, *kind))
    rows, seen, counts = {}, set(), dict.fromkeys(COUNTS, 0)
    for row in range(LIMIT):
        if not any(sum(components.values()) for components in missing.values()):
            break
        status = Status(int(solutions.status[row]))
        counts["candidates"] += 1
        counts[{0: "solvable", 1: "unsolvable", 2: "unknown"}[status]] += 1
        if status is not Status.OPTIMAL:
            continue
        board = tuple(leaf[row].tobytes() for leaf in (boards.holes, boards.starts, boards.goals))
        if board in seen:
            counts["duplicates"] += 1
            continue
        for component, quota in missing[bool(solutions.needs_wait[row])].items():
            if quota:
                missing[bool(solutions.needs_wait[row])][component] -= 1
                rows.setdefault(component, []).append(row)
                seen.add(board)
                break
    return boards, rows, counts


@pytest.mark.slow
@pytest.mark.parametrize("case", [0, 1])
def test_generate_equals_sequential_candidates(generated, case):
    result, params = generated[1][case], jax.tree.map(np.asarray, MIXTURES[case])
    holes = np.floor(params.hole_ratio.astype(float) * params.size**2 + 1e-4).astype(int)
    kinds = list(zip(params.size.tolist(), holes.tolist(), params.num_agents.tolist(), strict=True))
    for kind in set(kinds):
        components = [
            component
            for component, kind_of_component in enumerate(kinds)
            if kind_of_component == kind
        ]
        if kind[0] > N or kind[1] + 2 * kind[2] > kind[0] ** 2:
            continue
        missing = {
            True: {component: int(result.requested_wait[component]) for component in components},
            False: {
                component: int(result.requested_no_wait[component]) for component in components
            },
        }
        boards, rows, counts = _fill_sequentially(jax.random.key(7), kind, missing)
        for component in components:
            assert {name: getattr(result, name)[component] for name in COUNTS} == counts
            assert result.shortfall_wait[component] == missing[True][component]
            assert result.shortfall_no_wait[component] == missing[False][component]
            slots = (result.component == component) & result.filled
            for name in ("holes", "starts", "goals"):
                actual, expected = getattr(result.instances, name), getattr(boards, name)
                assert (actual[slots] == expected[rows.get(component, [])]).all()


@pytest.mark.slow
def test_boards_are_independent_of_the_batch_size(generated):
    for number in (0, 1):
        # Under jit, a component beyond `max_size` is not rejected but counted as shortfall.
        program = jax.jit(partial(generate, n=BOARDS, batch_size=7, **SETTINGS))
        assert_same(generated[1][number], program(jax.random.key(7), MIXTURES[number]))


@pytest.mark.slow
def test_vmapped_generate_equals_single_calls(generated):
    compiled, results = generated
    keys = jnp.stack([jax.random.key(8), jax.random.key(7)])
    product = jax.vmap(jax.vmap(compiled, (None, 0)), (0, None))(keys, STACKED)
    assert product.filled.shape == (2, 3, BOARDS)
    for row, result in enumerate(results):
        assert_same(result, jax.tree.map(lambda leaf, row=row: leaf[1, row], product))
    assert_same(compiled(keys[0], MIXTURES[0]), jax.tree.map(lambda leaf: leaf[0, 0], product))


def test_boards_beyond_the_horizon_are_counted(generated):
    mixed, large, _ = generated[1]
    assert mixed.unsolvable[1] > 0
    assert large.unknown[3] > 0
    for result in generated[1]:
        assert (result.solvable + result.unsolvable + result.unknown == result.candidates).all()
        assert (result.solutions.makespan <= HORIZON).all()


@pytest.mark.slow
def test_cells_may_differ_in_agents():
    params = lake_params([4, 4, 3], [0.2, 0.1, 0.3], [0.5, 0.25, 0.5], [2, 3, 3])
    sizes = {"max_size": 4, "max_agents": 3, "horizon": 16}
    result = generate(jax.random.key(0), params, 24, batch_size=64, max_candidates=2000, **sizes)
    assert result.filled.all()
    for component, instance, solution in _filled_boards(result):
        grid = jaxlake.format_grid(instance)
        assert len(oracles.read(grid).starts) == int(params.num_agents[component])
        cost, needs_wait = oracles.least_sum_of_costs(grid)
        assert (solution.sum_of_costs, solution.needs_wait) == (cost, needs_wait)
        plan = solution.plan[:, : int(params.num_agents[component])]
        assert oracles.check(grid, plan.tolist()).sum_of_costs == cost
    waits = np.bincount(result.component[result.solutions.needs_wait], minlength=3)
    assert (waits == result.requested_wait).all()


@pytest.mark.slow
def test_generate_is_equal_on_several_devices(generated, tmp_path):
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
made = jax.jit(generate)(jax.random.key(7), lake_params(**fields))
assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(made))
np.savez(sys.argv[1], *jax.tree.leaves(made))
"""
    fields = {name: leaf.tolist() for name, leaf in vars(MIXTURES[0]).items()}
    file = tmp_path / "made.npz"
    subprocess.run(
        [sys.executable, "-c", program, str(file)],
        input=json.dumps([fields, BOARDS, SETTINGS]),
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        text=True,
        check=True,
        timeout=300,
    )
    with np.load(file) as arrays:
        assert_same(jax.tree.leaves(generated[1][0]), list(arrays.values()))


@pytest.mark.parametrize("devices", [1, 3, 8, 257, 5000])
def test_devices_share_a_batch_equally(devices):
    with pytest.raises(ValueError, match="devices must have at least 1 device"):
        generate_sharded(jax.random.key(0), MIXTURES[0], 4, devices=())
    shared = _sharded_batch_size(None, 1 << 24, devices, limits_for("gpu"))
    assert shared % devices == 0
    assert 1 <= shared <= 1 << 20
    assert _sharded_batch_size(2 * devices + 1, 8, devices, limits_for("cpu")) == 3 * devices


def _make_unchecked_params(**fields):
    """Return parameters that `lake_params` would reject."""
    return replace(lake_params(3), **{name: jnp.array([value]) for name, value in fields.items()})


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"n": 2.5}, TypeError, "n must be an integer, got 2.5"),
        ({"n": "5"}, TypeError, "n must be an integer, got '5'"),
        ({"n": 0}, ValueError, r"n must be in \[1, .*\], got 0"),
        ({"max_size": 33}, ValueError, r"max_size must be in \[2, 32\], got 33"),
        ({"max_agents": 6}, ValueError, r"max_agents must be in \[1, 5\], got 6"),
        ({"batch_size": 0}, ValueError, "batch_size must be in .*, got 0"),
        ({"max_candidates": -1}, ValueError, "max_candidates must be in .*, got -1"),
        ({"params": STACKED}, ValueError, r"params.size must have shape \(S,\), .*, got \(3, 5\)"),
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
def test_generate_names_invalid_arguments(changes, error, message):
    arguments = {"key": jax.random.key(0), "params": jaxlake.lake_params(3), "n": 4, "max_size": 3}
    with pytest.raises(error, match=message):
        jaxlake.generate(**(arguments | changes))


def test_generate_infers_padding_and_warns_of_missing_boards():
    params = lake_params([3, 3, 9], hole_ratio=[0.2, 1.0, 0.0], data_ratio=[1, 1, 0])
    # test_compilations.py compiles the solver for the same shapes.
    options = {"horizon": 8, "batch_size": 32, "max_candidates": 64, "part": [0, 1]}
    with pytest.warns(UserWarning, match="^generate: 4 of 8 boards could not be made") as caught:
        result = jaxlake.generate(jax.random.key(0), params, np.int64(8), **options)
    assert len(caught) == 1
    assert result.instances.holes.shape == (8, 3, 3)
    assert result.instances.agent_mask.shape == (8, 2)
    assert result.shortfall_no_wait.tolist() == [0, 4, 0]
    assert (np.asarray(result.solutions.status) == np.where(result.filled, 0, Status.UNKNOWN)).all()
    assert ((np.asarray(result.solutions.sum_of_costs) < 0) == ~np.asarray(result.filled)).all()


def test_default_horizon_follows_the_size():
    assert [default_horizon(size) for size in (2, 10, 11, 16, 17, 32)] == [64, 64, 96, 96, 160, 160]
    generate_shapes = partial(generate, params=lake_params(3), n=2, max_size=11)
    assert jax.eval_shape(generate_shapes, jax.random.key(0)).solutions.plan.shape == (2, 96, 2)
