"""Observation functions: frozen, callable objects with a matching space."""

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.dynamics import Action
from jaxlake.environment.params import EnvParams, EnvState, legal_action_mask
from jaxlake.environment.spaces import Box, Space, Tree

NUM_ACTIONS = len(Action)


class Observation(Protocol):
    """Protocol of observation functions, which must be hashable."""

    def __call__(self, state: EnvState, params: EnvParams) -> Any:
        """Return the observation of a state, a pytree of arrays."""

    def space(self, params: EnvParams) -> Space:
        """Return the space of the observations."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CompactView:
    """The complete state; `unpack_rows` turns `hole_rows` into a plane of the board."""

    hole_rows: Any  # uint32 (N,), bit c of entry r is set on holes and on cells outside the board
    positions: Any  # int8 (K, 2), (row, column)
    goals: Any  # int8 (K, 2), (row, column)
    agent_mask: Any  # bool (K,)
    action_mask: Any  # bool (K, 5)
    steps_left: Any  # int32 (), steps until the episode is truncated


@dataclass(frozen=True)
class Compact:
    """The default observation: the complete state as a `CompactView`."""

    def __call__(self, state: EnvState, params: EnvParams) -> CompactView:
        """Return the `CompactView` of a state."""
        return CompactView(
            hole_rows=params.hole_rows[state.index],
            positions=state.positions,
            goals=params.instances.goals[state.index],
            agent_mask=params.instances.agent_mask[state.index],
            **_mask_and_time(state, params),
        )

    def space(self, params: EnvParams) -> Tree:
        """Return a `Tree` with the structure of `CompactView`."""
        N, K = _dimensions(params)
        cells = Box(0, N - 1, (K, 2), jnp.int8)
        hole_rows = Box(0, 2**N - 1, (N,), jnp.uint32)
        mask = Box(0, 1, (K,), bool)
        return Tree(CompactView(hole_rows, cells, cells, mask, **_mask_and_time_spaces(K)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BoardView:
    """Image-like planes of the board, the action mask and the remaining steps."""

    board: Any  # bool (N, N, 1 + 2K)
    action_mask: Any  # bool (K, 5)
    steps_left: Any  # int32 (), steps until the episode is truncated


@dataclass(frozen=True)
class Planes:
    """The board as planes: blocked cells, K planes of positions and K planes of goals.

    Blocked cells are holes and cells outside the board.
    """

    def __call__(self, state: EnvState, params: EnvParams) -> BoardView:
        """Return the `BoardView` of a state; `board` is bool (N, N, 1 + 2K)."""
        N, _ = _dimensions(params)
        mask = params.instances.agent_mask[state.index]
        cells = jnp.concatenate([state.positions, params.instances.goals[state.index]])
        is_in_row = (cells[:, 0] == np.arange(N, dtype=np.int8)[:, None]) & jnp.tile(mask, 2)
        row_bits = jnp.where(is_in_row, _bit(cells[:, 1]), jnp.uint32(0))
        row_bits = jnp.concatenate([params.hole_rows[state.index][:, None], row_bits], axis=-1)
        board = _unpack_bits(row_bits[:, None, :], N, axis=1)
        return BoardView(board, **_mask_and_time(state, params))

    def space(self, params: EnvParams) -> Tree:
        """Return a `Tree` with the structure of `BoardView`."""
        N, K = _dimensions(params)
        planes = Box(0, 1, (N, N, 1 + 2 * K), bool)
        return Tree(BoardView(planes, **_mask_and_time_spaces(K)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AgentView:
    """Window of W = 2 * radius + 1 cells centred on each agent.

    The planes are blocked cells (holes and cells outside the board), other agents, the agent's
    own goal, and the goals of other agents. Agents outside the mask see only blocked cells, and
    their `to_goal` is (0, 0).
    """

    window: Any  # bool (K, W, W, 4)
    to_goal: Any  # int8 (K, 2), (row, column) from the agent to its goal
    action_mask: Any  # bool (K, 5)
    steps_left: Any  # int32 (), steps until the episode is truncated


@dataclass(frozen=True)
class AgentCentred:
    """A window around each agent, padded beyond the edge of the board.

    Args:
        radius: 1 to 15 cells; the window is 2 * radius + 1 cells wide.

    Raises:
        ValueError: `radius` is out of range.
    """

    radius: int = 3

    def __post_init__(self) -> None:
        if not 1 <= self.radius <= 15:
            raise ValueError(f"radius must be in [1, 15], got {self.radius}")

    def __call__(self, state: EnvState, params: EnvParams) -> AgentView:
        """Return the `AgentView` of a state."""
        N, K = _dimensions(params)
        mask = params.instances.agent_mask[state.index]
        goals = params.instances.goals[state.index]
        positions = state.positions.astype(jnp.int32)
        W = 2 * self.radius + 1
        rows = positions[:, :1] + np.arange(-self.radius, self.radius + 1, dtype=np.int32)
        # JAX wraps or clamps indices outside the board, so clip them and mask the result.
        is_visible = (rows >= 0) & (rows < N) & mask[:, None]
        free_bits = ~params.hole_rows[state.index, jnp.clip(rows, 0, N - 1)] & jnp.uint32(2**N - 1)
        free_bits = jnp.where(is_visible, free_bits, jnp.uint32(0))
        first_column = positions[:, 1:] - self.radius
        free_bits = jnp.where(
            first_column >= 0,
            free_bits >> first_column.astype(jnp.uint32),
            free_bits << _shift(-first_column),
        )
        is_self = np.eye(K, dtype=bool)

        def pack_plane(cells: jax.Array, include: jax.Array) -> jax.Array:
            """Return uint32 (K, W), rows of bits: window i shows cell j if include[i, j]."""
            is_in_row = rows[:, :, None] == cells[None, None, :, 0]
            column = cells[None, :, 1] - first_column
            is_in_window = include & (column >= 0) & (column < W)
            bits = jnp.where(is_in_window, _bit(_shift(column)), jnp.uint32(0))
            bits = jnp.where(is_in_row, bits[:, None, :], jnp.uint32(0))
            return jax.lax.reduce(bits, np.uint32(0), jax.lax.bitwise_or, (2,))

        pairs = mask[:, None] & mask
        planes = [
            ~free_bits,
            pack_plane(positions, pairs & ~is_self),
            pack_plane(goals, pairs & is_self),
            pack_plane(goals, pairs & ~is_self),
        ]
        return AgentView(
            window=_unpack_bits(jnp.stack(planes, axis=-1)[:, :, None, :], W, axis=2),
            to_goal=jnp.where(mask[:, None], goals - state.positions, jnp.int8(0)),
            **_mask_and_time(state, params),
        )

    def space(self, params: EnvParams) -> Tree:
        """Return a `Tree` with the structure of `AgentView`."""
        N, K = _dimensions(params)
        W = 2 * self.radius + 1
        window = Box(0, 1, (K, W, W, 4), bool)
        to_goal = Box(1 - N, N - 1, (K, 2), jnp.int8)
        return Tree(AgentView(window, to_goal, **_mask_and_time_spaces(K)))


@dataclass(frozen=True)
class Flat:
    """The complete state as one vector, float32 (N * N * (1 + 2K) + 5K + 1,).

    It concatenates, in row-major order: holes and cells outside the board (N * N zeros and ones);
    the position of each agent (N * N each); the goal of each agent (N * N each); the action mask
    of each agent (5 each); and the fraction of steps left. The planes of agents outside the mask
    are zero.
    """

    def __call__(self, state: EnvState, params: EnvParams) -> jax.Array:
        """Return the vector of a state."""
        holes, positions, goals = _planes(state, params)
        actions = legal_action_mask(state, params).astype(jnp.float32)
        parts = (holes, positions.reshape(-1), goals.reshape(-1), actions.reshape(-1))
        return jnp.concatenate([*parts, _fraction_left(state, params)[None]])

    def space(self, params: EnvParams) -> Box:
        """Return a `Box` from 0 to 1."""
        N, K = _dimensions(params)
        return Box(0, 1, (N * N * (1 + 2 * K) + NUM_ACTIONS * K + 1,), jnp.float32)


@dataclass(frozen=True)
class FlatAgents:
    """One vector per agent, float32 (K, 5 * N * N + 6), for a policy shared by all agents.

    The vector of an agent concatenates, in row-major order: holes and cells outside the board, its
    position, its goal, the positions of the other agents, and their goals (N * N zeros and ones
    each); its action mask (5); and the fraction of steps left. The planes of agents outside the
    mask are zero.
    """

    def __call__(self, state: EnvState, params: EnvParams) -> jax.Array:
        """Return the vectors of a state, one per agent."""
        holes, positions, goals = _planes(state, params)
        K = positions.shape[0]
        actions = legal_action_mask(state, params).astype(jnp.float32)
        # After a vertex conflict several agents are in one cell.
        other_planes = [
            jnp.minimum(jnp.sum(planes, axis=0) - planes, jnp.float32(1))
            for planes in (positions, goals)
        ]
        holes = jnp.broadcast_to(holes, (K, len(holes)))
        steps_left = jnp.broadcast_to(_fraction_left(state, params), (K, 1))
        return jnp.concatenate(
            [holes, positions, goals, *other_planes, actions, steps_left], axis=-1
        )

    def space(self, params: EnvParams) -> Box:
        """Return a `Box` from 0 to 1."""
        N, K = _dimensions(params)
        return Box(0, 1, (K, 5 * N * N + NUM_ACTIONS + 1), jnp.float32)


def unpack_rows(rows: jax.Array, size: int) -> jax.Array:
    """Unpack the `size` lowest bits of each row, uint32 (..., R), into bool (..., R, size)."""
    return _unpack_bits(rows[..., None], size, axis=-1)


def _dimensions(params: EnvParams) -> tuple[int, int]:
    """Return (N, K); the parameters may have leading axes."""
    return params.instances.holes.shape[-1], params.instances.agent_mask.shape[-1]


def _unpack_bits(words: jax.Array, size: int, axis: int) -> jax.Array:
    """Unpack the bits of uint32 entries along an axis of length 1, lowest bit first."""
    shape = [1] * words.ndim
    shape[axis] = size
    return ((words >> np.arange(size, dtype=np.uint32).reshape(shape)) & jnp.uint32(1)) != 0


def _bit(index: jax.Array) -> jax.Array:
    return jnp.uint32(1) << index.astype(jnp.uint32)


def _shift(distance: jax.Array) -> jax.Array:
    return (distance & 31).astype(jnp.uint32)


def _mask_and_time(state: EnvState, params: EnvParams) -> dict[str, jax.Array]:
    steps_left = params.max_steps - state.time
    return {"action_mask": legal_action_mask(state, params), "steps_left": steps_left}


def _mask_and_time_spaces(K: int) -> dict[str, Box]:
    steps_left = Box(0, 2**31 - 1, (), jnp.int32)
    return {"action_mask": Box(0, 1, (K, NUM_ACTIONS), bool), "steps_left": steps_left}


def _planes(state: EnvState, params: EnvParams) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return holes (N * N,), positions and goals (K, N * N) as zeros and ones, float32."""
    instances, index = params.instances, state.index
    holes = instances.holes[index].reshape(-1)
    mask, goals = instances.agent_mask[index], instances.goals[index]
    N = instances.holes.shape[-1]
    cells = np.arange(N * N, dtype=np.int16)

    def one_hot(positions: jax.Array) -> jax.Array:
        cell = positions[:, 0].astype(jnp.int16) * N + positions[:, 1]
        return ((cell[:, None] == cells) & mask[:, None]).astype(jnp.float32)

    return holes.astype(jnp.float32), one_hot(state.positions), one_hot(goals)


def _fraction_left(state: EnvState, params: EnvParams) -> jax.Array:
    steps_left = (params.max_steps - state.time).astype(jnp.float32)
    return steps_left / params.max_steps.astype(jnp.float32)
