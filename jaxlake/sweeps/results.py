"""Reader for the rows of a sweep."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxlake.remote_files import AnyPath, as_path
from jaxlake.sweeps.chunk_files import decode_rows, import_pyarrow
from jaxlake.sweeps.folder import MANIFEST, ROWS_FOLDER, read_manifest
from jaxlake.sweeps.knobs import SweepError


def read(path: str | AnyPath) -> dict[str, np.ndarray]:
    """Return the rows of a finished or unfinished sweep as columns by name.

    Args:
        path: The folder of the sweep.

    Returns:
        Columns with one row per configuration and policy, ordered by configuration:
        `configuration`, `size` and `num_agents` (integers), `hole_ratio` and `wait_ratio`
        (float64), `policy` (str), and the counters of `summary_columns` (int64).

    Raises:
        SweepError: The folder does not belong to a sweep or has no rows yet; a file is missing,
            damaged or from another sweep; or pyarrow is not installed.
    """
    pyarrow, manifest = import_pyarrow(), read_manifest(path)
    folder = as_path(path)
    expected_names = {name for name in manifest["files"] if name.startswith(f"{ROWS_FOLDER}/")}
    names = {
        f"{ROWS_FOLDER}/{file.name}"
        for file in (folder / ROWS_FOLDER).iterdir()
        if file.name.endswith(".parquet")
    }
    if missing_names := expected_names - names:
        raise SweepError(f"{folder / min(missing_names)}: is missing; run the sweep again")
    if not names:
        raise SweepError(f"{path}: has no rows yet")
    rows = pyarrow.concat_tables([_read_file(folder, name, manifest) for name in sorted(names)])
    columns = {name: rows[name].to_numpy() for name in rows.column_names}
    return columns | {"policy": columns["policy"].astype(str)}


def _read_file(folder: AnyPath, name: str, manifest: Mapping[str, Any]) -> Any:
    """Return the table in a file of rows."""
    try:
        content = (folder / name).read_bytes()
        rows, chunk_id = decode_rows(content)
        sweep_digest, _, chunk = chunk_id.partition(" ")
        file_digest = manifest["files"].get(name)
        if file_digest is not None and hashlib.sha256(content).hexdigest() != file_digest:
            raise ValueError(f"its SHA-256 is not in {MANIFEST}")
    except Exception as error:  # pyarrow raises many types
        raise SweepError(
            f"{folder / name}: is damaged: {error!s:.200}; run the sweep again"
        ) from None
    if sweep_digest != manifest["digest"] or name != f"{ROWS_FOLDER}/rows-{chunk:0>6}.parquet":
        raise SweepError(f"{folder / name}: belongs to another sweep or chunk; remove it")
    return rows
