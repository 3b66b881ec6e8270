"""The lake: multi-agent path finding on frozen lakes, exact and in pure JAX."""

from jaxlake.distance_fields import UNREACHABLE, distances
from jaxlake.dynamics import ACTION_DELTAS, Action, Step, step
from jaxlake.generator import (
    Generated,
    LakeParams,
    generate,
    hole_count,
    infeasibility,
    lake_params,
)
from jaxlake.grids import GridError, format_grid, parse_grid
from jaxlake.instance import Instance, stack_instances
from jaxlake.render import Picture, episode_svg, show
from jaxlake.solver import DEFAULT_HORIZON, Solution, Status, solve
from jaxlake.statistics import (
    Statistics,
    merge_statistics,
    statistics_rows,
    tabulate,
    wilson_interval,
)
from jaxlake.verification import Failure, Outcome, verify

__all__ = [
    "ACTION_DELTAS",
    "DEFAULT_HORIZON",
    "UNREACHABLE",
    "Action",
    "Failure",
    "Generated",
    "GridError",
    "Instance",
    "LakeParams",
    "Outcome",
    "Picture",
    "Solution",
    "Statistics",
    "Status",
    "Step",
    "distances",
    "episode_svg",
    "format_grid",
    "generate",
    "hole_count",
    "infeasibility",
    "lake_params",
    "merge_statistics",
    "parse_grid",
    "show",
    "solve",
    "stack_instances",
    "statistics_rows",
    "step",
    "tabulate",
    "verify",
    "wilson_interval",
]
