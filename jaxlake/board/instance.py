"""`Instance`: one frozen lake with its agents, padded to static shapes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Instance:
    """One MAPF-FrozenLake board. N is the padded side, K the number of agent slots.

    Leaves may be NumPy or JAX arrays. A batch of instances is the same struct with leading axes.
    Agents in `agent_mask` start on distinct free cells and have distinct free cells as goals. A
    start may be the goal of another agent, but not the agent's own. Agents outside the mask have
    position (0, 0) and are ignored.
    """

    holes: jax.Array  # bool (N, N), True on holes and on every cell outside the board
    size: jax.Array  # int32 (), the board is the top-left size x size square
    starts: jax.Array  # int8 (K, 2), (row, column)
    goals: jax.Array  # int8 (K, 2), (row, column)
    agent_mask: jax.Array  # bool (K,)


_BOOL_LEAVES = ("holes", "agent_mask")
_SHAPES = "holes (N, N), size (), starts and goals (K, 2) and agent_mask (K,)"


def check_instance(instance: object) -> None:
    """Check that an object is an `Instance` of arrays that fit together; works on tracers too.

    Raises:
        TypeError: The object is not an `Instance`, `holes` or `agent_mask` is not bool, or `size`,
            `starts` or `goals` has a non-integer dtype.
        ValueError: The shapes of the leaves do not fit together.
    """
    if not isinstance(instance, Instance):
        is_array = isinstance(instance, jax.Array | np.ndarray)
        type_name = "an array" if is_array else type(instance).__name__
        raise TypeError(
            f"instance must be an Instance, got {type_name}; "
            "jaxlake.parse_grid(rows) creates one from the rows of a grid"
        )
    for name, leaf in vars(instance).items():
        is_bool = name in _BOOL_LEAVES
        dtype = getattr(leaf, "dtype", type(leaf))
        if not np.issubdtype(dtype, np.bool_ if is_bool else np.integer):
            allowed = "bool" if is_bool else "an integer dtype"
            raise TypeError(
                f"instance.{name} must have {allowed}, got {getattr(dtype, '__name__', dtype)}"
            )
    shapes = {name: np.shape(leaf) for name, leaf in vars(instance).items()}
    batch, N, K = shapes["size"], shapes["holes"][-1:], shapes["agent_mask"][-1:]
    expected = {"holes": N * 2, "agent_mask": K, "starts": (*K, 2), "goals": (*K, 2)}
    if not (N and K) or any(shapes[name] != batch + shape for name, shape in expected.items()):
        raise ValueError(
            f"instance must have leaves of shapes {_SHAPES}, all with the same leading axes, "
            f"got {shapes}"
        )


def check_unbatched(instance: object, function: str) -> None:
    """Call `check_instance`, and raise `ValueError` for a batch."""
    check_instance(instance)
    if shape := np.shape(instance.size):  # type: ignore[attr-defined]
        raise ValueError(
            f"instance must be one board, got a batch of shape {shape}; "
            f"use jax.vmap(jaxlake.{function}) for batches"
        )


def check_board_values(instances: Instance) -> None:
    """Check the values of one concrete board or a concrete batch.

    Raises:
        ValueError: A size is out of range, a cell outside the board is not a hole, a start or goal
            is not a free cell on the board, two starts or two goals are equal, or an agent starts
            at its goal.
    """
    leaves: dict[str, Any] = {name: np.asarray(leaf) for name, leaf in vars(instances).items()}
    is_invalid = _invalid_boards(Instance(**leaves), np)
    if not np.any(is_invalid):
        return
    if not np.ndim(is_invalid):
        raise ValueError(f"instance: {_describe_problem(Instance(**leaves))}")
    number = int(np.argmax(is_invalid))
    board: dict[str, Any] = {name: leaf[number] for name, leaf in leaves.items()}
    raise ValueError(f"instances: number {number}: {_describe_problem(Instance(**board))}")


def are_valid_boards(batch: Instance) -> jax.Array:
    """Return which boards (B, ...) pass `check_board_values`, as bool (B,); works under jit."""
    return ~_invalid_boards(batch, jnp)


def _invalid_boards(boards: Instance, xp: Any) -> Any:
    """Return which boards, leaves (...), are invalid; `xp` is `numpy` or `jax.numpy`."""
    N = boards.holes.shape[-1]
    holes, size = xp.asarray(boards.holes), xp.asarray(boards.size)
    endpoints = xp.concatenate([boards.starts, boards.goals], axis=-2).astype(xp.int32)
    exists = xp.concatenate([boards.agent_mask, boards.agent_mask], axis=-1)
    open_padding = xp.zeros(size.shape, bool)
    if xp is jnp or np.any(size < N):  # with NumPy, skip the scan over all cells if possible
        outside = xp.arange(N) >= size[..., None]
        open_padding = (~holes & (outside[..., None] | outside[..., None, :])).any(axis=(-2, -1))
    off_board = ((endpoints < 0) | (endpoints >= size[..., None, None])).any(axis=-1)
    cells = xp.clip(endpoints[..., 0] * N + endpoints[..., 1], 0, N * N - 1)
    on_hole = xp.take_along_axis(holes.reshape(*size.shape, N * N), cells, axis=-1)
    has_repetition = xp.zeros_like(open_padding)
    K = exists.shape[-1] // 2
    for i, j in combinations(range(2 * K), 2):
        if i < K <= j != i + K:  # a start may be the goal of another agent
            continue
        has_repetition |= exists[..., i] & exists[..., j] & (cells[..., i] == cells[..., j])
    is_misplaced = (exists & (off_board | on_hole)).any(axis=-1)
    return (size < 1) | (size > N) | open_padding | is_misplaced | has_repetition


def _describe_problem(board: Instance) -> str:
    """Describe the problem of one invalid board with NumPy leaves."""
    holes, size, K = board.holes, int(board.size), len(board.agent_mask)
    if not 1 <= size <= len(holes):
        return f"size must be in [1, {len(holes)}], got {size}"
    if not (holes[size:].all() and holes[:, size:].all()):
        return f"cells outside of the {size} rows and columns must be holes, got a free cell"
    roles: dict[tuple[str | int, tuple[int, ...]], str] = {}
    for number, endpoint in enumerate(np.concatenate([board.starts, board.goals]).tolist()):
        kind, agent = "goal" if number >= K else "start", number % K
        if not board.agent_mask[agent]:
            continue
        role, cell = f"{kind} of agent {agent}", tuple(endpoint)
        is_outside = min(cell) < 0 or max(cell) >= size
        if is_outside or holes[cell]:
            problem = "outside of the board" if is_outside else "a hole"
            return f"the {role} must be a free cell, got {cell}, {problem}"
        other_role = roles.get((kind, cell)) or roles.get((agent, cell))
        if other_role:
            break
        roles[kind, cell] = roles[agent, cell] = role
    return (
        "starts must be distinct, goals must be distinct and no agent may start at its goal, "
        f"got {cell} as {other_role} and as {role}"
    )


def numpy_instance(
    holes: np.ndarray, size: int, starts: np.ndarray, goals: np.ndarray, num_agents: int
) -> Instance:
    """Return an instance with NumPy leaves and agents in the first slots; see `Instance`."""
    mask = np.arange(len(starts)) < num_agents
    leaves: list[Any] = [holes, np.int32(size), starts, goals, mask]
    return Instance(*leaves)


def agent_tasks(instance: Instance) -> list[tuple[int, ...]]:
    """Return (agent, start row, start column, goal row, goal column) per agent of one board."""
    starts, goals = np.asarray(instance.starts).tolist(), np.asarray(instance.goals).tolist()
    agents = np.flatnonzero(np.asarray(instance.agent_mask)).tolist()
    return [(agent, *starts[agent], *goals[agent]) for agent in agents]


def stack_instances(instances: Sequence[Instance]) -> Instance:
    """Stack single boards into one batch, leaves (B, ...) (NumPy, on the host).

    Boards are padded to the largest N and K among them, with holes and empty slots.

    Args:
        instances: At least one single board.

    Returns:
        The batch, with NumPy leaves.

    Raises:
        TypeError: An element is not an `Instance`, or one of its leaves has the wrong dtype.
        ValueError: The sequence is empty, or an element is a batch.
    """
    if not instances:
        raise ValueError("instances must have at least 1 board, got an empty sequence")
    if isinstance(instances, Instance):
        raise TypeError("instances must be a sequence of boards, got one Instance")
    for number, instance in enumerate(instances):
        check_instance(instance)
        if shape := np.shape(instance.size):
            raise ValueError(
                f"instances: number {number} must be one board, got a batch of {shape}"
            )
    N = max(np.shape(instance.holes)[-1] for instance in instances)
    K = max(np.shape(instance.agent_mask)[-1] for instance in instances)
    padded_instances = [pad_instance(instance, N, K) for instance in instances]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *padded_instances)


def pad_instance(instance: Instance, max_size: int, max_agents: int) -> Instance:
    """Pad a board with holes to `max_size` rows and with empty slots to `max_agents`; NumPy."""
    leaves = {name: np.asarray(leaf) for name, leaf in vars(instance).items()}
    num_rows = max_size - leaves["holes"].shape[-1]
    num_slots = max_agents - leaves["agent_mask"].shape[-1]
    leaves["holes"] = np.pad(leaves["holes"], [(0, num_rows)] * 2, constant_values=True)
    for name in ("starts", "goals"):
        leaves[name] = np.pad(leaves[name], [(0, num_slots), (0, 0)])
    leaves["agent_mask"] = np.pad(leaves["agent_mask"], (0, num_slots))
    fields: dict[str, Any] = leaves
    return Instance(**fields)
