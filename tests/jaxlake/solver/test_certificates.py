"""What prioritised planning settles is what both orders of the agents give, planned apart."""

from functools import partial

import jax
import numpy as np
import pytest

from jaxlake.solver import Widths, certificates, widths_for
from jaxlake.solver.certificates import PreparedBoards, PrioritisedPlans
from jaxlake.solver.space_time import NEVER, search_buffers
from tests.jaxlake.solver.boards import instances, random_grids

T = 24


@pytest.fixture(scope="module", params=[2, 4])
def boards(request: pytest.FixtureRequest) -> PreparedBoards:
    grids = random_grids(5, 400, sizes=(4, 6), agents=(request.param,), holes=0.35)
    prepare = jax.jit(partial(certificates.prepare_boards, widths=widths_for()))
    return jax.device_get(prepare(instances(grids, 6, request.param)))


@pytest.fixture(scope="module")
def in_both_orders(boards: PreparedBoards) -> tuple[PrioritisedPlans, PrioritisedPlans]:
    """Plan all boards in the first order, then all in the other one."""
    latest = np.full(boards.starts.shape, T, np.int16)
    buffers = search_buffers(T, len(boards.free), boards.free.shape[1], levels=1)
    plan = jax.jit(certificates.plan_in_order)
    one, _ = plan(boards.free, boards.starts, boards.goals, latest, buffers, upwards=False)
    other, _ = plan(
        boards.free, boards.starts[::-1], boards.goals[::-1], latest, buffers, upwards=True
    )
    turned = PrioritisedPlans(other.arrival[::-1], other.paths[::-1])
    return jax.device_get(one), jax.device_get(turned)


def costs(plans: PrioritisedPlans, agents: str) -> np.ndarray:
    """The sum, or the maximum, of the arrivals; NEVER where an agent has no path."""
    arrivals = plans.arrival.astype(int)
    total = arrivals.sum(axis=0) if agents == "sum" else arrivals.max(axis=0)
    return np.where((arrivals < NEVER).all(axis=0), total, NEVER)


def test_the_better_one_of_two_orders_is_kept(
    boards: PreparedBoards,
    in_both_orders: tuple[PrioritisedPlans, PrioritisedPlans],
):
    wanted = (boards.alone < NEVER).all(axis=0)
    widths = Widths(64, 1, 1, 64 << 20)
    best = jax.jit(partial(certificates.prioritise, horizon=T, widths=widths))(boards, wanted)
    best = jax.device_get(best)
    one, other = in_both_orders
    for name, agents, paths in (
        ("sum_of_costs", "sum", best.paths),
        ("makespan", "max", best.makespan_paths),
    ):
        first, second = costs(one, agents), costs(other, agents)
        np.testing.assert_array_equal(
            getattr(best, name)[wanted], np.minimum(first, second)[wanted]
        )
        planned = wanted & (np.minimum(first, second) < NEVER)
        expected = np.where(first <= second, one.paths, other.paths)
        np.testing.assert_array_equal(paths[..., planned], expected[..., planned])
        assert np.sum(planned & (second < first)) > 3  # the second order is of use
    assert np.mean(costs(one, "sum")[wanted] == boards.alone.sum(axis=0)[wanted]) > 0.2


def test_undisturbed_is_what_either_order_lets_go_as_if_alone(
    boards: PreparedBoards, in_both_orders: tuple[PrioritisedPlans, PrioritisedPlans]
):
    wanted = (boards.alone < NEVER).all(axis=0)
    find = jax.jit(partial(certificates.undisturbed, horizon=T, widths=widths_for()))
    found = np.asarray(find(boards, wanted))
    first, second = (costs(plans, "sum") == boards.alone.sum(axis=0) for plans in in_both_orders)
    np.testing.assert_array_equal(found, wanted & (first | second))
    assert np.sum(wanted & second & ~first) > 3
    assert np.sum(wanted & ~found) > 3
