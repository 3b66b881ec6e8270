"""Data sets: shards on disk, a benchmark of the paper's shape, published rows, MovingAI files."""

from jaxlake.datasets.files import DatasetError
from jaxlake.datasets.manifest import Manifest, read_manifest
from jaxlake.datasets.movingai import (
    GridMap,
    Scenario,
    instance_from,
    map_of,
    read_map,
    read_scen,
    scenarios_of,
    write_map,
    write_scen,
)
from jaxlake.datasets.paper_benchmark import (
    Benchmark,
    committed_record,
    read_benchmark,
    write_benchmark,
)
from jaxlake.datasets.published import PublishedRow, find_board, read_published
from jaxlake.datasets.shards import Progress, load, read_shards, write_shards

__all__ = [
    "Benchmark",
    "DatasetError",
    "GridMap",
    "Manifest",
    "Progress",
    "PublishedRow",
    "Scenario",
    "committed_record",
    "find_board",
    "instance_from",
    "load",
    "map_of",
    "read_benchmark",
    "read_manifest",
    "read_map",
    "read_published",
    "read_scen",
    "read_shards",
    "scenarios_of",
    "write_benchmark",
    "write_map",
    "write_scen",
    "write_shards",
]
