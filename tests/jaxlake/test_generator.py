"""Requests filled by rejection: quotas, determinism, shortfalls."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxlake
from jaxlake import Request, Status
from tests import oracles


def _request(size, hole_ratio, wait_ratio, count):
    return Request(
        size=jnp.asarray(size, jnp.int32),
        hole_ratio=jnp.asarray(hole_ratio, jnp.float32),
        wait_ratio=jnp.asarray(wait_ratio, jnp.float32),
        count=jnp.asarray(count, jnp.int32),
    )


@pytest.fixture(scope="module")
def small():
    """Generate up to 48 boards in padding for 6x6, and how often that was traced."""
    traces = []

    def counted(key, request):
        traces.append(1)
        return jaxlake.generate(
            key, request, capacity=48, max_size=6, horizon=32, batch_size=64, max_candidates=5_000
        )

    return jax.jit(counted), traces


def _filled(generated):
    count = int(generated.filled.sum())
    assert np.asarray(generated.filled)[:count].all()
    pairs = jax.tree.map(np.asarray, (generated.instances, generated.solutions))
    return [jax.tree.map(lambda leaf, i=i: leaf[i], pairs) for i in range(count)]


REQUESTS = [
    (3, 0.3, 0.25, 16),
    (4, 0.1, 0.0, 48),
    (5, 0.5, 1.0, 9),
    (6, 0.2, 0.5, 31),
    (2, 0.0, 0.0, 6),
]


@pytest.mark.parametrize(("size", "hole_ratio", "wait_ratio", "count"), REQUESTS)
def test_boards_fit_the_request_and_carry_their_optimum(small, size, hole_ratio, wait_ratio, count):
    generate, _ = small
    result = generate(jax.random.key(7), _request(size, hole_ratio, wait_ratio, count))
    slots = _filled(result)
    assert len(slots) == count
    assert int(result.shortfall_wait) == int(result.shortfall_no_wait) == 0
    waits = 0
    for instance, solution in slots:
        grid = jaxlake.format_grid(instance)
        board = oracles.read(grid)
        assert board.size == size
        assert len(board.free) == size * size - int(hole_ratio * size * size + 1e-6)
        assert len({*board.starts, *board.goals}) == 4
        again = jaxlake.parse_grid(grid, max_size=6)
        for made, read in zip(jax.tree.leaves(instance), jax.tree.leaves(again), strict=True):
            assert made.dtype == read.dtype
            assert (made == read).all()
        cost, needs_wait = oracles.least_sum_of_costs(grid)
        assert Status(int(solution.status)) is Status.OPTIMAL
        assert (solution.sum_of_costs, solution.needs_wait) == (cost, needs_wait)
        assert oracles.check(grid, solution.plan.tolist()).sum_of_costs == cost
        waits += needs_wait
    assert waits == int(wait_ratio * count + 0.5)
    assert len({tuple(jaxlake.format_grid(instance)) for instance, _ in slots}) == count


def test_new_requests_trace_nothing(small):
    generate, traces = small
    for request in REQUESTS:
        generate(jax.random.key(0), _request(*request))
    assert len(traces) == 1


def test_the_key_decides_and_the_batch_size_does_not():
    filled, gives_up = _request(5, 0.4, 0.3, 20), _request(3, 0.0, 1.0, 24)
    generators = [
        jax.jit(
            partial(
                jaxlake.generate,
                capacity=24,
                max_size=5,
                horizon=32,
                batch_size=batch_size,
                max_candidates=300,
            )
        )
        for batch_size in (64, 7, 1000)
    ]
    for request, shortfall in ((filled, False), (gives_up, True)):
        reference, *others = (generate(jax.random.key(1), request) for generate in generators)
        assert (int(reference.shortfall_wait) > 0) == shortfall
        assert (int(reference.candidates) == 300) == shortfall
        for other in others:
            for x, y in zip(jax.tree.leaves(reference), jax.tree.leaves(other), strict=True):
                assert x.dtype == y.dtype
                assert (np.asarray(x) == np.asarray(y)).all()
        another_key = generators[0](jax.random.key(2), request)
        assert (reference.instances.starts != another_key.instances.starts).any()


def test_configurations_can_be_vmapped(small):
    generate, _ = small
    keys = jax.random.split(jax.random.key(3), 3)
    rows = [(3, 0.3, 0.25, 8), (5, 0.2, 0.5, 12), (6, 0.5, 0.0, 20)]
    together = jax.jit(jax.vmap(generate))(keys, _request(*zip(*rows, strict=True)))
    for i, row in enumerate(rows):
        alone = generate(keys[i], _request(*row))
        for x, y in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            assert (np.asarray(x[i]) == np.asarray(y)).all()


def test_what_cannot_be_filled_is_reported_by_kind(small):
    generate, _ = small
    no_waits_on_2x2 = generate(jax.random.key(0), _request(2, 0.0, 0.5, 40))
    missing = (int(no_waits_on_2x2.shortfall_no_wait), int(no_waits_on_2x2.shortfall_wait))
    kept = np.asarray(no_waits_on_2x2.filled).sum()
    assert sum(missing) + kept == 40
    assert missing[0] >= 0
    assert missing[1] > 0
    assert int(no_waits_on_2x2.candidates) == 5_000
    # There are 24 ways to place two starts and two goals on the four cells of a 2x2 board.
    assert kept <= 24
    assert int(no_waits_on_2x2.duplicates) > 4_000


def test_counts_of_candidates_add_up(small):
    generate, _ = small
    result = generate(jax.random.key(5), _request(6, 0.5, 0.2, 30))
    by_status = int(result.solvable) + int(result.unsolvable) + int(result.unknown)
    assert by_status == int(result.candidates)
    assert int(result.solvable) >= 30
    assert int(result.unsolvable) > 0


def test_boards_beyond_the_horizon_are_counted_and_not_used():
    result = jax.jit(
        partial(jaxlake.generate, capacity=8, max_size=6, horizon=3, max_candidates=256)
    )(jax.random.key(0), _request(6, 0.2, 0.0, 8))
    assert int(result.unknown) > 0
    assert (np.asarray(result.solutions.makespan)[np.asarray(result.filled)] <= 3).all()


def test_more_boards_than_slots_are_a_shortfall(small):
    generate, _ = small
    result = generate(jax.random.key(0), _request(5, 0.2, 0.0, 60))
    assert np.asarray(result.filled).all()
    assert int(result.shortfall_no_wait) == 12


@pytest.mark.parametrize("request_", [(3, 0.7, 0.0, 4), (7, 0.1, 0.0, 4), (1, 0.0, 0.0, 4)])
def test_an_infeasible_request_ends_at_once_and_is_all_shortfall(small, request_):
    generate, _ = small
    result = generate(jax.random.key(0), _request(*request_))
    assert int(result.candidates) == 0
    assert not np.asarray(result.filled).any()
    assert int(result.shortfall_no_wait) == 4


def test_starts_favour_no_cell_over_its_mirror_images(small):
    generate, _ = small
    starts = np.zeros((4, 4))
    boards = 0
    for seed in range(40):
        result = generate(jax.random.key(seed), _request(4, 0.0, 0.0, 48))
        for agent in range(2):
            np.add.at(starts, tuple(np.asarray(result.instances.starts)[:, agent].T), 1)
        boards += 48
    # A board and its mirror images need the same waits, so cells that the symmetries of the square
    # exchange must come equally often (chi-square, 3 degrees of freedom, p = 1e-4: 21.1).
    corners = starts[[0, 0, 3, 3], [0, 3, 0, 3]]
    middle = starts[1:3, 1:3].reshape(-1)
    for orbit in (corners, middle):
        assert ((orbit - orbit.mean()) ** 2 / orbit.mean()).sum() < 21.1
    assert starts.sum() == 2 * boards


@pytest.mark.parametrize(
    ("size", "hole_ratio", "holes"),
    [(10, 0.3, 30), (10, 0.29, 29), (3, 0.5, 4), (7, 0.35, 17), (10, 0.07, 7), (5, 0.0, 0)],
)
def test_hole_count_is_floored_without_float_error(size, hole_ratio, holes):
    count = jaxlake.hole_count(size, hole_ratio)
    assert int(count) == holes
    assert count.dtype == jnp.int32


def test_hole_count_is_exact_for_every_hundredth_and_size():
    hundredths = np.arange(101)
    sizes = np.arange(2, 11)[:, None]
    assert (jaxlake.hole_count(sizes, hundredths / 100) == hundredths * sizes**2 // 100).all()


def test_infeasible_requests_are_explained():
    assert jaxlake.infeasibility(3, 0.5, 2) is None
    assert jaxlake.infeasibility(3, 0.5, 3) == (
        "a 3x3 board with hole_ratio 0.5 has 4 holes and 5 free cells, "
        "but 3 agents need 6 for their starts and goals"
    )
    assert jaxlake.infeasibility(1, 0.0, 1).startswith("size: got 1")
    assert jaxlake.infeasibility(3, 1.5, 1).startswith("hole_ratio: got 1.5")
    assert jaxlake.infeasibility(3, float("nan"), 1).startswith("hole_ratio: got nan")
    assert jaxlake.infeasibility(3, 0.1, 0).startswith("num_agents: got 0")


def test_static_arguments_out_of_range_are_named():
    request = _request(3, 0.1, 0.0, 4)
    for name in ("capacity", "batch_size"):
        options = {"capacity": 4, "batch_size": 8} | {name: 0}
        with pytest.raises(ValueError, match=f"{name}: got 0"):
            jaxlake.generate(jax.random.key(0), request, **options)
