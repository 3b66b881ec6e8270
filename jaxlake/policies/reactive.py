"""Policies without planning: random actions, and individual shortest paths."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.distance_fields import UNREACHABLE, distances
from jaxlake.board.dynamics import ACTION_BITS, Action, open_moves, shift_by_action
from jaxlake.board.instance import Instance

_WAIT_BIT = np.uint8(ACTION_BITS[Action.WAIT])
_ALL_BITS = np.uint8(ACTION_BITS.sum())


def choose_move(key: jax.Array, moves: jax.Array) -> jax.Array:
    """Draw one action per agent, int8 (K,), from bit sets, uint8 (K,); WAIT if a set is empty."""
    words = jax.random.bits(key, moves.shape, jnp.uint32) >> 16
    count = jax.lax.population_count(moves).astype(jnp.uint32)
    remaining = ((words * count) >> 16).astype(jnp.int8)
    actions = jnp.zeros(moves.shape, jnp.int8)
    # An axis of actions would prevent vectorisation on CPUs.
    for action, bit in enumerate(ACTION_BITS):
        allowed = (moves & bit) != 0
        actions = jnp.where(allowed & (remaining == 0), jnp.int8(action), actions)
        remaining = remaining - allowed.astype(jnp.int8)
    return actions


@dataclass(frozen=True)
class RandomPolicy:
    """Policy that draws independent uniform actions."""

    masked: bool = True  # exclude moves into holes and off the board

    def start(self, key: jax.Array, instance: Instance) -> jax.Array | None:
        """Return the allowed moves per cell, uint8 (N, N), or None if not masked."""
        return open_moves(instance) if self.masked else None

    def act(
        self, key: jax.Array, instance: Instance, positions: jax.Array, time: jax.Array, memory: Any
    ) -> tuple[jax.Array, jax.Array | None]:
        """See `JointPolicy.act`."""
        if memory is None:
            return choose_move(key, jnp.full(len(positions), _ALL_BITS)), memory
        moves = memory[positions[:, 0], positions[:, 1]]
        return choose_move(key, jnp.where(instance.agent_mask, moves, _WAIT_BIT)), memory


@dataclass(frozen=True)
class ShortestPathPolicy:
    """Policy that moves each agent along a shortest path, ignoring the others.

    Ties are broken at random. Agents at their goals or with unreachable goals wait.
    """

    def start(self, key: jax.Array, instance: Instance) -> jax.Array:
        """Return the moves towards each agent's goal per cell, uint8 (K, N, N)."""
        fields = jax.vmap(distances, (None, 0))(instance.holes, instance.goals)
        allowed, far = open_moves(instance), jnp.int16(UNREACHABLE)
        distances_after = [
            jnp.where((allowed & bit) != 0, field, far)
            for bit, field in zip(ACTION_BITS, shift_by_action(fields, far), strict=True)
        ]
        # WAIT has the distance of the cell itself; a move towards the goal is 1 shorter.
        nearest = jnp.min(jnp.stack(distances_after), axis=0)
        best = jnp.zeros(fields.shape, jnp.uint8)
        for bit, distance in zip(ACTION_BITS, distances_after, strict=True):
            best |= jnp.where(distance == nearest, bit, jnp.uint8(0))
        stays = (nearest >= UNREACHABLE) | ~instance.agent_mask[:, None, None]
        return jnp.where(stays, _WAIT_BIT, best)

    def act(
        self, key: jax.Array, instance: Instance, positions: jax.Array, time: jax.Array, memory: Any
    ) -> tuple[jax.Array, jax.Array]:
        """See `JointPolicy.act`."""
        agents = jnp.arange(len(positions))
        return choose_move(key, memory[agents, positions[:, 0], positions[:, 1]]), memory
