"""Exact solving: optimal sum of costs, optimal makespan, a plan for each, needs_wait."""

from jaxlake.solver.solution import DEFAULT_HORIZON, Solution, Status
from jaxlake.solver.two_agents import solve

__all__ = ["DEFAULT_HORIZON", "Solution", "Status", "solve"]
