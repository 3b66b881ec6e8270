"""Policies without joint planning: random actions, and individual shortest paths."""

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


def sample_actions(key: jax.Array, action_sets: jax.Array) -> jax.Array:
    """Draw a uniform action for each agent from its set of allowed actions.

    Args:
        key: Typed PRNG key.
        action_sets: uint8 (K,), each a union of `ACTION_BITS`.

    Returns:
        int8 (K,), actions. Agents with an empty set wait.
    """
    random_bits = jax.random.bits(key, action_sets.shape, jnp.uint32) >> 16
    count = jax.lax.population_count(action_sets).astype(jnp.uint32)
    # Select the n-th allowed action, for a random n below the number of allowed actions.
    n = ((random_bits * count) >> 16).astype(jnp.int8)
    actions = jnp.zeros(action_sets.shape, jnp.int8)
    # A loop, because an array axis of actions would prevent vectorisation on CPUs.
    for action, bit in enumerate(ACTION_BITS):
        is_allowed = (action_sets & bit) != 0
        actions = jnp.where(is_allowed & (n == 0), jnp.int8(action), actions)
        n = n - is_allowed.astype(jnp.int8)
    return actions


@dataclass(frozen=True)
class RandomPolicy:
    """Policy that draws independent uniform actions."""

    masked: bool = True  # exclude moves into holes and off the board

    def start(self, key: jax.Array, instance: Instance) -> jax.Array | None:
        """Return the set of allowed actions per cell, uint8 (N, N), or None if not masked."""
        return open_moves(instance) if self.masked else None

    def act(
        self, key: jax.Array, instance: Instance, positions: jax.Array, time: jax.Array, memory: Any
    ) -> tuple[jax.Array, jax.Array | None]:
        """See `JointPolicy.act`."""
        if memory is None:
            return sample_actions(key, jnp.full(len(positions), _ALL_BITS)), memory
        action_sets = memory[positions[:, 0], positions[:, 1]]
        return sample_actions(key, jnp.where(instance.agent_mask, action_sets, _WAIT_BIT)), memory


@dataclass(frozen=True)
class ShortestPathPolicy:
    """Policy that moves each agent along a shortest path and ignores the other agents.

    Ties are broken at random. Agents at their goals or with unreachable goals wait.
    """

    def start(self, key: jax.Array, instance: Instance) -> jax.Array:
        """Return the set of shortest-path actions per agent and cell, uint8 (K, N, N)."""
        fields = jax.vmap(distances, (None, 0))(instance.holes, instance.goals)
        allowed_actions, unreachable = open_moves(instance), jnp.int16(UNREACHABLE)
        next_distances = [
            jnp.where((allowed_actions & bit) != 0, field, unreachable)
            for bit, field in zip(ACTION_BITS, shift_by_action(fields, unreachable), strict=True)
        ]
        # WAIT keeps the distance to the goal; a move along a shortest path reduces it by 1.
        min_distance = jnp.min(jnp.stack(next_distances), axis=0)
        action_sets = jnp.zeros(fields.shape, jnp.uint8)
        for bit, distance in zip(ACTION_BITS, next_distances, strict=True):
            action_sets |= jnp.where(distance == min_distance, bit, jnp.uint8(0))
        is_waiting = (min_distance >= UNREACHABLE) | ~instance.agent_mask[:, None, None]
        return jnp.where(is_waiting, _WAIT_BIT, action_sets)

    def act(
        self, key: jax.Array, instance: Instance, positions: jax.Array, time: jax.Array, memory: Any
    ) -> tuple[jax.Array, jax.Array]:
        """See `JointPolicy.act`."""
        agents = jnp.arange(len(positions))
        return sample_actions(key, memory[agents, positions[:, 0], positions[:, 1]]), memory
