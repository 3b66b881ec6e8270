"""Reader for the rows of a sweep."""

import io

import numpy as np

from jaxlake.remote_files import AnyPath, as_path
from jaxlake.sweeps.chunk_files import import_pyarrow
from jaxlake.sweeps.folder import ROWS, read_manifest
from jaxlake.sweeps.knobs import SweepError


def read(path: str | AnyPath) -> dict[str, np.ndarray]:
    """Return the rows of a finished or unfinished sweep as columns by name.

    Args:
        path: The folder of the sweep.

    Returns:
        Columns with one row per configuration and policy, in the order of configurations:
        `configuration`, `size` and `num_agents` (integers), `hole_ratio` and `wait_ratio`
        (float64), `policy` (str), and the counters of `summary_columns` (int64).

    Raises:
        SweepError: The folder does not belong to a sweep or has no rows yet, a file is damaged, or
            pyarrow is not installed.
    """
    parquet = import_pyarrow().parquet
    read_manifest(path)
    folder = as_path(path) / ROWS
    files = sorted(file.name for file in folder.iterdir() if file.suffix == ".parquet")
    if not files:
        raise SweepError(f"{path}: has no rows yet")
    parts = []
    for name in files:
        try:
            content = io.BytesIO((folder / name).read_bytes())
            table = parquet.read_table(content, page_checksum_verification=True)
        except (OSError, ValueError) as error:
            problem = f"{folder / name}: is damaged: {error}; run the sweep again"
            raise SweepError(problem) from None
        parts.append({name: table[name].to_numpy() for name in table.column_names})
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return columns | {"policy": columns["policy"].astype(str)}
