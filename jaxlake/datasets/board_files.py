"""Solved boards in `.npz` files, as `generate` returns them."""

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxlake.board.instance import Instance
from jaxlake.datasets.source_files import DatasetError
from jaxlake.files import open_whole
from jaxlake.generator import Generated
from jaxlake.solver import Solution

_NESTED = {"instances": Instance, "solutions": Solution}
_BY_BOARD = (*_NESTED, "filled", "cell")
COUNTS = tuple(one.name for one in fields(Generated) if one.name not in _BY_BOARD)
_UNREADABLE = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error)


def write_boards(path: Path, made: Generated, **texts: str) -> None:
    """Write the filled slots of a set, and texts by name: the same bytes for the same values."""
    arrays: dict[str, np.ndarray] = {name: np.array(text) for name, text in texts.items()}
    filled = np.asarray(made.filled)
    for name, leaf in vars(made).items():
        leaves = (
            {f"{name}.{inner}": x for inner, x in vars(leaf).items()} if name in _NESTED else {}
        )
        for full, values in (leaves or {name: leaf}).items():
            arrays[full] = np.asarray(values)[filled] if name in _BY_BOARD else np.asarray(values)
    with open_whole(path, "wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def read_boards(path: Path) -> Generated:
    """Read what `write_boards` wrote, with NumPy leaves; a `DatasetError` names a damaged file."""
    with _opened(path) as arrays:
        leaves: dict[str, Any] = {
            name: kind(**{one.name: arrays[f"{name}.{one.name}"] for one in fields(kind)})
            for name, kind in _NESTED.items()
        }
        for one in fields(Generated):
            if one.name not in leaves:
                leaves[one.name] = arrays[one.name]
    return Generated(**leaves)


def read_text_of(path: Path, name: str) -> str:
    """Read one text of a file of boards; a `DatasetError` names a damaged file."""
    with _opened(path) as arrays:
        return str(arrays[name])


def read_counts_of(path: Path) -> dict[str, np.ndarray]:
    """Read the counts of a file of boards by name; a `DatasetError` names a damaged file."""
    with _opened(path) as arrays:
        return {name: arrays[name] for name in COUNTS}


def concatenate(parts: list[Generated]) -> Generated:
    """Join sets of one mixture to one that is sorted by cell; their counts are added up."""
    cells = np.concatenate([part.cell for part in parts])
    order = np.argsort(cells, kind="stable")

    def joined(*leaves: Any) -> Any:
        return np.concatenate(leaves)[order]

    leaves: dict[str, Any] = {}
    for one in fields(Generated):
        values = [getattr(part, one.name) for part in parts]
        if one.name in _BY_BOARD:
            leaves[one.name] = jax.tree.map(joined, *values)
        else:
            leaves[one.name] = np.sum(values, axis=0, dtype=np.int64)
    return Generated(**leaves)


@contextmanager
def _opened(path: Path) -> Iterator[Mapping[str, np.ndarray]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            yield arrays
    except FileNotFoundError:
        raise DatasetError(f"{path}: is missing") from None
    except _UNREADABLE as error:
        raise DatasetError(f"{path}: is damaged, or not a file of boards: {error}") from None
