"""Exact solver: optimal sum of costs and makespan, a plan for each, and `needs_wait`."""

from jaxlake.solver.chunks import Kernels, Widths, widths_for
from jaxlake.solver.solution import DEFAULT_HORIZON, Solution, Status
from jaxlake.solver.tiers import DEFAULT_MAX_EXPANSIONS, solve, solve_batch

__all__ = [
    "DEFAULT_HORIZON",
    "DEFAULT_MAX_EXPANSIONS",
    "Kernels",
    "Solution",
    "Status",
    "Widths",
    "solve",
    "solve_batch",
    "widths_for",
]
