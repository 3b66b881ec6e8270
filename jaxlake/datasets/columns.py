"""Solved boards as the columns of a table, and as a Parquet file: what a shard holds."""

import hashlib
import io
from typing import Any

import numpy as np

from jaxlake.board.instance import Instance
from jaxlake.datasets.source_files import import_parquet
from jaxlake.generator.quotas import SolvedBoards
from jaxlake.solver import Solution

Columns = dict[str, np.ndarray]

# The shape of a row has sides named in `from_columns`.
_TYPES: dict[str, tuple[str, tuple[str, ...]]] = {
    "holes": ("uint8", ("bytes",)),  # `numpy.packbits` of the rows one after another
    "size": ("int8", ()),
    "num_agents": ("int8", ()),  # in slots 0..num_agents-1
    "starts": ("int8", ("agents", "place")),
    "goals": ("int8", ("agents", "place")),
    "cell": ("int32", ()),  # index into the parameters of the set
    "status": ("int8", ()),  # a `Status`
    "sum_of_costs": ("int16", ()),
    "makespan": ("int16", ()),
    "needs_wait": ("bool", ()),
    "plan": ("int8", ("steps", "agents")),  # cut after the last step in which anyone moves
    "makespan_plan": ("int8", ("steps", "agents")),
    "expansions": ("int32", ()),
}
_SOLUTION = ("status", "sum_of_costs", "makespan", "needs_wait", "expansions")


def to_columns(boards: SolvedBoards) -> Columns:
    """Give the columns of a batch, as `_TYPES` lists them."""
    instances, solutions = boards.instances, boards.solutions
    count, holes = len(boards), np.asarray(instances.holes)
    return {
        "holes": np.packbits(holes.reshape(count, holes.shape[1] * holes.shape[2]), axis=1),
        "size": np.asarray(instances.size).astype(np.int8),
        "num_agents": np.sum(instances.agent_mask, axis=1).astype(np.int8),
        "starts": np.asarray(instances.starts),
        "goals": np.asarray(instances.goals),
        "cell": np.asarray(boards.cell),
        "plan": _cut(np.asarray(solutions.plan)),
        "makespan_plan": _cut(np.asarray(solutions.makespan_plan)),
        **{name: np.asarray(getattr(solutions, name)) for name in _SOLUTION},
    }


def from_columns(columns: Columns, *, max_size: int, max_agents: int, horizon: int) -> SolvedBoards:
    """Give the batch that the columns were made of, or raise a `ValueError` that names a column."""
    missing = [name for name in _TYPES if name not in columns]
    if missing:
        raise ValueError(f"the columns {', '.join(missing)} are missing")
    count, cells = len(columns["cell"]), max_size * max_size
    sides = {"bytes": -(-cells // 8), "agents": max_agents, "place": 2, "steps": None}
    for name, (dtype, row) in _TYPES.items():
        got, shape = columns[name], (count, *(sides[side] for side in row))
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
    solution: dict[str, Any] = {name: columns[name] for name in _SOLUTION}
    for name in ("plan", "makespan_plan"):
        solution[name] = _lengthen(columns[name], horizon)
    return SolvedBoards(Instance(**instance), Solution(**solution), columns["cell"])


def to_parquet(columns: Columns) -> bytes:
    """Write a Parquet file: equal bytes for equal columns, with one version of pyarrow."""
    pyarrow, parquet = import_parquet()
    arrays = []
    for name in _TYPES:
        array = columns[name]
        if array.ndim == 3 and not array.shape[1]:
            # Lists have a length: where nobody moves, plans have one step of waiting.
            array = np.zeros((len(array), 1, array.shape[2]), array.dtype)
        values = pyarrow.array(array.reshape(-1))
        for side in array.shape[:0:-1]:
            values = pyarrow.FixedSizeListArray.from_arrays(values, side)
        arrays.append(values)
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(arrays, names=list(_TYPES)), file, compression="zstd")
    return file.getvalue()


def from_parquet(content: bytes) -> Columns:
    """Read the columns of a Parquet file, or raise a `ValueError` if it is none or damaged."""
    pyarrow, parquet = import_parquet()
    columns = {}
    try:
        table = parquet.read_table(pyarrow.BufferReader(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"not a Parquet file: {error}") from None
    for name in table.column_names:
        values = table.column(name).combine_chunks()
        shape = [len(values)]
        while pyarrow.types.is_fixed_size_list(values.type):
            shape.append(values.type.list_size)
            values = values.flatten()
        array = values.to_numpy(zero_copy_only=False).reshape(shape)
        columns[name] = _cut(array) if name in ("plan", "makespan_plan") else array
    return columns


def content_sha256(columns: Columns) -> str:
    """Hash names, dtypes, shapes and values by SHA-256, however the file is compressed."""
    digest = hashlib.sha256()
    for name in _TYPES:
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
