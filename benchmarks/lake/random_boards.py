"""Random boards for both sides of a comparison, drawn with NumPy, independently of both."""

from pathlib import Path

import numpy as np
from scipy import ndimage

_BATCH_SIZE = 8192


def write_boards(
    path: Path, *, count: int, size: int, num_agents: int, hole_ratio: float, seed: int
) -> None:
    """Write an NPZ file of boards on which each agent alone can reach its goal.

    Holes are floor(hole_ratio * size * size) cells; starts and goals are distinct free cells. All
    are uniform. Boards that disconnect an agent from its goal are excluded, because no search is
    needed for them. Boards that are unsolvable only for all agents together are included.

    The file holds `holes`, bool (count, size, size), and `starts` and `goals`, int8
    (count, num_agents, 2).
    """
    rng = np.random.default_rng(seed)
    num_holes = int(hole_ratio * size * size + 1e-9)
    arrays: dict[str, list[np.ndarray]] = {"holes": [], "starts": [], "goals": []}
    num_missing = count
    while num_missing > 0:
        order = np.argsort(rng.random((_BATCH_SIZE, size * size), np.float32), axis=1)
        cells = np.zeros((_BATCH_SIZE, size * size), bool)
        np.put_along_axis(cells, order[:, :num_holes], True, axis=1)
        holes = cells.reshape(-1, size, size)
        end_cells = order[:, num_holes : num_holes + 2 * num_agents]
        coordinates = np.stack([end_cells // size, end_cells % size], axis=-1).astype(np.int8)
        starts, goals = coordinates[:, :num_agents], coordinates[:, num_agents:]
        rows = np.flatnonzero(are_connected(~holes, starts, goals))[:num_missing]
        for name, array in (("holes", holes), ("starts", starts), ("goals", goals)):
            arrays[name].append(array[rows])
        num_missing -= len(rows)
    np.savez(path, **{name: np.concatenate(parts) for name, parts in arrays.items()})


def are_connected(free: np.ndarray, starts: np.ndarray, goals: np.ndarray) -> np.ndarray:
    """Return whether each agent's start and goal lie in one component of the free cells.

    Args:
        free: bool (B, N, N).
        starts: int (B, K, 2), free cells.
        goals: int (B, K, 2), free cells.

    Returns:
        bool (B,).
    """
    structure = np.zeros((3, 3, 3), bool)
    structure[1] = ndimage.generate_binary_structure(2, 1)  # no neighbours on other boards
    labels, _ = ndimage.label(free, structure)
    board = np.arange(len(free))[:, None]
    end_labels = [labels[board, cells[..., 0], cells[..., 1]] for cells in (starts, goals)]
    return np.all(end_labels[0] == end_labels[1], axis=1)
