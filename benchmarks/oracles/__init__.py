"""Independent oracles for the lake's JAX code.

This package does not import jaxlake. Boards are grids in the published symbols, plans are lists of
steps, and a step is a list of action numbers, one per agent. `tests/jaxlake/test_oracles.py`
compares the oracles with one another; `tests/jaxlake/solver` and `benchmarks.exactness` compare the
solver with them.
"""

from benchmarks.oracles.boards import (
    GOALS,
    MOVES,
    STARTS,
    distances_to,
    hole_count,
    neighbours,
    parse_board,
    random_grid,
    sum_of_distances,
)
from benchmarks.oracles.cbs import cbs_sum_of_costs
from benchmarks.oracles.joint import arrival_times, least_makespan, least_sum_of_costs
from benchmarks.oracles.judging import (
    CBS_SECONDS,
    JUDGING_CONFLICTS,
    OracleError,
    SolverAnswer,
    Truth,
    classify_board,
    find_mistakes,
    judge,
    judge_all,
    start_judging_pool,
)
from benchmarks.oracles.plan_checker import check_plan, count_waits_before_arrival
from benchmarks.oracles.sat import GaveUpError, sat_makespan, sat_sum_of_costs
from benchmarks.oracles.solvability import has_plan
