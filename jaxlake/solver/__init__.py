"""Exact solver: optimal sum of costs and makespan, a plan for each, and `needs_wait`."""

from jaxlake.solver.chunks import Kernels, Limits, limits_for
from jaxlake.solver.entry_points import DEFAULT_MAX_EXPANSIONS, solve, solve_batch
from jaxlake.solver.solution import DEFAULT_HORIZON, HORIZONS, Solution, Status, default_horizon

__all__ = [
    "DEFAULT_HORIZON",
    "DEFAULT_MAX_EXPANSIONS",
    "HORIZONS",
    "Kernels",
    "Limits",
    "Solution",
    "Status",
    "default_horizon",
    "limits_for",
    "solve",
    "solve_batch",
]
