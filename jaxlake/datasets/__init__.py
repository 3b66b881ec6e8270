"""Data sets: shards on disk, a benchmark of the paper's shape, published rows, MovingAI files."""

from jaxlake.datasets.manifest import Manifest, read_manifest
from jaxlake.datasets.movingai import (
    GridMap,
    Scenario,
    instance_from_scenarios,
    map_from_instance,
    read_map,
    read_scen,
    scenarios_from_instance,
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
from jaxlake.datasets.shards import WriteProgress, load_shards, read_shards, write_shards
from jaxlake.datasets.source_files import DatasetError

__all__ = [
    "Benchmark",
    "DatasetError",
    "GridMap",
    "Manifest",
    "PublishedRow",
    "Scenario",
    "WriteProgress",
    "committed_record",
    "find_board",
    "instance_from_scenarios",
    "load_shards",
    "map_from_instance",
    "read_benchmark",
    "read_manifest",
    "read_map",
    "read_published",
    "read_scen",
    "read_shards",
    "scenarios_from_instance",
    "write_benchmark",
    "write_map",
    "write_scen",
    "write_shards",
]
