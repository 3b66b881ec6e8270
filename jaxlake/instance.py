"""Instance: one frozen lake with its agents, padded to static shapes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Instance:
    """One MAPF-FrozenLake board. N is the largest board, K the largest number of agents.

    Leaves may be NumPy or JAX arrays. A batch of instances is the same struct with leading axes.
    Starts and goals of all agents in `agent_mask` are distinct free cells on the board; agents
    outside the mask have position (0, 0) and take part in nothing.
    """

    holes: jax.Array  # bool (N, N), True on holes and on every cell outside the board
    size: jax.Array  # int32 (), the board is the top-left size x size square
    starts: jax.Array  # int8 (K, 2), (row, column)
    goals: jax.Array  # int8 (K, 2), (row, column)
    agent_mask: jax.Array  # bool (K,)


def check_instance(given: object) -> None:
    """Raise a TypeError that names `jaxlake.parse_grid` if something else than an `Instance` came.

    Users pass the rows of a grid, or the name of a file, where a board is needed.
    """
    if not isinstance(given, Instance):
        raise TypeError(
            f"instance: got {type(given).__name__}, an Instance is needed; "
            "jaxlake.parse_grid(rows) makes one of the rows of a grid"
        )


def check_boards(given: Instance) -> None:
    """Refuse what is no board, of one or of a batch whose values are at hand.

    Searches rely on what `Instance` says of its values. Of an agent that starts at its goal they
    would call plans optimal that are not.

    Raises:
        ValueError: A size is none; a cell outside a board is no hole; or the starts and goals of a
            board's agents are not distinct free cells on it.
    """
    holes, size, starts, goals, mask = (np.asarray(leaf) for leaf in vars(given).values())
    B, N = size.size, holes.shape[-1]
    places = np.concatenate([starts, goals], axis=-2).reshape(B, 2 * starts.shape[-2], 2)
    rows, columns = places[..., 0].astype(np.int32), places[..., 1].astype(np.int32)
    there = np.concatenate([mask, mask], axis=-1).reshape(B, 2 * mask.shape[-1])
    holes, size = holes.reshape(B, N, N), size.reshape(B)
    no_size = (size < 1) | (size > N)
    open_edge = np.zeros(len(size), bool)
    if np.any(size < N):
        beyond = np.arange(N) >= size[:, None]
        open_edge = np.any(~holes & (beyond[:, :, None] | beyond[:, None]), axis=(1, 2))
    limit = np.clip(size, 0, N)[:, None]
    off = (np.minimum(rows, columns) < 0) | (np.maximum(rows, columns) >= limit)
    cells = np.where(off, 0, rows * N + columns)
    taken = off | np.take_along_axis(holes.reshape(len(holes), N * N), cells, axis=1)
    # Slots without an agent stand on cells of their own, on no board.
    own = -1 - np.arange(there.shape[1], dtype=np.int32)
    cells = np.where(there, rows * N + columns, own).astype(np.int16)
    in_order = np.sort(cells, axis=1)
    twice = np.any(in_order[:, 1:] == in_order[:, :-1], axis=1)
    wrong = no_size | open_edge | np.any(there & taken, axis=1) | twice
    if not wrong.any():
        return
    number = int(np.argmax(wrong))
    name = "instance" if not np.ndim(given.size) else f"instances: number {number}"
    if no_size[number]:
        raise ValueError(f"{name}: got size {size[number]}, 1 to {N} are allowed")
    if open_edge[number]:
        raise ValueError(
            f"{name}: got a cell outside of its {size[number]} rows and columns that is no hole; "
            "all cells there are holes"
        )
    kinds = [f"{kind} of agent {k}" for kind in ("start", "goal") for k in range(mask.shape[-1])]
    seen: dict[int, str] = {}
    for place in np.flatnonzero(there[number]).tolist():
        at, cell = (int(rows[number, place]), int(columns[number, place])), cells[number, place]
        if taken[number, place]:
            what = "outside of the board" if off[number, place] else "a hole"
            raise ValueError(f"{name}: got {at}, {what}, as {kinds[place]}; a free cell is needed")
        if (other := seen.setdefault(int(cell), kinds[place])) != kinds[place]:
            raise ValueError(
                f"{name}: got {at} as {other} and as {kinds[place]}; starts and goals of all "
                "agents are distinct cells"
            )


def are_boards(batch: Instance) -> jax.Array:
    """Tell which boards (B, ...) `check_boards` does not refuse, bool (B,)."""
    B, N = batch.holes.shape[:2]
    holes, size = jnp.asarray(batch.holes), jnp.asarray(batch.size, jnp.int32)
    places = jnp.concatenate([batch.starts, batch.goals], axis=1).astype(jnp.int32)
    there = jnp.concatenate([batch.agent_mask, batch.agent_mask], axis=1)
    on_board = jnp.all((places >= 0) & (places < size[:, None, None]), axis=2)
    cells = jnp.clip(places[..., 0] * N + places[..., 1], 0, N * N - 1)
    free = on_board & ~jnp.take_along_axis(holes.reshape(B, N * N), cells, axis=1)
    both = there[:, :, None] & there[:, None] & (cells[:, :, None] == cells[:, None])
    twice = jnp.any(both & np.tri(cells.shape[1], k=-1, dtype=bool), axis=(1, 2))
    beyond = np.arange(N) >= size[:, None]
    closed = jnp.all(holes | ~(beyond[:, :, None] | beyond[:, None]), axis=(1, 2))
    return (size >= 1) & (size <= N) & closed & jnp.all(free | ~there, axis=1) & ~twice


def numpy_instance(
    holes: np.ndarray, size: int, starts: np.ndarray, goals: np.ndarray, num_agents: int
) -> Instance:
    """Make an instance with NumPy leaves and agents in the first slots; see `Instance`."""
    mask = np.arange(len(starts)) < num_agents
    leaves: list[Any] = [holes, np.int32(size), starts, goals, mask]
    return Instance(*leaves)


def agent_tasks(instance: Instance) -> list[tuple[int, ...]]:
    """List (agent, start row, start column, goal row, goal column) of each agent of one board."""
    starts, goals = np.asarray(instance.starts).tolist(), np.asarray(instance.goals).tolist()
    agents = np.flatnonzero(np.asarray(instance.agent_mask)).tolist()
    return [(agent, *starts[agent], *goals[agent]) for agent in agents]


def stack_instances(instances: Sequence[Instance]) -> Instance:
    """Stack single boards into one batch, leaves (B, ...) (host side, NumPy).

    Boards of different N or K are padded to the largest of each: with holes, and with slots
    without an agent.

    Raises:
        ValueError: No instances were given, or one of them is a batch.
    """
    if not instances:
        raise ValueError("instances: got an empty sequence, at least one is needed")
    for number, instance in enumerate(instances):
        if np.ndim(instance.size):
            shape = np.shape(instance.size)
            raise ValueError(f"instances: number {number} is a batch of shape {shape}, not a board")
    N = max(np.shape(instance.holes)[-1] for instance in instances)
    K = max(np.shape(instance.agent_mask)[-1] for instance in instances)
    padded = [pad_instance(instance, N, K) for instance in instances]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *padded)


def pad_instance(instance: Instance, max_size: int, max_agents: int) -> Instance:
    """Pad one board to `max_size` rows, holes, and `max_agents` slots, empty; NumPy leaves."""
    leaves = {name: np.asarray(leaf) for name, leaf in vars(instance).items()}
    rows = max_size - leaves["holes"].shape[-1]
    slots = max_agents - leaves["agent_mask"].shape[-1]
    leaves["holes"] = np.pad(leaves["holes"], [(0, rows)] * 2, constant_values=True)
    for name in ("starts", "goals"):
        leaves[name] = np.pad(leaves[name], [(0, slots), (0, 0)])
    leaves["agent_mask"] = np.pad(leaves["agent_mask"], (0, slots))
    padded: dict[str, Any] = leaves
    return Instance(**padded)
