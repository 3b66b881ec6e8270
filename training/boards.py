"""Boards as JSON lines: solve them, check plans on them.

A record is one JSON object a line. Records are read, answered and forgotten in batches of one
fixed size, so that memory doesn't grow with the file. Boards are padded to one of a few sizes and
numbers of agent slots: a program is compiled for each that comes up, and small boards don't pay for
large ones.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, islice
from typing import Any

import jax
import numpy as np

from jaxlake import (
    Action,
    Failure,
    GridError,
    Instance,
    Outcome,
    Solution,
    Status,
    parse_grid,
    solve,
    verify,
)
from training.language.answers import Plan, parse_answer
from training.language.prompts import MAX_AGENTS, action_names

MAX_SIZE = 32
"""Largest side of a board."""

MIN_AGENTS = 2
"""Fewest agents of a board to solve."""

MAX_STEPS = 4096
"""Longest plan that is checked: the costs of five agents still add up within int16."""

Record = dict[str, Any]


@dataclass(frozen=True)
class _Effort:
    """How boards of one padded size are solved at first."""

    horizon: int  # longest plan that is looked for
    most: int  # boards of a batch, at most: what a board takes grows with the sixth power of N


_EFFORTS = {10: _Effort(64, 512), 16: _Effort(96, 128), MAX_SIZE: _Effort(160, 16)}
_PADDED_AGENTS = (MIN_AGENTS, MAX_AGENTS)
_BATCH_SIZES = (32, 512)
_SHORTEST_PLAN = 32
# Two-agent boards that outlast the horizon are rare; each takes about 2 MB at this one, of size 10.
# With more agents it is nearly always the budget that is spent, and a longer horizon is no help.
_LONG_HORIZON = 1024
_LONG_BATCH_SIZE = 16


class RecordError(ValueError):
    """A line that is not a record; the message names the field, the value and what is allowed.

    `id` is the record's own, None where it has none.
    """

    def __init__(self, message: str, id: Any = None) -> None:
        super().__init__(message)
        self.id = id


@dataclass(frozen=True)
class _Task:
    """One record to answer. `plan` is None where there is no plan or it can't be read."""

    id: Any
    instance: Instance  # N one of _EFFORTS, K = MAX_AGENTS
    num_agents: int
    plan: Plan | None = None

    @property
    def length(self) -> int:
        return max(map(len, self.plan or ()), default=0)


def solve_lines(lines: Iterable[str]) -> Iterator[tuple[int, Record]]:
    """Solve boards of two to five agents: `{"id", "grid"}` in, their optima and plans out.

    Args:
        lines: JSON, one record each; blank lines are skipped.

    Yields:
        For each record, in order, the number of its line from 1, and: `id`, `status` (the name of
        a `Status`), `sum_of_costs`, `makespan`, `needs_wait`, `plan` and `makespan_plan` (each a
        list of action names an agent, up to its last arrival; one attains the sum of costs, the
        other the makespan), all null unless OPTIMAL, and `expansions` (an int, of the search). For
        a line that is no such record `id` and `error`.
    """
    return _answer_lines(lines, _read_board, _solve_batch)


def check_lines(lines: Iterable[str]) -> Iterator[tuple[int, Record]]:
    """Check plans: `{"id", "grid", "plan"}` or `{"id", "grid", "text"}` in, their outcomes out.

    `plan` is a list of action names an agent, `text` a model's whole answer. A plan shorter than
    the others waits. Boards may have one to five agents.

    Args:
        lines: JSON, one record each; blank lines are skipped.

    Yields:
        For each record, in order, the number of its line from 1, and: `id`, `parsed`, `valid`,
        `optimal_sum_of_costs`, `optimal_makespan` (both null where the optimum isn't known),
        `failure` (the label of a `Failure` or null), `agent`, `time` (both
        null unless there is a failure on the board), `sum_of_costs` and `makespan` (of this plan,
        null unless valid). For a line that is no such record `id` and `error`.
    """
    return _answer_lines(lines, _read_plan, _check_batch)


def _answer_lines(
    lines: Iterable[str],
    read: Callable[[str], _Task],
    answer: Callable[[Sequence[_Task], int], list[Record]],
) -> Iterator[tuple[int, Record]]:
    records = ((n, line) for n, line in enumerate(lines, start=1) if line.strip())
    small, large = _BATCH_SIZES
    chunk = list(islice(records, large))
    # One size for all batches, but a handful of boards shouldn't pay for a large one.
    batch_size = small if len(chunk) <= small else large
    while chunk:
        results = [(number, _try(read, line)) for number, line in chunk]
        tasks = [result for _, result in results if isinstance(result, _Task)]
        answers = iter(answer(tasks, batch_size) if tasks else [])
        for number, result in results:
            if isinstance(result, RecordError):
                yield number, {"id": result.id, "error": str(result)}
            else:
                yield number, next(answers)
        chunk = list(islice(records, large))


def _try(read: Callable[[str], _Task], line: str) -> _Task | RecordError:
    try:
        return read(line)
    except RecordError as error:
        return error


def _read_board(line: str) -> _Task:
    task = _task(_load(line))
    if task.num_agents < MIN_AGENTS:
        raise RecordError(
            f"grid: got {task.num_agents} agents, {MIN_AGENTS} to {MAX_AGENTS} are allowed", task.id
        )
    return task


def _read_plan(line: str) -> _Task:
    record = _load(line)
    task = _task(record)
    given = [name for name in ("plan", "text") if name in record]
    if len(given) != 1:
        raise RecordError(
            f"plan, text: got {' and '.join(given) or 'neither'}, exactly one is needed", task.id
        )
    if given == ["plan"]:
        task = replace(task, plan=_named_plan(record["plan"], task.num_agents))
    elif isinstance(record["text"], str):
        text = record["text"]
        read = parse_answer(text, task.num_agents, max_steps=max(1, len(text)))
        task = replace(task, plan=read.plan)
    else:
        raise RecordError(f"text: got {_show(record['text'])}, a string is needed", task.id)
    if task.length > MAX_STEPS:
        raise RecordError(
            f"{given[0]}: got {task.length} steps, at most {MAX_STEPS} are allowed", task.id
        )
    return task


def _load(line: str) -> Record:
    try:
        record = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON: {error or 'nested too deeply'}") from None
    if not isinstance(record, dict):
        raise RecordError(f"got {_show(record)}, a JSON object is needed")
    return record


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _task(record: Record) -> _Task:
    for field in ("id", "grid"):
        if field not in record:
            raise RecordError(
                f"{field}: missing, got the fields {_show(list(record))}", record.get("id")
            )
    grid = record["grid"]
    if not isinstance(grid, list) or not all(isinstance(row, str) for row in grid):
        raise RecordError(f"grid: got {_show(grid)}, a list of strings is needed", record["id"])
    if not 2 <= len(grid) <= MAX_SIZE:
        raise RecordError(f"grid: got {len(grid)} rows, 2 to {MAX_SIZE} are allowed", record["id"])
    try:
        size = _padded(len(grid), _EFFORTS)
        instance = parse_grid(grid, max_size=size, max_agents=MAX_AGENTS)
    except GridError as error:
        raise RecordError(f"grid: {error}", record["id"]) from None
    return _Task(record["id"], instance, int(np.sum(instance.agent_mask)))


def _named_plan(plan: Any, num_agents: int) -> Plan | None:
    """A plan given as action names; None if it is anything else."""
    if not isinstance(plan, list) or len(plan) != num_agents:
        return None
    if not all(isinstance(names, list) for names in plan):
        return None
    actions = [[_action(name) for name in names] for names in plan]
    if any(action is None for action in chain.from_iterable(actions)):
        return None
    return tuple(tuple(a for a in names if a is not None) for names in actions)


def _action(name: Any) -> int | None:
    if not isinstance(name, str) or not name.isascii():
        return None
    action = Action.__members__.get(name.upper())
    return None if action is None else int(action)


def _padded(value: int, allowed: Iterable[int]) -> int:
    """The least allowed value that is not below `value`."""
    return min(limit for limit in allowed if limit >= value)


def _solve_batch(tasks: Sequence[_Task], batch_size: int) -> list[Record]:
    solutions = _solve(tasks, batch_size)
    return [
        _solution_record(task, solution) for task, solution in zip(tasks, solutions, strict=True)
    ]


def _solution_record(task: _Task, solution: Solution) -> Record:
    status = Status(int(solution.status))
    optima: Record = dict.fromkeys(("sum_of_costs", "makespan", "needs_wait", "plan"))
    makespan_plan = None
    if status == Status.OPTIMAL:
        optima = solution_fields(solution, task.num_agents)
        makespan_plan = action_names(np.asarray(solution.makespan_plan)[:, : task.num_agents])
    return {
        "id": task.id,
        "status": status.name,
        **optima,
        "makespan_plan": makespan_plan,
        "expansions": int(solution.expansions),
    }


def solution_fields(solution: Solution, num_agents: int | None = None) -> Record:
    """The optima of an OPTIMAL solution as JSON has them; the plan by names, trimmed.

    Args:
        solution: of one board, agents in the slots from 0 on.
        num_agents: agents of the board; None for as many as there are slots.
    """
    return {
        "sum_of_costs": int(solution.sum_of_costs),
        "makespan": int(solution.makespan),
        "needs_wait": bool(solution.needs_wait),
        "plan": action_names(np.asarray(solution.plan)[:, :num_agents]),
    }


def _check_batch(tasks: Sequence[_Task], batch_size: int) -> list[Record]:
    solutions = _solve(tasks, batch_size)
    records: list[Record] = [{}] * len(tasks)
    shapes = [(_size(task), _plan_bucket(task.length)) for task in tasks]
    for shape in sorted(set(shapes)):
        rows = [i for i, other in enumerate(shapes) if other == shape]
        _, steps = shape
        outcomes = _verify(
            [tasks[i] for i in rows], [solutions[i] for i in rows], steps, batch_size
        )
        for i, outcome in zip(rows, outcomes, strict=True):
            known = solutions[i].status != Status.UNKNOWN
            records[i] = _outcome_record(tasks[i].id, outcome, optimum_known=bool(known))
    return records


def _size(task: _Task) -> int:
    return int(np.shape(task.instance.holes)[-1])


def _plan_bucket(length: int) -> int:
    """The static number of steps that a plan is padded to: a power of two."""
    return max(_SHORTEST_PLAN, 1 << (length - 1).bit_length() if length else 0)


def _outcome_record(id: Any, outcome: Outcome, *, optimum_known: bool) -> Record:
    failure = Failure(int(outcome.failure))
    return {
        "id": id,
        "parsed": bool(outcome.parsed),
        "valid": bool(outcome.valid),
        "optimal_sum_of_costs": bool(outcome.optimal_sum_of_costs) if optimum_known else None,
        "optimal_makespan": bool(outcome.optimal_makespan) if optimum_known else None,
        "failure": None if failure == Failure.NONE else failure.label,
        "agent": _unless_negative(outcome.agent),
        "time": _unless_negative(outcome.time),
        "sum_of_costs": _unless_negative(outcome.sum_of_costs),
        "makespan": _unless_negative(outcome.makespan),
    }


def _unless_negative(value: Any) -> int | None:
    return int(value) if value >= 0 else None


def _solve(tasks: Sequence[_Task], batch_size: int) -> list[Solution]:
    """Solutions with NumPy leaves. Two agents' UNKNOWN are tried again at a long horizon."""
    solutions: dict[int, Solution] = {}

    def solve_rows(rows: Sequence[int], most: int, horizon: int = 0) -> None:
        shapes = {i: (_size(tasks[i]), _padded(tasks[i].num_agents, _PADDED_AGENTS)) for i in rows}
        for size, slots in sorted(set(shapes.values())):
            alike = [i for i in rows if shapes[i] == (size, slots)]
            boards = [_with_slots(tasks[i].instance, slots) for i in alike]
            effort = _EFFORTS[size]
            solver = _solver(max(horizon, effort.horizon))
            found = _in_batches(solver, boards, min(most, effort.most), _nobody(boards[0]))
            solutions.update(zip(alike, found, strict=True))

    everyone = range(len(tasks))
    solve_rows(everyone, batch_size)
    unknown = [
        i
        for i in everyone
        if solutions[i].status == Status.UNKNOWN and tasks[i].num_agents == MIN_AGENTS
    ]
    solve_rows(unknown, _LONG_BATCH_SIZE, _LONG_HORIZON)
    return [solutions[i] for i in everyone]


def _with_slots(instance: Instance, slots: int) -> Instance:
    return replace(
        instance,
        starts=instance.starts[:slots],
        goals=instance.goals[:slots],
        agent_mask=instance.agent_mask[:slots],
    )


def _nobody(instance: Instance) -> Instance:
    """A board without agents: it fills up a batch and takes no time."""
    nobody: Any = np.zeros_like(instance.agent_mask)
    return replace(instance, agent_mask=nobody)


def _verify(
    tasks: Sequence[_Task], solutions: Sequence[Solution], steps: int, batch_size: int
) -> list[Outcome]:
    rows = []
    for task, solution in zip(tasks, solutions, strict=True):
        plan = np.full((steps, MAX_AGENTS), Action.WAIT, np.int8)
        for agent, actions in enumerate(task.plan or ()):
            plan[: len(actions), agent] = actions
        # Verification reads the optima only, and plans of different shapes can't be stacked.
        no_plan: Any = np.zeros((0, MAX_AGENTS), np.int8)
        optimum = replace(solution, plan=no_plan, makespan_plan=no_plan)
        rows.append((task.instance, plan, np.int32(task.length), task.plan is not None, optimum))
    return _in_batches(_verifier(), rows, batch_size, rows[-1])


@cache
def _solver(horizon: int) -> Callable[[Instance], Solution]:
    return jax.jit(jax.vmap(partial(solve, horizon=horizon)))


@cache
def _verifier() -> Callable[[Any], Outcome]:
    return jax.jit(jax.vmap(lambda row: verify(*row)))


def _in_batches(
    function: Callable[[Any], Any], rows: Sequence[Any], batch_size: int, filler: Any
) -> list[Any]:
    """Apply a batched function to equal pytrees, `batch_size` at a time; the last is filled up."""
    results: list[Any] = []
    for start in range(0, len(rows), batch_size):
        chunk = list(rows[start : start + batch_size])
        filled = chunk + [filler] * (batch_size - len(chunk))
        batch = jax.tree.map(lambda *leaves: np.stack(leaves), *filled)
        done = jax.device_get(function(batch))
        results.extend(jax.tree.map(lambda leaf, i=i: leaf[i], done) for i in range(len(chunk)))
    return results


def _show(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "..."
