"""Process boards as JSON lines, for `jaxlake solve`, `jaxlake check` and `jaxlake render`.

Boards are processed in batches, padded to one of three sizes and one of two numbers of agents to
limit the number of compiled programs.
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
from jaxlake.command_line.json_lines import Answers, Record, RecordError, clipped_json, read_records
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
"""Longest plan that can be checked: the sum of costs of five agents fits into int16."""

_BATCHES = dict(zip(HORIZONS, (512, 128, 16), strict=True))
"""Largest batch per padded size N; memory per board grows with the sixth power of N."""

# For the rare boards of one or two agents that need longer plans; about 2 MB per board of size 10.
# With more agents, the search budget is usually exhausted before the horizon is reached.
_LONG_HORIZON, _LONG_BATCH = 1024, 16
_FEW_AGENTS = 2
_PADDED_AGENTS = (_FEW_AGENTS, MAX_AGENTS)
_BATCH_SIZES = (32, 512)
_SHORTEST_PLAN = 32
_NO_ANSWER = Answer(parsed=False, plan=None, reason=None)


@dataclass(frozen=True)
class _Task:
    """One record to answer."""

    id: Any
    board: Instance  # padded to a size of HORIZONS and to MAX_AGENTS
    grid: list[str]  # the original rows
    answer: Answer = _NO_ANSWER  # the parsed plan

    @property
    def num_agents(self) -> int:
        return int(np.sum(self.board.agent_mask))

    @property
    def steps(self) -> int:
        return max(map(len, self.answer.plan or ()), default=0)


def solve_lines(lines: Iterable[bytes]) -> Answers:
    """Solve boards; `jaxlake solve --help` lists the fields of records and answers."""
    return _answer_in_batches(read_records(lines, _read_task), _solution_records)


def check_lines(lines: Iterable[bytes], *, optimum: bool = True) -> Answers:
    """Check plans; `jaxlake check --help` lists the fields of records and answers.

    If `optimum` is False, boards are not solved and the fields `optimal_*` are None.
    """
    answer = partial(_outcome_records, optimum=optimum)
    return _answer_in_batches(read_records(lines, _read_plan), answer)


def draw_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, str, Picture | RecordError]]:
    """Draw boards or plans; `jaxlake render --help` lists the fields of records.

    Yields:
        (line number, id as text, picture or error) for each record.
    """
    for number, drawing in read_records(lines, _read_drawing):
        if isinstance(drawing, RecordError):
            yield number, str(drawing.id), drawing
        else:
            id = drawing[0].id
            yield number, str(number if id is None else id), _picture(*drawing)


def _read_drawing(record: Record) -> tuple[_Task, bool]:
    """Return (task, whether the record has a plan or an answer)."""
    if "error" in record and "grid" not in record:
        raise RecordError(f"error: {clipped_json(record['error'])}, so there is no board to draw")
    # `jaxlake solve` writes null if it has no plan.
    has_plan = record.get("plan") is not None or "text" in record
    return _read_plan(record) if has_plan else _read_task(record), has_plan


def _picture(task: _Task, has_plan: bool) -> Picture:
    """Draw a board, with its plan or parse error if `has_plan`."""
    if not has_plan:
        return jaxlake.show(task.board)
    plan = np.full((max(task.steps, 1), task.num_agents), Action.WAIT, np.int8)
    for agent, actions in enumerate(task.answer.plan or ()):
        plan[: len(actions), agent] = actions
    if task.answer.plan is not None:
        return jaxlake.show(task.board, plan, length=task.steps)
    picture = jaxlake.show(task.board)
    return replace(picture, playback=play(picture.playback.board, None, failure="parse_error"))


def _answer_in_batches(
    records: Iterator[tuple[int, _Task | RecordError]],
    answer: Callable[[Sequence[_Task], int], list[Record]],
) -> Answers:
    small, large = _BATCH_SIZES
    chunk = list(itertools.islice(records, large))
    # All batches have the same size, which is small for a handful of boards.
    batch_size = small if len(chunk) <= small else large
    while chunk:
        answers = iter(answer([task for _, task in chunk if isinstance(task, _Task)], batch_size))
        for number, task in chunk:
            yield number, task.answer if isinstance(task, RecordError) else next(answers)
        chunk = list(itertools.islice(records, large))


def _read_plan(record: Record) -> _Task:
    task = _read_task(record)
    fields = [name for name in ("plan", "text") if name in record]
    if len(fields) != 1:
        fields_text = "both" if fields else f"the fields {clipped_json(sorted(record))}"
        raise RecordError(f"exactly one of plan and text must be set, got {fields_text}")
    if fields == ["plan"]:
        answer = _plan_of_names(record["plan"], task.num_agents)
    elif isinstance(text := record["text"], str):
        answer = parse_answer(text, task.num_agents, max_steps=max(1, len(text)))
    else:
        raise RecordError(f"text must be a string, got {clipped_json(text)}")
    task = replace(task, answer=answer)
    if task.steps > MAX_STEPS:
        raise RecordError(f"{fields[0]} must have at most {MAX_STEPS} steps, got {task.steps}")
    return task


def _read_task(record: Record) -> _Task:
    for field in ("id", "grid"):
        if field not in record:
            raise RecordError(f"{field} must be set, got the fields {clipped_json(list(record))}")
    grid = record["grid"]
    if not isinstance(grid, list) or not all(isinstance(row, str) for row in grid):
        raise RecordError(f"grid must be a list of strings, got {clipped_json(grid)}")
    if not MIN_SIZE <= len(grid) <= MAX_SIZE:
        raise RecordError(f"grid must have {MIN_SIZE} to {MAX_SIZE} rows, got {len(grid)}")
    try:
        size = min(limit for limit in HORIZONS if limit >= len(grid))
        board = jaxlake.parse_grid(grid, max_size=size, max_agents=MAX_AGENTS)
        return _Task(record["id"], board, grid)
    except GridError as error:
        raise RecordError(f"grid: {str(error).removeprefix('grid: ')}") from None


def _plan_of_names(plan: Any, num_agents: int) -> Answer:
    """Parse a plan given as action names; an invalid plan gives an answer with a reason."""

    def invalid(reason: str) -> Answer:
        return Answer(parsed=False, plan=None, reason=reason)

    if not isinstance(plan, list) or not all(isinstance(names, list) for names in plan):
        return invalid(f"plan must be a list of actions for each agent, got {clipped_json(plan)}")
    if len(plan) != num_agents:
        return invalid(f"plan must have {num_agents} lists of actions, got {len(plan)}")
    for agent, names in enumerate(plan):
        for step, name in enumerate(names):
            # Upper-casing non-ASCII letters may produce the letters of an action.
            if not (isinstance(name, str) and name.isascii()) or name.upper() not in ACTIONS:
                allowed = ", ".join(ACTIONS)
                return invalid(
                    f"step {step} of agent {agent} in plan must be one of {allowed}, got "
                    f"{clipped_json(name)}"
                )
    numbers = tuple(tuple(int(Action[name.upper()]) for name in names) for names in plan)
    return Answer(parsed=True, plan=numbers, reason=None)


def _solution_records(tasks: Sequence[_Task], batch_size: int) -> list[Record]:
    solutions = zip(tasks, _solve(tasks, batch_size), strict=True)
    return [
        {"id": task.id, "grid": task.grid, **solution_fields(solution, task.num_agents)}
        for task, solution in solutions
    ]


def _outcome_records(tasks: Sequence[_Task], batch_size: int, *, optimum: bool) -> list[Record]:
    if not tasks:
        return []
    unknown: Solution = jax.device_get(unknown_solution(0, MAX_AGENTS))
    solutions = _solve(tasks, batch_size) if optimum else [unknown] * len(tasks)
    # Verification reads only the optima, and plans of different shapes can't be stacked.
    no_plan: Any = np.zeros((0, MAX_AGENTS), np.int8)
    optima = [replace(solution, plan=no_plan, makespan_plan=no_plan) for solution in solutions]
    longest = max(task.steps for task in tasks)
    outcomes = judge_answers(
        [task.answer for task in tasks],
        stack_instances([task.board for task in tasks]),
        jax.tree.map(lambda *leaves: np.stack(leaves), *optima),
        max_steps=max(_SHORTEST_PLAN, 1 << (longest - 1).bit_length() if longest else 0),
    )
    return [
        _outcome_record(task, jax.tree.map(lambda leaf, row=row: leaf[row], outcomes), solution)
        for row, (task, solution) in enumerate(zip(tasks, solutions, strict=True))
    ]


def _outcome_record(task: _Task, outcome: Outcome, solution: Solution) -> Record:
    failure = Failure(int(outcome.failure))
    optimum_known = solution.status != Status.UNKNOWN
    reason = {} if task.answer.reason is None else {"reason": task.answer.reason}
    return {
        "id": task.id,
        "parsed": bool(outcome.parsed),
        "valid": bool(outcome.valid),
        "optimal_sum_of_costs": bool(outcome.optimal_sum_of_costs) if optimum_known else None,
        "optimal_makespan": bool(outcome.optimal_makespan) if optimum_known else None,
        "failure": None if failure == Failure.NONE else failure.label,
        **{
            name: int(value) if (value := getattr(outcome, name)) >= 0 else None
            for name in ("agent", "time", "sum_of_costs", "makespan")
        },
        **reason,
    }


def _solve(tasks: Sequence[_Task], batch_size: int) -> list[Solution]:
    """Solve boards, and retry UNKNOWN boards of one or two agents with a longer horizon."""
    solutions = _solve_all(tasks, batch_size)
    retries = [
        number
        for number, task in enumerate(tasks)
        if solutions[number].status == Status.UNKNOWN and task.num_agents <= _FEW_AGENTS
    ]
    longer = _solve_all([tasks[number] for number in retries], batch_size, _LONG_HORIZON)
    for number, solution in zip(retries, longer, strict=True):
        solutions[number] = solution
    return solutions


def _solve_all(
    tasks: Sequence[_Task], batch_size: int, horizon: int | None = None
) -> list[Solution]:
    """Solve boards in batches of equal padding, and return the solutions in order."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, task in enumerate(tasks):
        slots = min(limit for limit in _PADDED_AGENTS if limit >= task.num_agents)
        groups[np.shape(task.board.holes)[-1], slots].append(number)
    solutions: dict[int, Solution] = {}
    for (size, slots), group in groups.items():
        count = min(batch_size, _LONG_BATCH if horizon else _BATCHES[size])
        boards = {number: _with_slots(tasks[number].board, slots) for number in group}
        # Boards without agents pad the last batch at no cost.
        filler = replace(boards[group[0]], agent_mask=np.zeros(slots, bool))  # type: ignore[arg-type]
        for start in range(0, len(group), count):
            chunk = group[start : start + count]
            filled = [boards[number] for number in chunk] + [filler] * (count - len(chunk))
            batch = stack_instances(filled)
            solved = jax.device_get(solve_batch(batch, horizon=horizon or HORIZONS[size]))
            for row, number in enumerate(chunk):
                solutions[number] = jax.tree.map(lambda leaf, row=row: leaf[row], solved)
    return [solutions[number] for number in range(len(tasks))]


def _with_slots(board: Instance, slots: int) -> Instance:
    fields = {name: getattr(board, name)[:slots] for name in ("starts", "goals", "agent_mask")}
    return replace(board, **fields)
