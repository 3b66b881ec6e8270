"""The lake: multi-agent path finding on frozen lakes, exact and in pure JAX.

`jaxlake.environment`, `jaxlake.policies` and `jaxlake.datasets` are imported when they are first
named.
"""

import importlib.metadata as _metadata
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

from jaxlake.cpu_devices import use_all_cores as use_all_cores
from jaxlake.distance_fields import UNREACHABLE as UNREACHABLE
from jaxlake.distance_fields import distances as distances
from jaxlake.dynamics import ACTION_DELTAS as ACTION_DELTAS
from jaxlake.dynamics import Action as Action
from jaxlake.dynamics import Step as Step
from jaxlake.dynamics import step as step
from jaxlake.generator import Generated as Generated
from jaxlake.generator import LakeParams as LakeParams
from jaxlake.generator import generate as generate
from jaxlake.generator import generate_sharded as generate_sharded
from jaxlake.generator import hole_count as hole_count
from jaxlake.generator import infeasibility as infeasibility
from jaxlake.generator import lake_params as lake_params
from jaxlake.grids import GridError as GridError
from jaxlake.grids import format_grid as format_grid
from jaxlake.grids import parse_grid as parse_grid
from jaxlake.instance import Instance as Instance
from jaxlake.instance import stack_instances as stack_instances
from jaxlake.render import Picture as Picture
from jaxlake.render import episode_svg as episode_svg
from jaxlake.render import show as show
from jaxlake.solver import DEFAULT_HORIZON as DEFAULT_HORIZON
from jaxlake.solver import Solution as Solution
from jaxlake.solver import Status as Status
from jaxlake.solver import solve as solve
from jaxlake.statistics import Statistics as Statistics
from jaxlake.statistics import merge_statistics as merge_statistics
from jaxlake.statistics import statistics_rows as statistics_rows
from jaxlake.statistics import tabulate as tabulate
from jaxlake.statistics import wilson_interval as wilson_interval
from jaxlake.verification import Failure as Failure
from jaxlake.verification import Outcome as Outcome
from jaxlake.verification import verify as verify

try:
    __version__ = _metadata.version("jaxlake")
except _metadata.PackageNotFoundError:  # a checkout that is on the path, but not installed
    __version__ = "unknown"

_LATE_MODULES = ("datasets", "environment", "paired", "policies", "rewards")


def __getattr__(name: str) -> _ModuleType:
    if name in _LATE_MODULES:
        return _import_module(f"jaxlake.{name}")
    raise AttributeError(f"module 'jaxlake' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE_MODULES})
