"""Boards for both sides of a comparison, drawn with NumPy: neither side's code chooses them."""

from pathlib import Path

import numpy as np

_DRAWN_AT_ONCE = 8192


def write_boards(
    path: Path, *, count: int, size: int, num_agents: int, hole_ratio: float, seed: int
) -> None:
    """Write an NPZ file of boards on which each agent, alone, can reach its goal.

    Holes are floor(hole_ratio * size * size) cells, starts and goals distinct free cells, all
    uniform. Boards with an agent that is cut off from its goal are left out: they are settled
    without any search. Boards on which only the agents together are in each other's way stay in.

    Keys: `holes` bool (count, size, size); `starts`, `goals` int8 (count, num_agents, 2).
    """
    rng = np.random.default_rng(seed)
    holes_wanted = int(hole_ratio * size * size + 1e-9)
    kept: dict[str, list[np.ndarray]] = {"holes": [], "starts": [], "goals": []}
    missing = count
    while missing > 0:
        order = np.argsort(rng.random((_DRAWN_AT_ONCE, size * size), np.float32), axis=1)
        cells = np.zeros((_DRAWN_AT_ONCE, size * size), bool)
        np.put_along_axis(cells, order[:, :holes_wanted], True, axis=1)
        holes = cells.reshape(-1, size, size)
        ends = order[:, holes_wanted : holes_wanted + 2 * num_agents]
        places = np.stack([ends // size, ends % size], axis=-1).astype(np.int8)
        starts, goals = places[:, :num_agents], places[:, num_agents:]
        connected = np.flatnonzero(_connected(~holes, starts, goals))[:missing]
        for name, leaf in (("holes", holes), ("starts", starts), ("goals", goals)):
            kept[name].append(leaf[connected])
        missing -= len(connected)
    np.savez(path, **{name: np.concatenate(leaves) for name, leaves in kept.items()})


def _connected(free: np.ndarray, starts: np.ndarray, goals: np.ndarray) -> np.ndarray:
    """bool (B,): whether every agent's start and goal lie in one part of the free cells."""
    B, size = free.shape[:2]
    # Every free cell takes the largest number of its neighbourhood until all of a part agree.
    kind = np.uint8 if size * size < 256 else np.uint16
    labels = np.arange(1, size * size + 1, dtype=kind).reshape(size, size) * free
    while True:
        padded = np.pad(labels, [(0, 0), (1, 1), (1, 1)])
        largest = labels
        for rows, columns in ((0, 1), (2, 1), (1, 0), (1, 2)):
            neighbour = padded[:, rows : rows + size, columns : columns + size]
            largest = np.maximum(largest, neighbour)
        largest = largest * free
        if np.array_equal(largest, labels):
            break
        labels = largest
    board = np.arange(B)[:, None]
    ends = [labels[board, places[..., 0], places[..., 1]] for places in (starts, goals)]
    return np.all(ends[0] == ends[1], axis=1)
