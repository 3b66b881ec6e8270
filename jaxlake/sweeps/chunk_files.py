"""Content of the files of a chunk: Parquet rows and NumPy tables, with the digest of the sweep.

Equal results give equal bytes, so interrupted and uninterrupted sweeps end with identical files.
"""

import io
import zipfile
from dataclasses import fields
from types import ModuleType
from typing import Any

import numpy as np

from jaxlake.statistics.summaries import COUNTERS, summary_columns
from jaxlake.statistics.tables import Statistics
from jaxlake.sweeps.knobs import KNOBS, SweepError
from jaxlake.sweeps.program import ChunkResult
from jaxlake.sweeps.spec import SweepSpec

_OWNER = "sweep"
"""Metadata key for the digest of the sweep and the number of the chunk."""


def row_columns(
    spec: SweepSpec, numbers: np.ndarray, knobs: dict[str, np.ndarray], result: ChunkResult
) -> dict[str, np.ndarray]:
    """Return the columns of a chunk's rows: one row per configuration (C,) and policy."""
    C, names = len(numbers), list(spec.joint_policies)
    columns = {"configuration": numbers.astype(np.int64), **knobs}
    columns = {name: np.repeat(values, len(names)) for name, values in columns.items()}
    columns["policy"] = np.tile(np.array(names, dtype=object), C)
    counters = summary_columns(result.summaries)
    return columns | {name: values[:C].reshape(-1) for name, values in counters.items()}


def rows_bytes(columns: dict[str, np.ndarray], owner: str) -> bytes:
    """Return columns as the content of a Parquet file."""
    table = import_pyarrow().table(columns).replace_schema_metadata({_OWNER: owner})
    return _parquet_bytes(table)


def read_rows(content: bytes) -> tuple[Any, str]:
    """Return the table in an intact file of rows, and its owner.

    Raises:
        Exception: The file is damaged; pyarrow raises several types of errors.
    """
    pyarrow = import_pyarrow()
    file = pyarrow.parquet.ParquetFile(io.BytesIO(content), page_checksum_verification=True)
    table = file.read()
    # Checksums cover only the values. Other versions of pyarrow write different bytes.
    same_version = f"version {pyarrow.__version__}" in file.metadata.created_by
    if same_version and _parquet_bytes(table) != content:
        raise ValueError("the bytes of the file do not match its rows")
    owner = (table.schema.metadata or {})[_OWNER.encode()].decode()
    knobs = {
        name: pyarrow.int32() if knob.whole else pyarrow.float64() for name, knob in KNOBS.items()
    }
    counters = dict.fromkeys(("boards", *COUNTERS), pyarrow.int64())
    types = {"configuration": pyarrow.int64(), **knobs, "policy": pyarrow.string(), **counters}
    return table.select(list(types)).cast(pyarrow.schema(types)), owner


def _parquet_bytes(table: Any) -> bytes:
    file = io.BytesIO()
    import_pyarrow().parquet.write_table(
        table, file, row_group_size=len(table), compression="zstd", write_page_checksum=True
    )
    return file.getvalue()


def tables_bytes(spec: SweepSpec, numbers: np.ndarray, tables: Statistics, owner: str) -> bytes:
    """Return full tables, leaves (C, P, ...), as the content of an `.npz` file."""
    leaves = {
        field.name: np.asarray(getattr(tables, field.name))[: len(numbers)]
        for field in fields(tables)
    }
    leaves["configuration"], leaves["policy"] = numbers, np.array(list(spec.joint_policies))
    file = io.BytesIO()
    np.savez_compressed(file, **leaves, **{_OWNER: np.array(owner)})  # type: ignore[arg-type]
    return file.getvalue()


def tables_owner(content: bytes) -> str:
    """Return the owner of a file of tables after checking every table.

    Raises:
        Exception: The file is damaged; zipfile and NumPy raise several types of errors.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if (damaged := archive.testzip()) is not None:
            raise ValueError(f"{damaged} is damaged")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return str(arrays[_OWNER])


def import_pyarrow() -> ModuleType:
    """Return the imported `pyarrow`, with `pyarrow.parquet`.

    Raises:
        SweepError: pyarrow is not installed; the message names the extra.
    """
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise SweepError("sweeps need pyarrow: pip install 'jaxlake[sweeps]'") from None
    module: ModuleType = pyarrow
    return module
