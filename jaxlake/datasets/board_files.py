"""Read and write the output of `generate` as `.npz` files."""

import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import jax
import numpy as np

from jaxlake.board.instance import Instance, check_board_values, numpy_instance
from jaxlake.datasets.source_files import DatasetError
from jaxlake.files import open_atomic
from jaxlake.generator import Generated
from jaxlake.remote_files import AnyPath, as_path
from jaxlake.solver import Solution
from jaxlake.solver.solution import unknown_solution

_NESTED_FIELDS = {"instances": Instance, "solutions": Solution}
_BOARD_FIELDS = (*_NESTED_FIELDS, "filled", "component")
_FILE_KEYS = {"component": "cell"}  # fields that files store under another name
COUNTS = tuple(field.name for field in fields(Generated) if field.name not in _BOARD_FIELDS)
"""The fields of `Generated` with one count per component of the mixture."""


def save(lakes: Generated, path: str | os.PathLike[str]) -> None:
    """Save a set of boards with their solutions to one file; `load` reads it.

    Args:
        lakes: The output of `generate`. Missing boards are left out; the counts are kept.
        path: The file, whatever its extension, or the URL of one in an object store.

    Raises:
        TypeError: `lakes` is not a `Generated`.
        ValueError: `lakes` holds several sets.
        OSError: The file cannot be written.
    """
    if not isinstance(lakes, Generated):
        raise TypeError(f"lakes must be the output of generate, got {type(lakes).__name__}")
    if len(shape := np.shape(lakes.filled)) != 1:
        raise ValueError(
            f"lakes must be one set with filled of shape (B,), got {shape}; select a set by "
            "jax.tree.map(lambda leaf: leaf[i], lakes)"
        )
    write_boards(as_path(path), lakes)


def load(path: str | os.PathLike[str]) -> Generated:
    """Return a set of boards that `save` wrote.

    Args:
        path: The file, or its URL.

    Returns:
        The set, all slots filled, with NumPy leaves.

    Raises:
        DatasetError: The file is missing, damaged, or not a file of boards.
    """
    lakes = read_boards(as_path(path))
    try:
        N, (horizon, K) = lakes.instances.holes.shape[-1], lakes.solutions.plan.shape[-2:]
        check_leaves(lakes, N, K, horizon)
    except (IndexError, TypeError, ValueError) as error:
        raise DatasetError(f"{path}: is damaged: {error!s:.200}") from None
    return lakes


def write_boards(path: AnyPath, boards: Generated, **texts: str) -> None:
    """Write the filled slots of a set, and named texts. Equal values give equal bytes."""
    arrays: dict[str, np.ndarray] = {name: np.array(text) for name, text in texts.items()}
    filled = np.asarray(boards.filled)
    for name, leaf in vars(boards).items():
        if name in _NESTED_FIELDS:
            for field, values in vars(leaf).items():
                arrays[f"{name}.{field}"] = np.asarray(values)[filled]
        else:
            values = np.asarray(leaf)
            arrays[_FILE_KEYS.get(name, name)] = values[filled] if name in _BOARD_FIELDS else values
    with open_atomic(path, "wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def read_boards(path: AnyPath) -> Generated:
    """Read a file of `write_boards`, with NumPy leaves; raise `DatasetError` if it is damaged."""
    with open_boards(path) as arrays:
        leaves: dict[str, Any] = {
            name: struct(**{field.name: arrays[f"{name}.{field.name}"] for field in fields(struct)})
            for name, struct in _NESTED_FIELDS.items()
        }
        for name in ("filled", "component", *COUNTS):
            leaves[name] = arrays[_FILE_KEYS.get(name, name)]
    return Generated(**leaves)


@contextmanager
def open_boards(path: AnyPath) -> Iterator[Mapping[str, np.ndarray]]:
    """Open a file of boards as arrays by name; raise `DatasetError` if it is damaged."""
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("it is not a .npz file")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                yield arrays
    except FileNotFoundError:
        raise DatasetError(f"{path}: is missing") from None
    except IsADirectoryError:
        raise DatasetError(f"{path}: must be a file of boards, got a folder") from None
    except Exception as error:  # zipfile and NumPy raise many types
        problem = f"is damaged, or not a file of boards: {error!s:.200}"
        raise DatasetError(f"{path}: {problem}") from None


def check_leaves(boards: Generated, max_size: int, max_agents: int, horizon: int) -> None:
    """Check the dtypes and shapes of all leaves, and that all slots hold valid boards.

    Args:
        boards: The boards, with NumPy leaves.
        max_size: N, the padded size of the boards.
        max_agents: K, the padded number of agents.
        horizon: The longest plan, in steps.

    Raises:
        ValueError: A leaf has another dtype or shape, or a board is invalid.
    """
    positions = np.zeros((max_agents, 2), np.int8)
    board = numpy_instance(np.ones((max_size, max_size), bool), 0, positions, positions, 0)
    flags = (np.bool_(True), np.int32(0))
    templates = jax.tree.leaves((board, unknown_solution(horizon, max_agents), flags))
    leaves = jax.tree.leaves(
        (boards.instances, boards.solutions, (boards.filled, boards.component))
    )
    for leaf, template in zip(leaves, templates, strict=True):
        if leaf.dtype != template.dtype or leaf.shape != (len(boards.component), *template.shape):
            expected_type = f"{template.dtype} {template.shape} per board"
            raise ValueError(f"an array must be {expected_type}, got {leaf.dtype} {leaf.shape}")
    check_board_values(boards.instances)


def concatenate(parts: list[Generated]) -> Generated:
    """Merge sets of the same mixture into one, sorted by component, with summed counts."""
    order = np.argsort(np.concatenate([part.component for part in parts]), kind="stable")
    leaves: dict[str, Any] = {
        name: np.sum([getattr(part, name) for part in parts], axis=0, dtype=np.int64)
        for name in COUNTS
    }
    for name in _BOARD_FIELDS:
        values = [getattr(part, name) for part in parts]
        leaves[name] = jax.tree.map(lambda *rows: np.concatenate(rows)[order], *values)
    return Generated(**leaves)
