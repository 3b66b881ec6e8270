"""Instance: one frozen lake with its agents, padded to static shapes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
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
