"""Data sets: shards on disk, a benchmark of the paper's shape, published rows, MovingAI files."""

from jaxlake.datasets.manifest import Manifest as Manifest
from jaxlake.datasets.manifest import read_manifest as read_manifest
from jaxlake.datasets.movingai import GridMap as GridMap
from jaxlake.datasets.movingai import Scenario as Scenario
from jaxlake.datasets.movingai import instance_from_scenarios as instance_from_scenarios
from jaxlake.datasets.movingai import map_from_instance as map_from_instance
from jaxlake.datasets.movingai import read_map as read_map
from jaxlake.datasets.movingai import read_scen as read_scen
from jaxlake.datasets.movingai import scenarios_from_instance as scenarios_from_instance
from jaxlake.datasets.movingai import write_map as write_map
from jaxlake.datasets.movingai import write_scen as write_scen
from jaxlake.datasets.paper_benchmark import Benchmark as Benchmark
from jaxlake.datasets.paper_benchmark import committed_record as committed_record
from jaxlake.datasets.paper_benchmark import read_benchmark as read_benchmark
from jaxlake.datasets.paper_benchmark import write_benchmark as write_benchmark
from jaxlake.datasets.published import PublishedRow as PublishedRow
from jaxlake.datasets.published import find_board as find_board
from jaxlake.datasets.published import read_published as read_published
from jaxlake.datasets.shards import WriteProgress as WriteProgress
from jaxlake.datasets.shards import load_shards as load_shards
from jaxlake.datasets.shards import merge_parts as merge_parts
from jaxlake.datasets.shards import part_folder as part_folder
from jaxlake.datasets.shards import read_shards as read_shards
from jaxlake.datasets.shards import write_shards as write_shards
from jaxlake.datasets.source_files import DatasetError as DatasetError
