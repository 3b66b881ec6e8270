"""Judge a board by all oracles together, and find mistakes in a solver's answer."""

import math
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from benchmarks.oracles.boards import BoardLike, parse_board, sum_of_distances
from benchmarks.oracles.cbs import cbs_sum_of_costs
from benchmarks.oracles.joint import least_makespan, least_sum_of_costs
from benchmarks.oracles.plan_checker import check_plan, count_waits_before_arrival
from benchmarks.oracles.sat import GaveUpError, SatOptimum, sat_makespan, sat_sum_of_costs
from benchmarks.oracles.solvability import has_plan

JUDGING_CONFLICTS = 200_000
"""SAT conflicts after which `judge` gives up a formula, some seconds."""

CBS_SECONDS = 1.0
"""Seconds after which `judge` stops CBS and relies on SAT for the sum of costs."""

# Joint searches take milliseconds below the first limit. The second, for boards that seem
# unsolvable, allows a few seconds.
_MAX_JOINT_CELLS = 1_000
_MAX_BLOCKED_JOINT_CELLS = 20_000


class OracleError(AssertionError):
    """Two oracles contradict each other, or a plan of one of them breaks the rules."""


@dataclass(frozen=True)
class Truth:
    """The oracles' verdict on a board; a field is None if unsolvable or undecided."""

    solvable: bool
    sum_of_costs: int | None = None
    makespan: int | None = None
    needs_wait: bool | None = None
    undecided: tuple[str, ...] = ()  # the fields above that no oracle could decide
    cbs_gave_up: bool = False  # the sum of costs then has only one proof, by SAT


@dataclass(frozen=True)
class SolverAnswer:
    """A solver's answer to a board; fields other than `status` are valid only if OPTIMAL."""

    status: str
    sum_of_costs: int
    makespan: int
    needs_wait: bool
    plan: list[list[int]]
    makespan_plan: list[list[int]]


def judge(grid: BoardLike) -> Truth:
    """Ask every oracle that can handle the board's size, and compare their answers.

    Raises:
        OracleError: Two oracles contradict each other.
    """
    is_solvable = has_plan(grid)
    board = parse_board(grid)
    joint_cells = math.perm(len(board.free), len(board.starts))
    blocked_by_agents = not is_solvable and sum_of_distances(grid) is not None
    is_small = joint_cells <= (_MAX_BLOCKED_JOINT_CELLS if blocked_by_agents else _MAX_JOINT_CELLS)
    searched_value = least_makespan(grid) if is_small else None
    if is_small:
        _require_equal(grid, "solvability", is_solvable, searched_value is not None)
    if not is_solvable:
        return Truth(solvable=False)
    undecided_fields = []
    makespan = cost = None
    try:
        makespan = sat_makespan(grid, conflicts=JUDGING_CONFLICTS)
    except GaveUpError:
        undecided_fields.append("makespan")
    try:
        cost = sat_sum_of_costs(grid, conflicts=JUDGING_CONFLICTS)
    except GaveUpError:
        undecided_fields += ["sum_of_costs", "needs_wait"]
    _check_witnesses(grid, makespan, cost)
    if is_small:
        if makespan is not None:
            _require_equal(grid, "makespan", makespan.value, searched_value)
        if cost is not None:
            optimum = least_sum_of_costs(grid)
            _require_equal(grid, "sum_of_costs, needs_wait", (cost.value, cost.needs_wait), optimum)
    cbs_cost = cbs_sum_of_costs(grid, CBS_SECONDS)
    if cbs_cost is not None and cost is not None:
        _require_equal(grid, "sum_of_costs", cbs_cost, cost.value)
    if cbs_cost is not None and cost is None:
        undecided_fields.remove("sum_of_costs")
    return Truth(
        solvable=True,
        sum_of_costs=cbs_cost if cost is None else cost.value,
        makespan=None if makespan is None else makespan.value,
        needs_wait=None if cost is None else cost.needs_wait,
        undecided=tuple(undecided_fields),
        cbs_gave_up=cbs_cost is None,
    )


def judge_all(grids: Sequence[list[str]], num_workers: int = 2) -> Iterator[Truth]:
    """Judge many boards in separate processes; yield the verdicts in order.

    The work starts immediately, before the first verdict is read.
    """
    pool = start_judging_pool(num_workers)
    truths = pool.map(judge, grids, chunksize=8)
    pool.shutdown(wait=False)
    return truths


def start_judging_pool(num_workers: int) -> ProcessPoolExecutor:
    """Start a process pool for `judge`.

    Processes are spawned, because processes forked from one with JAX threads can hang.
    """
    return ProcessPoolExecutor(num_workers, multiprocessing.get_context("spawn"))


def find_mistakes(grid: BoardLike, truth: Truth, answer: SolverAnswer) -> list[str]:
    """List the mistakes of an answer; UNKNOWN is never wrong, and undecided fields are skipped."""
    if answer.status == "UNKNOWN":
        return []
    if answer.status == "UNSOLVABLE":
        return ["status: UNSOLVABLE, there is a plan"] if truth.solvable else []
    if not truth.solvable:
        return [f"status: {answer.status}, there is no plan"]
    errors = []
    for field in ("sum_of_costs", "makespan", "needs_wait"):
        value, expected = getattr(answer, field), getattr(truth, field)
        if field not in truth.undecided and value != expected:
            errors.append(f"{field}: {value}, {expected} is right")
    for name, field in (("plan", "sum_of_costs"), ("makespan_plan", "makespan")):
        verdict = check_plan(grid, getattr(answer, name))
        if verdict.failure is not None:
            errors.append(f"{name}: {verdict.failure} of agent {verdict.agent} at {verdict.time}")
        elif getattr(verdict, field) != getattr(answer, field):
            errors.append(f"{name}: {field} is {getattr(verdict, field)}")
    return errors


def classify_board(grid: BoardLike, truth: Truth) -> str:
    """Return the kind of a board in words; tests require that every kind occurs."""
    distance_sum = sum_of_distances(grid)
    if distance_sum is None:
        return "disconnected"
    if not truth.solvable:
        return "blocked by each other"
    if truth.sum_of_costs is None:
        return "undecided"
    return f"needs_wait={truth.needs_wait}, excess {min(truth.sum_of_costs - distance_sum, 2)}"


def _check_witnesses(grid: BoardLike, makespan: SatOptimum | None, cost: SatOptimum | None) -> None:
    if makespan is not None:
        verdict = check_plan(grid, makespan.plan)
        values = (verdict.failure, verdict.makespan)
        _require_equal(grid, "makespan of the plan", values, (None, makespan.value))
    if cost is not None:
        verdict = check_plan(grid, cost.plan)
        values = (verdict.failure, verdict.sum_of_costs)
        _require_equal(grid, "sum of costs of the plan", values, (None, cost.value))
        waits = count_waits_before_arrival(grid, cost.plan) > 0
        _require_equal(grid, "waits of the plan", waits, cost.needs_wait)


def _require_equal(grid: BoardLike, label: str, value: object, other_value: object) -> None:
    if value != other_value:
        raise OracleError(f"{label}: {value} against {other_value} on {grid}")
