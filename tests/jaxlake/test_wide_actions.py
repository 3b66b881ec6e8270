"""Numbers that int32 can't hold are no actions, though JAX would narrow them to some."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxlake
from jaxlake import Failure
from jaxlake.board.dynamics import as_actions
from jaxlake.environment import split_joint_action

BOARD = jaxlake.parse_grid(["S F G", "s H F", "g F F"])
WIDE = [2**32 + 4, -(2**32) + 1, 2**40, 2**63 - 1]


@pytest.mark.parametrize("wide", WIDE)
def test_a_wide_number_stays_none(wide: int):
    narrowed = as_actions(np.array([wide, 3]))
    assert narrowed.dtype == jnp.int32
    assert int(narrowed[1]) == 3
    assert not 0 <= int(narrowed[0]) < 5
    assert int(as_actions(np.uint64(2**64 - 1))) == 2**31 - 1
    assert split_joint_action(np.int64(wide), 2).tolist() == [5, 5]


@pytest.mark.parametrize("wide", WIDE)
def test_a_plan_with_one_leads_off_the_board(wide: int):
    # The first agent would reach its goal by RIGHT and RIGHT.
    plan = np.array([[wide, 2], [4, 0]])
    outcome = jaxlake.verify(BOARD, plan, parsed=jnp.bool_(True))
    found = tuple(map(int, (outcome.failure, outcome.agent, outcome.time)))
    assert found == (Failure.OFF_BOARD, 0, 0)
    plan[0, 0] = 4
    assert bool(jaxlake.verify(BOARD, plan, parsed=jnp.bool_(True)).valid)
