"""Prioritised planning as a policy: agents plan in turn, around the paths of those before."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxlake.batch_axes import merge_batch_axes
from jaxlake.instance import Instance
from jaxlake.policies.plan_following import PlanFollowingPolicy
from jaxlake.solver import DEFAULT_HORIZON
from jaxlake.solver.bitboard import cell_numbers, pack_rows
from jaxlake.solver.prioritised_paths import plan_in_order
from jaxlake.solver.space_time import NOBODY, actions_of, search_buffers


@dataclass(frozen=True)
class PrioritisedPlanner:
    """One space-time search per agent (Erdmann and Lozano-Perez 1987), without backtracking.

    Agents that find no path within the horizon wait at their starts, and so do all after them;
    `shuffled` draws the order at random instead of by index.
    """

    horizon: int = DEFAULT_HORIZON
    shuffled: bool = False

    def __call__(self, key: jax.Array, instance: Instance) -> jax.Array:
        """Plan int8 (horizon, K)."""
        K = instance.agent_mask.shape[-1]
        order = jax.random.permutation(key, K) if self.shuffled else jnp.arange(K)
        # Vmapped, the planning of one board is the planning of one batch.
        planned = merge_batch_axes(lambda boards, orders: _plan_batch(boards, orders, self.horizon))
        return planned(*jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (instance, order)))[0]


def prioritised_policy(
    horizon: int = DEFAULT_HORIZON, *, shuffled: bool = False
) -> PlanFollowingPolicy:
    """Plan with priorities at the start, then carry the plan out."""
    return PlanFollowingPolicy(PrioritisedPlanner(horizon, shuffled))


def _plan_batch(instances: Instance, orders: jax.Array, horizon: int) -> jax.Array:
    """Plans int8 (B, horizon, K) of boards (B, ...) whose agents plan in the orders int (B, K)."""
    free = pack_rows(~instances.holes)
    rows, boards = free.shape
    mask = instances.agent_mask

    def ranked(places: jax.Array) -> jax.Array:
        cells = jnp.where(mask, cell_numbers(places), jnp.int16(NOBODY))
        return jnp.take_along_axis(cells, orders, axis=1).T

    starts, goals = ranked(instances.starts), ranked(instances.goals)
    latest = jnp.full(starts.shape, horizon, jnp.int16)
    buffers = search_buffers(horizon, rows, boards, levels=1)
    plans, _ = plan_in_order(free, starts, goals, latest, buffers)
    by_rank = jnp.moveaxis(actions_of(plans.paths), -1, 0)
    ranks = jnp.argsort(orders, axis=1)
    return jnp.take_along_axis(by_rank, ranks[:, :, None], axis=1).swapaxes(1, 2)
