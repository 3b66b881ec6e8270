"""Solved boards as the columns of a file, and back: what an NPZ shard holds.

| column | dtype, shape | |
|---|---|---|
| holes | uint8 (B, ceil(N * N / 8)) | `numpy.packbits` of the rows one after another |
| size, num_agents | int8 (B,) | agents are in slots 0..num_agents-1 |
| starts, goals | int8 (B, K, 2) | (row, column) |
| cell | int32 (B,) | index into the parameters of the set |
| status | int8 (B,) | a `Status` |
| sum_of_costs, makespan | int16 (B,) | |
| needs_wait | bool (B,) | |
| plan, makespan_plan | int8 (B, T, K) | cut after the last step that moves an agent |
| expansions | int32 (B,) | |
"""

import hashlib
import io
import zipfile
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxlake.instance import Instance
from jaxlake.solver import Solution

Columns = dict[str, np.ndarray]

_NAMES = (
    "holes",
    "size",
    "num_agents",
    "starts",
    "goals",
    "cell",
    "status",
    "sum_of_costs",
    "makespan",
    "needs_wait",
    "plan",
    "makespan_plan",
    "expansions",
)
# The oldest time a ZIP archive can name: equal content gives equal files, whenever it is written.
_EPOCH = (1980, 1, 1, 0, 0, 0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Boards:
    """Solved boards with a leading axis (B, ...) and NumPy leaves; all of them OPTIMAL."""

    instances: Instance
    solutions: Solution
    cell: np.ndarray  # int32 (B,), index into the parameters of the set

    def __len__(self) -> int:
        return len(self.cell)

    def take(self, rows: np.ndarray) -> "Boards":
        """The boards at `rows` (indices or a mask), in that order."""
        taken: Boards = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], self)
        return taken


def concatenate(parts: list[Boards]) -> Boards:
    """One batch after the other."""
    joined: Boards = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    return joined


def to_columns(boards: Boards) -> Columns:
    """The columns of a batch; see the table above."""
    instances, solutions = boards.instances, boards.solutions
    count = len(boards)
    return {
        "holes": np.packbits(np.asarray(instances.holes).reshape(count, -1), axis=1),
        "size": np.asarray(instances.size).astype(np.int8),
        "num_agents": np.sum(instances.agent_mask, axis=1).astype(np.int8),
        "starts": np.asarray(instances.starts),
        "goals": np.asarray(instances.goals),
        "cell": np.asarray(boards.cell),
        "status": np.asarray(solutions.status),
        "sum_of_costs": np.asarray(solutions.sum_of_costs),
        "makespan": np.asarray(solutions.makespan),
        "needs_wait": np.asarray(solutions.needs_wait),
        "plan": _cut(np.asarray(solutions.plan)),
        "makespan_plan": _cut(np.asarray(solutions.makespan_plan)),
        "expansions": np.asarray(solutions.expansions),
    }


def from_columns(columns: Columns, *, max_size: int, max_agents: int, horizon: int) -> Boards:
    """The batch that the columns were made of, with its paddings and dtypes.

    Raises:
        ValueError: a column is missing, or has another dtype or shape.
    """
    missing = [name for name in _NAMES if name not in columns]
    if missing:
        raise ValueError(f"the columns {', '.join(missing)} are missing")
    count, cells = len(columns["cell"]), max_size * max_size
    shapes: dict[str, tuple[str, tuple[int | None, ...]]] = {
        "holes": ("uint8", (count, -(-cells // 8))),
        "starts": ("int8", (count, max_agents, 2)),
        "goals": ("int8", (count, max_agents, 2)),
        "plan": ("int8", (count, None, max_agents)),
        "makespan_plan": ("int8", (count, None, max_agents)),
        "needs_wait": ("bool", (count,)),
        **dict.fromkeys(("size", "num_agents", "status"), ("int8", (count,))),
        **dict.fromkeys(("sum_of_costs", "makespan"), ("int16", (count,))),
        **dict.fromkeys(("cell", "expansions"), ("int32", (count,))),
    }
    for name, (dtype, shape) in shapes.items():
        got = columns[name]
        fits = len(got.shape) == len(shape) and all(
            want in (None, have) for want, have in zip(shape, got.shape, strict=True)
        )
        if got.dtype != dtype or not fits:
            raise ValueError(f"{name}: got {got.dtype} {got.shape}, {dtype} {shape} is needed")
    holes = np.unpackbits(columns["holes"], axis=1, count=cells).astype(bool)
    instance: dict[str, Any] = {
        "holes": holes.reshape(count, max_size, max_size),
        "size": columns["size"].astype(np.int32),
        "starts": columns["starts"],
        "goals": columns["goals"],
        "agent_mask": np.arange(max_agents) < columns["num_agents"][:, None],
    }
    solution: dict[str, Any] = {
        name: columns[name]
        for name in ("status", "sum_of_costs", "makespan", "needs_wait", "expansions")
    }
    for name in ("plan", "makespan_plan"):
        solution[name] = _lengthen(columns[name], horizon)
    return Boards(Instance(**instance), Solution(**solution), columns["cell"])


def to_npz(columns: Columns) -> bytes:
    """A compressed NPZ archive: equal bytes for equal columns, on one version of zlib."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as out:
        for name in _NAMES:
            entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            array = io.BytesIO()
            np.lib.format.write_array(array, np.ascontiguousarray(columns[name]), version=(1, 0))
            out.writestr(entry, array.getvalue())
    return archive.getvalue()


def from_npz(content: bytes) -> Columns:
    """The columns of an archive.

    Raises:
        ValueError: it is no NPZ archive, or a damaged one.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"not an NPZ archive: {error}") from None


def content_sha256(columns: Columns) -> str:
    """SHA-256 of names, dtypes, shapes and values: the same whatever compressed the file."""
    digest = hashlib.sha256()
    for name in _NAMES:
        array = np.ascontiguousarray(columns[name])
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{name} {little.dtype.str} {array.shape}\n".encode())
        digest.update(little.tobytes())
    return digest.hexdigest()


def _cut(plans: np.ndarray) -> np.ndarray:
    moves = np.flatnonzero(np.any(plans != 0, axis=(0, 2)))
    return plans[:, : moves[-1] + 1 if len(moves) else 0]


def _lengthen(plans: np.ndarray, horizon: int) -> np.ndarray:
    if plans.shape[1] > horizon:
        raise ValueError(f"plan: got {plans.shape[1]} steps, the horizon is {horizon}")
    return np.pad(plans, [(0, 0), (0, horizon - plans.shape[1]), (0, 0)])
