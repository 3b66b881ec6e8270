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


_BOOL = ("holes", "agent_mask")
_SHAPES = "holes (N, N), size (), starts and goals (K, 2) and agent_mask (K,)"


def check_instance(instance: object) -> None:
    """Check that an object is an `Instance` of arrays that fit together; works on tracers too.

    Raises:
        TypeError: The object is not an `Instance`, `holes` or `agent_mask` is not bool, or `size`,
            `starts` or `goals` has a non-integer dtype.
        ValueError: The shapes of the leaves do not fit together.
    """
    if not isinstance(instance, Instance):
        raise TypeError(
            f"instance: got {type(instance).__name__}, an Instance is needed; "
            "jaxlake.parse_grid(rows) makes one of the rows of a grid"
        )
    for name, leaf in vars(instance).items():
        kind, needed = (np.bool_, "bool") if name in _BOOL else (np.integer, "an integer type")
        dtype = getattr(leaf, "dtype", type(leaf))
        if not np.issubdtype(dtype, kind):
            got = getattr(dtype, "__name__", dtype)
            raise TypeError(f"instance: got {name} of type {got}, {needed} is needed")
    shapes = {name: np.shape(leaf) for name, leaf in vars(instance).items()}
    batch, N, K = shapes["size"], shapes["holes"][-1:], shapes["agent_mask"][-1:]
    own = {"holes": N * 2, "agent_mask": K, "starts": (*K, 2), "goals": (*K, 2)}
    if not (N and K) or any(shapes[name] != batch + shape for name, shape in own.items()):
        raise ValueError(
            f"instance: got leaves of the shapes {shapes}; {_SHAPES} are needed, all with the same "
            "leading axes"
        )


def check_unbatched(instance: object, function: str) -> None:
    """Check as `check_instance` does, and raise `ValueError` for a batch."""
    check_instance(instance)
    if shape := np.shape(instance.size):  # type: ignore[attr-defined]
        raise ValueError(
            f"instance: got a batch of shape {shape}, one board is needed; "
            f"jax.vmap(jaxlake.{function}) takes a batch"
        )


def check_board_values(instances: Instance) -> None:
    """Check the values of one concrete board or of a concrete batch.

    Raises:
        ValueError: A size is out of range, a cell outside the board is not a hole, a start or goal
            is not a free cell on the board, two starts or two goals are equal, or an agent starts
            at its goal.
    """
    leaves: dict[str, Any] = {name: np.asarray(leaf) for name, leaf in vars(instances).items()}
    invalid = _invalid_boards(Instance(**leaves), np)
    if not np.any(invalid):
        return
    if not np.ndim(invalid):
        raise ValueError(f"instance: got {_describe_problem(Instance(**leaves))}")
    number = int(np.argmax(invalid))
    board: dict[str, Any] = {name: leaf[number] for name, leaf in leaves.items()}
    raise ValueError(f"instances: number {number}: got {_describe_problem(Instance(**board))}")


def are_valid_boards(batch: Instance) -> jax.Array:
    """Return which boards (B, ...) pass `check_board_values`, as bool (B,); works under jit."""
    return ~_invalid_boards(batch, jnp)


def _invalid_boards(boards: Instance, xp: Any) -> Any:
    """Return which boards, leaves (...), are invalid; `xp` is `numpy` or `jax.numpy`."""
    N = boards.holes.shape[-1]
    holes, size = xp.asarray(boards.holes), xp.asarray(boards.size)
    places = xp.concatenate([boards.starts, boards.goals], axis=-2).astype(xp.int32)
    present = xp.concatenate([boards.agent_mask, boards.agent_mask], axis=-1)
    open_edge = xp.zeros(size.shape, bool)
    if xp is jnp or np.any(size < N):  # NumPy skips the scan over all cells
        beyond = xp.arange(N) >= size[..., None]
        open_edge = (~holes & (beyond[..., None] | beyond[..., None, :])).any(axis=(-2, -1))
    off = ((places < 0) | (places >= size[..., None, None])).any(axis=-1)
    cells = xp.clip(places[..., 0] * N + places[..., 1], 0, N * N - 1)
    in_hole = xp.take_along_axis(holes.reshape(*size.shape, N * N), cells, axis=-1)
    twice = xp.zeros_like(open_edge)
    K = present.shape[-1] // 2
    for i, j in combinations(range(2 * K), 2):
        if i < K <= j != i + K:  # a start and the goal of another agent
            continue
        twice |= present[..., i] & present[..., j] & (cells[..., i] == cells[..., j])
    misplaced = (present & (off | in_hole)).any(axis=-1)
    return (size < 1) | (size > N) | open_edge | misplaced | twice


def _describe_problem(board: Instance) -> str:
    """Describe the fault of one invalid board with NumPy leaves."""
    holes, size, K = board.holes, int(board.size), len(board.agent_mask)
    if not 1 <= size <= len(holes):
        return f"size {size}, 1 to {len(holes)} are allowed"
    if not (holes[size:].all() and holes[:, size:].all()):
        return f"a free cell outside of its {size} rows and columns; all cells there must be holes"
    places: dict[tuple[str | int, tuple[int, ...]], str] = {}
    for number, cell in enumerate(np.concatenate([board.starts, board.goals]).tolist()):
        kind, agent = "goal" if number >= K else "start", number % K
        if not board.agent_mask[agent]:
            continue
        place, at = f"{kind} of agent {agent}", tuple(cell)
        outside = min(at) < 0 or max(at) >= size
        if outside or holes[at]:
            problem = "outside of the board" if outside else "a hole"
            return f"{at}, {problem}, as {place}; a free cell is needed"
        earlier = places.get((kind, at)) or places.get((agent, at))
        if earlier:
            break
        places[kind, at] = places[agent, at] = place
    return (
        f"{at} as {earlier} and as {place}; starts are distinct cells, goals are distinct cells, "
        "and no agent starts at its goal"
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
    """Return single boards stacked into one batch, leaves (B, ...) (NumPy, on the host).

    Boards of different N or K are padded to the largest of each, with holes and empty slots.

    Args:
        instances: At least one single board.

    Returns:
        The batch, with NumPy leaves.

    Raises:
        TypeError: An element is not an `Instance`, or one of its leaves has the wrong dtype.
        ValueError: The sequence is empty, or an element is a batch.
    """
    if not instances:
        raise ValueError("instances: got an empty sequence, at least one is needed")
    if isinstance(instances, Instance):
        raise TypeError("instances: got one Instance, a sequence of boards is needed")
    for number, instance in enumerate(instances):
        check_instance(instance)
        if np.ndim(instance.size):
            shape = np.shape(instance.size)
            raise ValueError(f"instances: number {number} is a batch of shape {shape}, not a board")
    N = max(np.shape(instance.holes)[-1] for instance in instances)
    K = max(np.shape(instance.agent_mask)[-1] for instance in instances)
    padded = [pad_instance(instance, N, K) for instance in instances]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *padded)


def pad_instance(instance: Instance, max_size: int, max_agents: int) -> Instance:
    """Pad a board with holes to `max_size` rows and with empty slots to `max_agents`; NumPy."""
    leaves = {name: np.asarray(leaf) for name, leaf in vars(instance).items()}
    rows = max_size - leaves["holes"].shape[-1]
    slots = max_agents - leaves["agent_mask"].shape[-1]
    leaves["holes"] = np.pad(leaves["holes"], [(0, rows)] * 2, constant_values=True)
    for name in ("starts", "goals"):
        leaves[name] = np.pad(leaves[name], [(0, slots), (0, 0)])
    leaves["agent_mask"] = np.pad(leaves["agent_mask"], (0, slots))
    padded: dict[str, Any] = leaves
    return Instance(**padded)
