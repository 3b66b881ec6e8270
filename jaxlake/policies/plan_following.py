"""Policies that compute one plan at the start of an episode, and follow it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxlake.board.dynamics import Action
from jaxlake.board.instance import Instance
from jaxlake.runtime.batch_axes import merge_batch_axes
from jaxlake.solver import DEFAULT_HORIZON, solve
from jaxlake.solver.bitboard import cell_numbers, pack_rows
from jaxlake.solver.certificates import plan_in_order
from jaxlake.solver.space_time import ABSENT, batch_major_actions, path_actions, search_buffers

Planner = Callable[[jax.Array, Instance], jax.Array]
"""Function (key, instance) -> plan, int8 (T, K); negative entries mean WAIT."""


@dataclass(frozen=True)
class PlanFollowingPolicy:
    """Policy that follows the plan of a planner; agents wait after its last step.

    It never replans. If a conflict policy blocks an agent, the other agents continue their plans.
    """

    planner: Planner

    def start(self, key: jax.Array, instance: Instance) -> jax.Array:
        """Return the plan, int8 (T, K)."""
        plan = jnp.asarray(self.planner(key, instance), jnp.int8)
        return jnp.maximum(plan, jnp.int8(Action.WAIT))

    def act(
        self, key: jax.Array, instance: Instance, positions: jax.Array, time: jax.Array, memory: Any
    ) -> tuple[jax.Array, jax.Array]:
        """See `JointPolicy.act`."""
        T = memory.shape[0]
        actions = memory[jnp.minimum(time, T - 1)]
        return jnp.where(time < T, actions, jnp.int8(Action.WAIT)), memory


@cache
def optimal_policy(horizon: int = DEFAULT_HORIZON) -> PlanFollowingPolicy:
    """Return a policy that follows the plan of `solve`; without a plan, all agents wait."""
    return PlanFollowingPolicy(lambda key, instance: solve(instance, horizon=horizon).plan)


@cache
def prioritised_policy(horizon: int = DEFAULT_HORIZON) -> PlanFollowingPolicy:
    """Return a policy with prioritised planning (Erdmann and Lozano-Perez 1987).

    Agents plan in index order, without backtracking. If an agent finds no path within the horizon,
    it and all later agents wait at their starts.
    """
    plan_batch = merge_batch_axes(partial(_plan_batch, horizon=horizon))

    def plan(key: jax.Array, instance: Instance) -> jax.Array:
        return plan_batch(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], instance))[0]

    return PlanFollowingPolicy(plan)


def _plan_batch(instances: Instance, horizon: int) -> jax.Array:
    """Return prioritised plans of boards (B, ...), int8 (B, horizon, K)."""
    free = pack_rows(~instances.holes)
    num_rows, num_boards = free.shape
    starts, goals = (
        jnp.where(instances.agent_mask, cell_numbers(positions), jnp.int16(ABSENT)).T
        for positions in (instances.starts, instances.goals)
    )
    latest = jnp.full(starts.shape, horizon, jnp.int16)
    buffers = search_buffers(horizon, num_rows, num_boards, levels=1)
    plans, _ = plan_in_order(free, starts, goals, latest, buffers)
    return batch_major_actions(path_actions(plans.paths))
