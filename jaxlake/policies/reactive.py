"""Policies that plan nothing: random actions, and shortest paths as if each agent were alone."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxlake.board.distance_fields import UNREACHABLE, distances
from jaxlake.board.dynamics import Action, action_mask, target_cells
from jaxlake.board.instance import Instance


def choose_allowed(key: jax.Array, allowed: jax.Array) -> jax.Array:
    """Choose one action per agent, int8 (K,), of those that bool (K, 5) allows, WAIT if none."""
    words = jax.random.bits(key, allowed.shape[:1], jnp.uint32) >> 16
    count = jnp.sum(allowed, axis=-1, dtype=jnp.uint32)
    wanted = ((words * count) >> 16).astype(jnp.int32)
    rank = jnp.cumsum(allowed, axis=-1, dtype=jnp.int32) - 1
    chosen = allowed & (rank == wanted[:, None])
    numbers = jnp.arange(len(Action), dtype=jnp.int8)
    return jnp.sum(jnp.where(chosen, numbers, jnp.int8(0)), axis=-1, dtype=jnp.int8)


@dataclass(frozen=True)
class RandomPolicy:
    """Uniform actions, independent of one another; `masked` leaves out what the board forbids."""

    masked: bool = True

    def start(self, key: jax.Array, instance: Instance) -> None:
        """Remember nothing."""

    def act(
        self, key: jax.Array, instance: Instance, positions: jax.Array, time: jax.Array, memory: Any
    ) -> tuple[jax.Array, None]:
        """See `JointPolicy.act`."""
        allowed = action_mask(instance, positions)
        if not self.masked:
            allowed = jnp.ones_like(allowed)
        return choose_allowed(key, allowed), memory


@dataclass(frozen=True)
class ShortestPathPolicy:
    """Greedy down the agent's own distance field, with ties broken at random.

    Agents at their goals, and agents whose goals can't be reached, wait.
    """

    def start(self, key: jax.Array, instance: Instance) -> jax.Array:
        """Distances of every cell from each agent's goal, int16 (K, N, N)."""
        return jax.vmap(distances, (None, 0))(instance.holes, instance.goals)

    def act(
        self, key: jax.Array, instance: Instance, positions: jax.Array, time: jax.Array, memory: Any
    ) -> tuple[jax.Array, jax.Array]:
        """See `JointPolicy.act`."""
        actions, side = jnp.arange(len(Action), dtype=jnp.int8), instance.size.astype(jnp.int8)
        rows, columns, _ = target_cells(positions[:, :1], positions[:, 1:], actions, side)
        fields = memory[jnp.arange(len(positions))[:, None], rows, columns]
        # WAIT has the distance of the place itself, which a move that is worth it undercuts by 1.
        nearest = jnp.min(fields, axis=-1, keepdims=True)
        best = (fields == nearest) & action_mask(instance, positions)
        lost = nearest[:, 0] >= UNREACHABLE
        return jnp.where(lost, jnp.int8(Action.WAIT), choose_allowed(key, best)), memory
