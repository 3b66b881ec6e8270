"""Policies that plan nothing: random actions, and shortest paths as if each agent were alone."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.distance_fields import UNREACHABLE, distances
from jaxlake.board.dynamics import ACTION_BITS, Action, after_moves, open_moves
from jaxlake.board.instance import Instance

_WAIT_ONLY = np.uint8(ACTION_BITS[Action.WAIT])
_ALL = np.uint8(ACTION_BITS.sum())


def choose_move(key: jax.Array, moves: jax.Array) -> jax.Array:
    """Choose one action per agent, int8 (K,), of those whose bits uint8 (K,) has, WAIT if none."""
    words = jax.random.bits(key, moves.shape, jnp.uint32) >> 16
    count = jax.lax.population_count(moves).astype(jnp.uint32)
    left = ((words * count) >> 16).astype(jnp.int8)
    chosen = jnp.zeros(moves.shape, jnp.int8)
    # Without an axis of actions, which would keep a CPU from vectorising.
    for action, bit in enumerate(ACTION_BITS):
        allowed = (moves & bit) != 0
        chosen = jnp.where(allowed & (left == 0), jnp.int8(action), chosen)
        left = left - allowed.astype(jnp.int8)
    return chosen


@dataclass(frozen=True)
class RandomPolicy:
    """Uniform actions, independent of one another; `masked` leaves out what the board forbids."""

    masked: bool = True

    def start(self, key: jax.Array, instance: Instance) -> jax.Array | None:
        """Return the moves that the board allows in every cell, uint8 (N, N), if masked."""
        return open_moves(instance) if self.masked else None

    def act(
        self, key: jax.Array, instance: Instance, positions: jax.Array, time: jax.Array, memory: Any
    ) -> tuple[jax.Array, jax.Array | None]:
        """See `JointPolicy.act`."""
        if memory is None:
            return choose_move(key, jnp.full(len(positions), _ALL)), memory
        moves = memory[positions[:, 0], positions[:, 1]]
        return choose_move(key, jnp.where(instance.agent_mask, moves, _WAIT_ONLY)), memory


@dataclass(frozen=True)
class ShortestPathPolicy:
    """Greedy down the agent's own distance field, with ties broken at random.

    Agents at their goals, and agents whose goals can't be reached, wait.
    """

    def start(self, key: jax.Array, instance: Instance) -> jax.Array:
        """Return the moves towards each agent's goal in every cell, uint8 (K, N, N)."""
        fields = jax.vmap(distances, (None, 0))(instance.holes, instance.goals)
        allowed, far = open_moves(instance), jnp.int16(UNREACHABLE)
        reached = [
            jnp.where((allowed & bit) != 0, field, far)
            for bit, field in zip(ACTION_BITS, after_moves(fields, far), strict=True)
        ]
        # WAIT has the distance of the place itself, which a move that is worth it undercuts by 1.
        nearest = jnp.min(jnp.stack(reached), axis=0)
        best = jnp.zeros(fields.shape, jnp.uint8)
        for bit, distance in zip(ACTION_BITS, reached, strict=True):
            best |= jnp.where(distance == nearest, bit, jnp.uint8(0))
        stays = (nearest >= UNREACHABLE) | ~instance.agent_mask[:, None, None]
        return jnp.where(stays, _WAIT_ONLY, best)

    def act(
        self, key: jax.Array, instance: Instance, positions: jax.Array, time: jax.Array, memory: Any
    ) -> tuple[jax.Array, jax.Array]:
        """See `JointPolicy.act`."""
        agents = jnp.arange(len(positions))
        return choose_move(key, memory[agents, positions[:, 0], positions[:, 1]]), memory
