"""The state of an episode, and how it begins."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxlake.dynamics import Action
from jaxlake.environment.action_masks import ACTION_BITS
from jaxlake.environment.params import EnvParams
from jaxlake.instance import Instance


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EnvState:
    """The state of an episode. The board stays in the pool: starting again copies no board."""

    index: jax.Array  # int32 (), the board's place in the pool
    positions: jax.Array  # int8 (K, 2), where the agents stand
    time: jax.Array  # int32 (), steps made
    terminated: jax.Array  # bool (), all goals reached, or a rule broken for good
    truncated: jax.Array  # bool (), the time limit is reached


def initial_state(key: jax.Array, params: EnvParams) -> EnvState:
    """Draw a board of the pool, uniformly up to `count / 2**32`; its agents are at their starts."""
    index = _below(_mixed(key), params.count.astype(jnp.uint32)).astype(jnp.int32)
    no = jnp.bool_(False)
    return EnvState(index, params.instances.starts[index], jnp.int32(0), no, no)


def board(state: EnvState, params: EnvParams) -> Instance:
    """Give the board that an episode is played on."""
    return jax.tree.map(lambda leaf: leaf[state.index], params.instances)


def state_action_mask(state: EnvState, params: EnvParams) -> jax.Array:
    """Look up what `action_mask` says of the agents where they stand: bool (K, 5)."""
    rows, columns = state.positions[:, 0], state.positions[:, 1]
    moves = params.open_moves[state.index, rows, columns]
    agent_mask = params.instances.agent_mask[state.index]
    moves = jnp.where(agent_mask, moves, jnp.uint8(1 << Action.WAIT))
    return (moves[:, None] & jnp.asarray(ACTION_BITS)) != 0


def _mixed(key: jax.Array) -> jax.Array:
    """One random word of a key, uint32 ().

    A key that was split off is random already, and a draw from it would cost as much as all else
    at the start of an episode. Two rounds of multiplication and shift for each of its words, with
    the constants of Wellons' lowbias32, spread the keys of small seeds, too.
    """
    mixed = jnp.uint32(0x9E3779B9)
    data = jax.random.key_data(key)
    for i in range(data.shape[-1]):
        mixed ^= data[i]
        mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(0x7FEB352D)
        mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x846CA68B)
        mixed ^= mixed >> 16
    return mixed


def _below(word: jax.Array, bound: jax.Array) -> jax.Array:
    """floor(word * bound / 2**32) in 32-bit arithmetic: a uniform word gives a uniform index."""
    half = jnp.uint32(0xFFFF)
    low, high = word & half, word >> 16
    bound_low, bound_high = bound & half, bound >> 16
    middle = high * bound_low + ((low * bound_low) >> 16)
    carry = (middle & half) + low * bound_high
    return high * bound_high + (middle >> 16) + (carry >> 16)
