"""Board sets on disk, Hugging Face data sets, the benchmark, published rows and MovingAI files."""

from jaxlake.datasets.board_sets import Manifest as Manifest
from jaxlake.datasets.board_sets import load_set as load_set
from jaxlake.datasets.board_sets import make_set as make_set
from jaxlake.datasets.board_sets import missing_parts as missing_parts
from jaxlake.datasets.board_sets import read_counts as read_counts
from jaxlake.datasets.board_sets import read_manifest as read_manifest
from jaxlake.datasets.board_sets import read_parts as read_parts
from jaxlake.datasets.hugging_face import to_hugging_face as to_hugging_face
from jaxlake.datasets.movingai import Scenario as Scenario
from jaxlake.datasets.movingai import check_map_name as check_map_name
from jaxlake.datasets.movingai import instance_from_scenarios as instance_from_scenarios
from jaxlake.datasets.movingai import read_map as read_map
from jaxlake.datasets.movingai import read_scen as read_scen
from jaxlake.datasets.movingai import write_movingai as write_movingai
from jaxlake.datasets.paper_benchmark import Benchmark as Benchmark
from jaxlake.datasets.paper_benchmark import read_benchmark as read_benchmark
from jaxlake.datasets.paper_benchmark import write_benchmark as write_benchmark
from jaxlake.datasets.printed_tables import PublishedResult as PublishedResult
from jaxlake.datasets.printed_tables import published_models as published_models
from jaxlake.datasets.printed_tables import published_results as published_results
from jaxlake.datasets.published import PublishedRow as PublishedRow
from jaxlake.datasets.published import find_board as find_board
from jaxlake.datasets.published import read_published as read_published
from jaxlake.datasets.source_files import DatasetError as DatasetError
