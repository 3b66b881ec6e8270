"""The parameters of an environment (boards and time limit) and the state of an episode."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.dynamics import ACTION_BITS, Action, open_moves
from jaxlake.board.instance import Instance, check_instance
from jaxlake.board.limits import MAX_SIZE
from jaxlake.runtime.cpu_devices import is_eager
from jaxlake.runtime.random_keys import check_typed_key
from jaxlake.solver import DEFAULT_HORIZON


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EnvParams:
    """A pool of P boards and a time limit. Every leaf may be vmapped.

    To use other boards, call `env_params` again: `hole_rows` and `open_moves` are derived from
    `instances`.
    """

    instances: Instance  # leaves (P, ...)
    count: jax.Array  # int32 (), number of boards to draw from, the first ones of the pool
    max_steps: jax.Array  # int32 (), steps after which an episode is truncated
    hole_rows: jax.Array  # uint32 (P, N), bit c of entry r is holes[r, c]
    open_moves: jax.Array  # uint8 (P, N, N), bit a is set where action a stays on free cells

    @property
    def max_steps_in_episode(self) -> jax.Array:
        """The gymnax name of `max_steps`."""
        return self.max_steps

    def replace(self, **changes: Any) -> "EnvParams":
        """Return a copy with another time limit.

        Args:
            changes: either `max_steps` or `max_steps_in_episode`, int32 (), at least 1.

        Raises:
            TypeError: another name, or both names, are given.
            ValueError: the limit is a Python or NumPy integer below 1.
        """
        if len(changes) != 1 or not changes.keys() <= {"max_steps", "max_steps_in_episode"}:
            names = ", ".join(sorted(changes))
            raise TypeError(f"changes must be max_steps or max_steps_in_episode, got {names}")
        (max_steps,) = changes.values()
        if isinstance(max_steps, int | np.integer) and max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, got {max_steps}")
        return replace(self, max_steps=jnp.asarray(max_steps, jnp.int32))


def env_params(
    instances: Instance,
    *,
    max_steps: jax.Array | int = DEFAULT_HORIZON,
    filled: jax.Array | None = None,
) -> EnvParams:
    """Return the parameters of an environment for a pool of boards; can be jitted and vmapped.

    Args:
        instances: leaves (P, ...), such as `Generated.instances`; one board without a leading
            axis is a pool of one.
        max_steps: int32 (), at least 1, steps after which an episode is truncated.
        filled: bool (P,), such as `Generated.filled`: the boards to draw from, all if None. If
            traced and all False, episodes are drawn from all boards.

    Returns:
        The `EnvParams`.

    Raises:
        TypeError: `instances` is not an `Instance`, or has leaves of other types.
        ValueError: the boards are larger than `MAX_SIZE`, the pool is empty, an array has the
            wrong number of axes, or `max_steps` is below 1. Outside jit also if no board is
            filled, or if a board to draw from has no agent.
    """
    check_instance(instances)
    if np.ndim(instances.size) == 0:
        instances = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], instances)
    shape = np.shape(instances.holes)
    if len(shape) != 3 or np.ndim(instances.size) != 1:
        raise ValueError(f"instances.holes must have shape (P, N, N) or (N, N), got {shape}")
    P, _, N = shape
    if P == 0:
        raise ValueError("instances must have at least one board, got none")
    if N > MAX_SIZE:
        raise ValueError(f"instances must be at most {MAX_SIZE}x{MAX_SIZE} in size, got {N}x{N}")
    if isinstance(max_steps, int | np.integer) and max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    is_in_pool = jnp.ones(P, bool) if filled is None else jnp.asarray(filled)
    if is_in_pool.shape != (P,):
        raise ValueError(f"filled must have shape ({P},), got {is_in_pool.shape}")
    if is_eager(instances.agent_mask, is_in_pool):
        _check_agents(np.asarray(instances.agent_mask), np.asarray(is_in_pool), filled is None)
    return _build_params(instances, is_in_pool, max_steps)


def _check_agents(mask: np.ndarray, in_pool: np.ndarray, suggest_filled: bool) -> None:
    """Raise `ValueError` for boards without agents, such as unfilled slots of `generate`."""
    num_boards = int(np.sum(in_pool))
    if num_boards == 0:
        raise ValueError("filled must be True for at least one board, got only False")
    if num_empty := num_boards - int(np.sum(mask.any(axis=-1) & in_pool)):
        hint = "; pass filled=Generated.filled to skip unfilled slots" if suggest_filled else ""
        raise ValueError(
            f"instances must have an agent on every board, got {num_empty} of {num_boards} "
            f"without{hint}"
        )


@jax.jit
def _build_params(instances: Instance, filled: jax.Array, max_steps: jax.Array | int) -> EnvParams:
    P, _, N = instances.holes.shape
    order = jnp.argsort(~filled.astype(bool), stable=True)
    count = jnp.sum(filled, dtype=jnp.int32)
    pool = Instance(
        holes=instances.holes[order].astype(bool),
        size=instances.size[order].astype(jnp.int32),
        starts=instances.starts[order].astype(jnp.int8),
        goals=instances.goals[order].astype(jnp.int8),
        agent_mask=instances.agent_mask[order].astype(bool),
    )
    column_bits = jnp.uint32(1) << jnp.arange(N, dtype=jnp.uint32)
    hole_bits = jnp.where(pool.holes, column_bits, jnp.uint32(0))
    return EnvParams(
        instances=pool,
        count=jnp.where(count > 0, count, jnp.int32(P)),
        max_steps=jnp.asarray(max_steps, jnp.int32),
        hole_rows=jnp.sum(hole_bits, axis=-1, dtype=jnp.uint32),
        open_moves=jax.vmap(open_moves)(pool),
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EnvState:
    """The state of an episode. It refers to its board by index, so resets copy no boards."""

    index: jax.Array  # int32 (), the board's index in the pool
    positions: jax.Array  # int8 (K, 2), (row, column) of each agent
    time: jax.Array  # int32 (), steps made
    terminated: jax.Array  # bool (), all goals are reached, or a broken rule ended the episode
    truncated: jax.Array  # bool (), the time limit is reached


def initial_state(key: jax.Array, params: EnvParams) -> EnvState:
    """Return the initial state on a board drawn uniformly from the pool (bias: count / 2**32)."""
    check_typed_key(key)
    if not isinstance(params, EnvParams):
        raise TypeError(
            "params must be an EnvParams from jaxlake.environment.env_params, got "
            f"{type(params).__name__}"
        )
    index = _scale_to_index(_hash_key(key), params.count.astype(jnp.uint32)).astype(jnp.int32)
    false = jnp.bool_(False)
    return EnvState(index, params.instances.starts[index], jnp.int32(0), false, false)


def legal_action_mask(state: EnvState, params: EnvParams) -> jax.Array:
    """Look up the action mask of the agents at their positions, bool (K, 5)."""
    rows, columns = state.positions[:, 0], state.positions[:, 1]
    moves = params.open_moves[state.index, rows, columns]
    agent_mask = params.instances.agent_mask[state.index]
    moves = jnp.where(agent_mask, moves, jnp.uint8(1 << Action.WAIT))
    return (moves[:, None] & jnp.asarray(ACTION_BITS)) != 0


def _hash_key(key: jax.Array) -> jax.Array:
    """Return Wellons' lowbias32 hash of a key, uint32 (), which is faster than `jax.random`."""
    word = jnp.uint32(0x9E3779B9)
    data = jax.random.key_data(key)
    for i in range(data.shape[-1]):
        word ^= data[i]
        word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
        word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
        word ^= word >> 16
    return word


def _scale_to_index(random_bits: jax.Array, bound: jax.Array) -> jax.Array:
    """Return floor(random_bits * bound / 2**32), uniform below `bound`, in 32-bit arithmetic."""
    low_mask = jnp.uint32(0xFFFF)
    low, high = random_bits & low_mask, random_bits >> 16
    bound_low, bound_high = bound & low_mask, bound >> 16
    middle = high * bound_low + ((low * bound_low) >> 16)
    carry = (middle & low_mask) + low * bound_high
    return high * bound_high + (middle >> 16) + (carry >> 16)
