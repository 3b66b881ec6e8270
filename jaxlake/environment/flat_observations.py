"""Observations as plain vectors of numbers from 0 to 1: what most code for policies expects."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.environment.observations import NUM_ACTIONS
from jaxlake.environment.params import EnvParams, EnvState, state_action_mask
from jaxlake.environment.spaces import Box


@dataclass(frozen=True)
class Flat:
    """The whole state as one vector, float32 (N * N * (1 + 2K) + 5K + 1,).

    Its parts: holes and cells outside the board; for each agent the cell where it stands; for each
    agent its goal (all of them N * N zeros and ones, row by row); for each agent which actions lead
    neither off the board nor onto a hole; the share of the steps that are left. Agents outside the
    mask are nowhere and have no goal.
    """

    def __call__(self, state: EnvState, params: EnvParams) -> jax.Array:
        """One vector."""
        holes, here, goals = _planes(state, params)
        actions = state_action_mask(state, params).astype(jnp.float32)
        parts = (holes, here.reshape(-1), goals.reshape(-1), actions.reshape(-1))
        return jnp.concatenate([*parts, _share_left(state, params)[None]])

    def space(self, params: EnvParams) -> Box:
        """A `Box` from 0 to 1."""
        N, K = params.instances.holes.shape[-1], params.instances.agent_mask.shape[-1]
        return Box(0, 1, (N * N * (1 + 2 * K) + NUM_ACTIONS * K + 1,), jnp.float32)


@dataclass(frozen=True)
class FlatAgents:
    """One vector per agent, float32 (K, 5 * N * N + 6), from which one policy can serve them all.

    The parts of agent k's vector: holes and cells outside the board; where it stands; its goal;
    where others stand; their goals (N * N zeros and ones each, row by row); which actions lead
    neither off the board nor onto a hole; the share of the steps that are left. Agents outside the
    mask are nowhere and have no goal.
    """

    def __call__(self, state: EnvState, params: EnvParams) -> jax.Array:
        """One vector per agent."""
        holes, here, goals = _planes(state, params)
        K = here.shape[0]
        actions = state_action_mask(state, params).astype(jnp.float32)
        # After a vertex conflict several agents are in one cell.
        others = [
            jnp.minimum(jnp.sum(planes, axis=0) - planes, jnp.float32(1))
            for planes in (here, goals)
        ]
        alike = [jnp.broadcast_to(holes, (K, len(holes)))]
        left = jnp.broadcast_to(_share_left(state, params), (K, 1))
        return jnp.concatenate([*alike, here, goals, *others, actions, left], axis=-1)

    def space(self, params: EnvParams) -> Box:
        """A `Box` from 0 to 1."""
        N, K = params.instances.holes.shape[-1], params.instances.agent_mask.shape[-1]
        return Box(0, 1, (K, 5 * N * N + NUM_ACTIONS + 1), jnp.float32)


def _planes(state: EnvState, params: EnvParams) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Holes (N * N,), places and goals (K, N * N) as zeros and ones, float32."""
    instances, index = params.instances, state.index
    holes = instances.holes[index].reshape(-1)
    mask, goals = instances.agent_mask[index], instances.goals[index]
    N = instances.holes.shape[-1]
    cells = np.arange(N * N, dtype=np.int16)

    def marked(places: jax.Array) -> jax.Array:
        cell = places[:, 0].astype(jnp.int16) * N + places[:, 1]
        return ((cell[:, None] == cells) & mask[:, None]).astype(jnp.float32)

    return holes.astype(jnp.float32), marked(state.positions), marked(goals)


def _share_left(state: EnvState, params: EnvParams) -> jax.Array:
    left = (params.max_steps - state.time).astype(jnp.float32)
    return left / params.max_steps.astype(jnp.float32)
