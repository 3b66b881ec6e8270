"""Independent oracles: what the lake's JAX code is compared with.

Nothing here imports jaxlake. Boards are grids in the published symbols, plans are lists of steps,
a step is a list of action numbers, one an agent. `tests/jaxlake/test_oracles.py` compares them
with one another, `tests/jaxlake/test_solver.py` the solver with them.
"""

from tests.oracles.boards import (
    GOALS,
    MOVES,
    STARTS,
    Board,
    distances_alone,
    distances_to,
    hole_count,
    neighbours,
    random_grid,
    read,
    sum_of_distances,
)
from tests.oracles.cbs import cbs_paths, cbs_sum_of_costs
from tests.oracles.joint import least_makespan, least_sum_of_costs
from tests.oracles.judging import (
    CBS_SECONDS,
    CONFLICTS,
    Answer,
    OracleError,
    Truth,
    judge,
    judge_all,
    kind,
    mistakes,
    processes,
)
from tests.oracles.sat import GaveUpError, SatOptimum, sat_makespan, sat_sum_of_costs
from tests.oracles.solvability import solvable
from tests.oracles.walker import Verdict, check, waits_before_arrival

__all__ = [
    "CBS_SECONDS",
    "CONFLICTS",
    "GOALS",
    "MOVES",
    "STARTS",
    "Answer",
    "Board",
    "GaveUpError",
    "OracleError",
    "SatOptimum",
    "Truth",
    "Verdict",
    "cbs_paths",
    "cbs_sum_of_costs",
    "check",
    "distances_alone",
    "distances_to",
    "hole_count",
    "judge",
    "judge_all",
    "kind",
    "least_makespan",
    "least_sum_of_costs",
    "mistakes",
    "neighbours",
    "processes",
    "random_grid",
    "read",
    "sat_makespan",
    "sat_sum_of_costs",
    "solvable",
    "sum_of_distances",
    "waits_before_arrival",
]
