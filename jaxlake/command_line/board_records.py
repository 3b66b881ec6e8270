"""Solve, check and draw boards given as JSON lines.

Boards are processed in batches. To limit the number of compiled programs, they are padded to one of
three sizes and one of two numbers of agents.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np

import jaxlake
from jaxlake import (
    Action,
    Failure,
    GridError,
    Instance,
    Outcome,
    Solution,
    Status,
    stack_instances,
)
from jaxlake.board.limits import MAX_SIZE, MIN_SIZE
from jaxlake.command_line.json_lines import Record, RecordError, Results, clip_json, read_records
from jaxlake.datasets.solution_fields import solution_fields
from jaxlake.language.answers import Answer, parse_answer
from jaxlake.language.judging import judge_answers
from jaxlake.language.prompts import MAX_AGENTS
from jaxlake.render import Picture
from jaxlake.render.playback import play
from jaxlake.solver import HORIZONS, solve_batch
from jaxlake.solver.solution import unknown_solution

ACTIONS = tuple(Action.__members__)
"""The names of actions, in numerical order."""

MAX_STEPS = 4096
"""Maximum number of steps of a plan, so that int16 holds the sum of costs of five agents."""

_MIN_PADDED_STEPS = 32
"""Plans are padded to a power of two steps, at least this many."""

_BATCH_SIZES = (32, 512)
"""Boards per batch for small and for large inputs."""

_MAX_BATCH_SIZES = dict(zip(HORIZONS, (512, 128, 16), strict=True))
"""Maximum batch size by padded board size N; memory per board grows with the sixth power of N."""

# Boards of one or two agents that are UNKNOWN are solved again with a longer horizon. With more
# agents, the search budget is usually exhausted before the horizon is reached. The second search
# takes about 2 MB per board of size 10.
_RETRY_MAX_AGENTS = 2
_RETRY_HORIZON = 1024
_RETRY_BATCH_SIZE = 16

_AGENT_SLOTS = (2, MAX_AGENTS)
_NO_ANSWER = Answer(parsed=False, plan=None, reason=None)


@dataclass(frozen=True)
class _Request:
    """A board to solve, check or draw, from one record."""

    id: Any
    board: Instance  # padded to a size of HORIZONS and to MAX_AGENTS
    grid: list[str]  # the original rows
    answer: Answer = _NO_ANSWER  # the plan to check or draw

    @property
    def num_agents(self) -> int:
        return int(np.sum(self.board.agent_mask))

    @property
    def num_steps(self) -> int:
        return max(map(len, self.answer.plan or ()), default=0)


def solve_lines(lines: Iterable[bytes]) -> Results:
    """Solve boards; `jaxlake solve --help` lists the fields of records and results."""
    return _process_in_batches(read_records(lines, _parse_board), _solution_records)


def check_lines(lines: Iterable[bytes], *, optimum: bool = True) -> Results:
    """Check plans; `jaxlake check --help` lists the fields of records and results.

    If `optimum` is False, boards are not solved and the fields `optimal_*` are None.
    """
    process = partial(_outcome_records, optimum=optimum)
    return _process_in_batches(read_records(lines, _parse_board_and_plan), process)


def draw_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, str, Picture | RecordError]]:
    """Draw boards or plans; `jaxlake render --help` lists the fields of records.

    Yields:
        (line number, id as text, picture or error) for each record.
    """
    for number, request in read_records(lines, _parse_drawing):
        if isinstance(request, RecordError):
            yield number, str(request.id), request
        else:
            board_id = number if request[0].id is None else request[0].id
            yield number, str(board_id), _draw(*request)


def _parse_drawing(record: Record) -> tuple[_Request, bool]:
    """Return the request, and whether the record has a plan or an answer."""
    if "error" in record and "grid" not in record:
        raise RecordError(f"error: {clip_json(record['error'])}, so no board can be drawn")
    # `jaxlake solve` writes null if it has no plan.
    has_plan = record.get("plan") is not None or "text" in record
    return _parse_board_and_plan(record) if has_plan else _parse_board(record), has_plan


def _draw(request: _Request, has_plan: bool) -> Picture:
    """Draw a board, with its plan or parse error if `has_plan`."""
    picture = jaxlake.show(request.board)
    if not has_plan:
        return picture
    if request.answer.plan is None:
        return replace(picture, playback=play(picture.playback.board, None, failure="parse_error"))
    plan = np.full((max(request.num_steps, 1), request.num_agents), Action.WAIT, np.int8)
    for agent, actions in enumerate(request.answer.plan):
        plan[: len(actions), agent] = actions
    return jaxlake.show(request.board, plan, length=request.num_steps)


def _process_in_batches(
    records: Iterator[tuple[int, _Request | RecordError]],
    process: Callable[[Sequence[_Request], int], list[Record]],
) -> Results:
    small_size, large_size = _BATCH_SIZES
    chunk = list(itertools.islice(records, large_size))
    # All batches of the input have the same size, so that each program is compiled once.
    batch_size = small_size if len(chunk) <= small_size else large_size
    while chunk:
        requests = [request for _, request in chunk if isinstance(request, _Request)]
        results = iter(process(requests, batch_size))
        for number, request in chunk:
            yield number, request.result if isinstance(request, RecordError) else next(results)
        chunk = list(itertools.islice(records, large_size))


def _parse_board_and_plan(record: Record) -> _Request:
    request = _parse_board(record)
    fields = [name for name in ("plan", "text") if name in record]
    if len(fields) != 1:
        fields_text = "both" if fields else f"the fields {clip_json(sorted(record))}"
        raise RecordError(f"exactly one of plan and text must be set, got {fields_text}")
    if fields == ["plan"]:
        answer = _parse_action_names(record["plan"], request.num_agents)
    elif isinstance(text := record["text"], str):
        answer = parse_answer(text, request.num_agents, max_steps=max(1, len(text)))
    else:
        raise RecordError(f"text must be a string, got {clip_json(text)}")
    request = replace(request, answer=answer)
    if (num_steps := request.num_steps) > MAX_STEPS:
        raise RecordError(f"{fields[0]} must have at most {MAX_STEPS} steps, got {num_steps}")
    return request


def _parse_board(record: Record) -> _Request:
    for field in ("id", "grid"):
        if field not in record:
            raise RecordError(f"{field} must be set, got the fields {clip_json(list(record))}")
    grid = record["grid"]
    if not isinstance(grid, list) or not all(isinstance(row, str) for row in grid):
        raise RecordError(f"grid must be a list of strings, got {clip_json(grid)}")
    if not MIN_SIZE <= len(grid) <= MAX_SIZE:
        raise RecordError(f"grid must have {MIN_SIZE} to {MAX_SIZE} rows, got {len(grid)}")
    try:
        size = min(padded_size for padded_size in HORIZONS if padded_size >= len(grid))
        board = jaxlake.parse_grid(grid, max_size=size, max_agents=MAX_AGENTS)
        return _Request(record["id"], board, grid)
    except GridError as error:
        raise RecordError(f"grid: {str(error).removeprefix('grid: ')}") from None


def _parse_action_names(plan: Any, num_agents: int) -> Answer:
    """Parse a plan of action names; the answer to an invalid plan has a reason."""

    def reject(reason: str) -> Answer:
        return Answer(parsed=False, plan=None, reason=reason)

    if not isinstance(plan, list) or not all(isinstance(names, list) for names in plan):
        return reject(f"plan must be a list of actions for each agent, got {clip_json(plan)}")
    if len(plan) != num_agents:
        return reject(f"plan must have {num_agents} lists of actions, got {len(plan)}")
    for agent, names in enumerate(plan):
        for step, name in enumerate(names):
            # Upper-casing non-ASCII letters may produce the letters of an action.
            if not (isinstance(name, str) and name.isascii()) or name.upper() not in ACTIONS:
                allowed_names = ", ".join(ACTIONS)
                return reject(
                    f"step {step} of agent {agent} in plan must be one of {allowed_names}, got "
                    f"{clip_json(name)}"
                )
    action_numbers = tuple(tuple(int(Action[name.upper()]) for name in names) for names in plan)
    return Answer(parsed=True, plan=action_numbers, reason=None)


def _solution_records(requests: Sequence[_Request], batch_size: int) -> list[Record]:
    return [
        {"id": request.id, "grid": request.grid, **solution_fields(solution, request.num_agents)}
        for request, solution in zip(requests, _solve(requests, batch_size), strict=True)
    ]


def _outcome_records(
    requests: Sequence[_Request], batch_size: int, *, optimum: bool
) -> list[Record]:
    if not requests:
        return []
    unknown_optimum: Solution = jax.device_get(unknown_solution(0, MAX_AGENTS))
    solutions = _solve(requests, batch_size) if optimum else [unknown_optimum] * len(requests)
    # Verification reads only the optima, and plans of different shapes can't be stacked.
    empty_plan: Any = np.zeros((0, MAX_AGENTS), np.int8)
    optima = [
        replace(solution, plan=empty_plan, makespan_plan=empty_plan) for solution in solutions
    ]
    num_steps = max(request.num_steps for request in requests)
    outcomes = judge_answers(
        [request.answer for request in requests],
        stack_instances([request.board for request in requests]),
        jax.tree.map(lambda *leaves: np.stack(leaves), *optima),
        max_steps=max(_MIN_PADDED_STEPS, 1 << (num_steps - 1).bit_length() if num_steps else 0),
    )
    return [
        _outcome_record(request, jax.tree.map(lambda leaf, row=row: leaf[row], outcomes), solution)
        for row, (request, solution) in enumerate(zip(requests, solutions, strict=True))
    ]


def _outcome_record(request: _Request, outcome: Outcome, solution: Solution) -> Record:
    failure = Failure(int(outcome.failure))
    has_optimum = solution.status != Status.UNKNOWN
    reason = {} if request.answer.reason is None else {"reason": request.answer.reason}
    return {
        "id": request.id,
        "parsed": bool(outcome.parsed),
        "valid": bool(outcome.valid),
        "optimal_sum_of_costs": bool(outcome.optimal_sum_of_costs) if has_optimum else None,
        "optimal_makespan": bool(outcome.optimal_makespan) if has_optimum else None,
        "failure": None if failure == Failure.NONE else failure.label,
        **{
            name: int(value) if (value := getattr(outcome, name)) >= 0 else None
            for name in ("agent", "time", "sum_of_costs", "makespan")
        },
        **reason,
    }


def _solve(requests: Sequence[_Request], batch_size: int) -> list[Solution]:
    """Solve boards, and retry UNKNOWN boards of few agents with a longer horizon."""
    solutions = _solve_mixed_sizes(requests, batch_size)
    retry_indices = [
        index
        for index, request in enumerate(requests)
        if solutions[index].status == Status.UNKNOWN and request.num_agents <= _RETRY_MAX_AGENTS
    ]
    retry_solutions = _solve_mixed_sizes(
        [requests[i] for i in retry_indices], batch_size, _RETRY_HORIZON
    )
    for index, solution in zip(retry_indices, retry_solutions, strict=True):
        solutions[index] = solution
    return solutions


def _solve_mixed_sizes(
    requests: Sequence[_Request], batch_size: int, horizon: int | None = None
) -> list[Solution]:
    """Solve boards in batches of equal padding, and return the solutions in order."""
    indices_by_padding: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, request in enumerate(requests):
        num_slots = min(count for count in _AGENT_SLOTS if count >= request.num_agents)
        indices_by_padding[np.shape(request.board.holes)[-1], num_slots].append(index)
    solutions: dict[int, Solution] = {}
    for (size, num_slots), indices in indices_by_padding.items():
        boards = [_cut_slots(requests[index].board, num_slots) for index in indices]
        max_batch = _RETRY_BATCH_SIZE if horizon else _MAX_BATCH_SIZES[size]
        batch_solutions = _solve_in_batches(
            boards, min(batch_size, max_batch), horizon or HORIZONS[size]
        )
        solutions.update(zip(indices, batch_solutions, strict=True))
    return [solutions[index] for index in range(len(requests))]


def _solve_in_batches(boards: list[Instance], batch_size: int, horizon: int) -> list[Solution]:
    """Solve boards of equal padding in batches of equal size."""
    # Boards without agents pad the last batch at no cost.
    empty_board = replace(boards[0], agent_mask=np.zeros_like(boards[0].agent_mask))  # type: ignore[arg-type]
    solutions = []
    for start in range(0, len(boards), batch_size):
        batch = boards[start : start + batch_size]
        padding = [empty_board] * (batch_size - len(batch))
        batch_solutions = jax.device_get(
            solve_batch(stack_instances(batch + padding), horizon=horizon)
        )
        for row in range(len(batch)):
            solutions.append(jax.tree.map(lambda leaf, row=row: leaf[row], batch_solutions))
    return solutions


def _cut_slots(board: Instance, num_slots: int) -> Instance:
    fields = {name: getattr(board, name)[:num_slots] for name in ("starts", "goals", "agent_mask")}
    return replace(board, **fields)
