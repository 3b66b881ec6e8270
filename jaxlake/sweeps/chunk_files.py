"""Encoding of a chunk's results as files: rows in Parquet, and tables in NumPy's `.npz` format.

Each file stores the id of its chunk: the digest of the sweep and the chunk's index. Equal results
give equal bytes, so interrupted and uninterrupted sweeps end with identical files.
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

_CHUNK_ID_KEY = "sweep"
"""Metadata key of the chunk id."""


def make_row_columns(
    spec: SweepSpec, indices: np.ndarray, knobs: dict[str, np.ndarray], result: ChunkResult
) -> dict[str, np.ndarray]:
    """Return the columns of a chunk's rows: one row per configuration (C,) and policy."""
    C, policies = len(indices), list(spec.joint_policies)
    columns = {"configuration": indices.astype(np.int64), **knobs}
    columns = {name: np.repeat(values, len(policies)) for name, values in columns.items()}
    columns["policy"] = np.tile(np.array(policies, dtype=object), C)
    counters = summary_columns(result.summaries)
    return columns | {name: values[:C].reshape(-1) for name, values in counters.items()}


def encode_rows(columns: dict[str, np.ndarray], chunk_id: str) -> bytes:
    """Return columns as the content of a Parquet file."""
    table = import_pyarrow().table(columns).replace_schema_metadata({_CHUNK_ID_KEY: chunk_id})
    return _encode_parquet(table)


def decode_rows(content: bytes) -> tuple[Any, str]:
    """Return the table and the chunk id of a file of rows.

    Raises:
        Exception: The file is damaged; pyarrow raises several types of errors.
    """
    pyarrow = import_pyarrow()
    file = pyarrow.parquet.ParquetFile(io.BytesIO(content), page_checksum_verification=True)
    table = file.read()
    # Checksums cover only the values. Other versions of pyarrow write different bytes.
    is_same_version = f"version {pyarrow.__version__}" in file.metadata.created_by
    if is_same_version and _encode_parquet(table) != content:
        raise ValueError("the bytes of the file do not match its rows")
    chunk_id = (table.schema.metadata or {})[_CHUNK_ID_KEY.encode()].decode()
    knobs = {
        name: pyarrow.int32() if knob.is_integer else pyarrow.float64()
        for name, knob in KNOBS.items()
    }
    counters = dict.fromkeys(("boards", *COUNTERS), pyarrow.int64())
    types = {"configuration": pyarrow.int64(), **knobs, "policy": pyarrow.string(), **counters}
    return table.select(list(types)).cast(pyarrow.schema(types)), chunk_id


def _encode_parquet(table: Any) -> bytes:
    file = io.BytesIO()
    import_pyarrow().parquet.write_table(
        table, file, row_group_size=len(table), compression="zstd", write_page_checksum=True
    )
    return file.getvalue()


def encode_tables(spec: SweepSpec, indices: np.ndarray, tables: Statistics, chunk_id: str) -> bytes:
    """Return full tables, leaves (C, P, ...), as the content of an `.npz` file."""
    arrays = {
        field.name: np.asarray(getattr(tables, field.name))[: len(indices)]
        for field in fields(tables)
    }
    arrays["configuration"] = indices
    arrays["policy"] = np.array(list(spec.joint_policies))
    arrays[_CHUNK_ID_KEY] = np.array(chunk_id)
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def decode_tables_id(content: bytes) -> str:
    """Check all arrays in a file of tables, and return the file's chunk id.

    Raises:
        Exception: The file is damaged; zipfile and NumPy raise several types of errors.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if (damaged_name := archive.testzip()) is not None:
            raise ValueError(f"{damaged_name} is damaged")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return str(arrays[_CHUNK_ID_KEY])


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
