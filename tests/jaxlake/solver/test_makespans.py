"""Trees with a bound on the makespan: agents that have time take it where they then meet nobody."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

from jaxlake.solver import widths_for
from jaxlake.solver.certificates import prepare_boards
from jaxlake.solver.space_time import arrivals_of
from jaxlake.solver.trees.node import TreeQueries
from jaxlake.solver.trees.search import search_trees
from tests.jaxlake.solver.boards import instances

HORIZON = 12

CROSSING = ["H H S H H", "H H F H H", "s F F F g", "H H F H H", "H H G H H"]
"""Both agents would be in the middle after two steps."""

ON_THE_WAY = ["H H S H H", "H H F H H", "H s g H H", "H H F H H", "H H G H H"]
"""The second agent is one step from its goal, through which the first one passes."""


_search = jax.jit(partial(search_trees, horizon=HORIZON, lanes=4))


def _ask(grid, total, first, last):
    batch = instances([grid], 5, 2)
    boards = prepare_boards(batch, widths_for())
    queries = TreeQueries(
        *boards[:3],
        alone=boards.alone,
        stairs=jnp.zeros((2, 1, 1), jnp.uint32),
        pair_costs=jnp.zeros((1, 1), jnp.int16),
        total=jnp.array([total]),
        waits=jnp.array([True]),
        first=jnp.array([first], jnp.int16),
        last=jnp.array([last], jnp.int16),
        budget=jnp.array([1000]),
        wanted=jnp.array([True]),
    )
    answers = _search(queries)
    return answers, arrivals_of(answers.paths)[:, 0].tolist()


@pytest.mark.parametrize(("grid", "bound"), [(CROSSING, 5), (ON_THE_WAY, 4)])
def test_agents_with_time_to_spare_let_others_pass_without_a_split(grid, bound):
    answers, arrivals = _ask(grid, False, bound, bound)
    assert answers.found[0]
    assert answers.expansions[0] == 2  # each agent was planned once, and nobody again
    assert arrivals[0] == 4
    assert 3 <= arrivals[1] <= bound


def test_agents_without_time_to_spare_take_the_shortest_way():
    answers, _ = _ask(CROSSING, False, 4, 4)
    assert not answers.found[0]
    assert not answers.gave_up[0]
    answers, arrivals = _ask(CROSSING, False, 4, 9)
    assert answers.bound[0] == 5
    assert max(arrivals) == 5


def test_a_bound_on_the_sum_of_costs_lets_nobody_wait_for_free():
    answers, arrivals = _ask(CROSSING, True, 8, 20)
    assert answers.bound[0] == sum(arrivals) == 9
    assert answers.expansions[0] > 2
