"""Boards as JSON lines: `jaxlake solve` solves them, `jaxlake check` verifies plans on them.

Records are read, answered and forgotten in batches of one size, so that memory doesn't grow with
the file. Boards are padded to one of three sizes and one of two numbers of agents. So one program
is compiled for each such shape that comes up, and small boards don't pay for large ones.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxlake
from jaxlake import Action, Failure, GridError, Instance, Outcome, Solution, Status
from jaxlake.command_line.json_lines import Answers, Record, RecordError, clipped_json, read_records
from jaxlake.language.answers import Answer, Plan, parse_answer
from jaxlake.language.prompts import MAX_AGENTS, action_names
from jaxlake.render import Picture
from jaxlake.solver import solve_batch
from jaxlake.solver.solution import unknown_solution

ACTIONS = tuple(Action.__members__)
"""The names of actions, in the order of their numbers."""

MAX_SIZE = 32
"""Largest side of a board."""

MIN_AGENTS = 1
"""Fewest agents of a board to solve."""

MAX_STEPS = 4096
"""Longest plan that is checked: the costs of five agents still add up within int16."""


class _Effort(NamedTuple):
    """How boards of one padded size are solved."""

    horizon: int  # longest plan that is searched for
    batch_size: int  # at most; the memory that one board takes grows with the sixth power of N


_EFFORTS = {10: _Effort(64, 512), 16: _Effort(96, 128), MAX_SIZE: _Effort(160, 16)}
# For the rare boards of two agents that need longer plans. Each takes about 2 MB if its size is 10.
# With more agents it is nearly always the budget that is spent, and a longer horizon is no help.
_LONG_EFFORT = _Effort(1024, 16)
_FEW_AGENTS = 2
_PADDED_AGENTS = (_FEW_AGENTS, MAX_AGENTS)
_BATCH_SIZES = (32, 512)
_SHORTEST_PLAN = 32
_OPTIMA = ("sum_of_costs", "makespan", "needs_wait", "plan", "makespan_plan")


@dataclass(frozen=True)
class _Task:
    """One record to answer."""

    id: Any
    board: Instance  # padded to a size of _EFFORTS and to MAX_AGENTS
    grid: list[str]  # its rows, as they came
    plan: Plan | None = None  # None where there is no plan, or where it can't be read
    unread: str | None = None  # why it can't be read

    @property
    def num_agents(self) -> int:
        return int(np.sum(self.board.agent_mask))

    @property
    def steps(self) -> int:
        return max(map(len, self.plan or ()), default=0)


def solve_lines(lines: Iterable[bytes]) -> Answers:
    """Solve boards: records and answers have the fields that `jaxlake solve --help` lists."""
    return _answer_in_batches(read_records(lines, _read_board), _solution_records)


def check_lines(lines: Iterable[bytes], *, optimum: bool = True) -> Answers:
    """Check plans: records and answers have the fields that `jaxlake check --help` lists.

    Without the `optimum` no board is solved, and the `optimal_*` of the answers are None.
    """
    answer = partial(_outcome_records, optimum=optimum)
    return _answer_in_batches(read_records(lines, _read_plan), answer)


def drawn_lines(
    lines: Iterable[bytes], *, only: str | None = None
) -> Iterator[tuple[int, str, Picture | RecordError]]:
    """Draw boards, or the plans on them: the fields are those that `jaxlake render --help` lists.

    Yields for each record its line number, its id as text and its picture, or what is wrong with
    it. With `only` other ids are left out.
    """
    for number, drawing in read_records(lines, _read_drawing):
        id = drawing.id if isinstance(drawing, RecordError) else drawing[0].id
        name = str(number if id is None else id)
        if only is None or name == only:
            yield number, name, drawing if isinstance(drawing, RecordError) else _picture(*drawing)


def _read_drawing(record: Record) -> tuple[_Task, bool]:
    """Read a task, and whether there is a plan or an answer."""
    if "error" in record and "grid" not in record:
        raise RecordError(f"error: {clipped_json(record['error'])}, so there is no board to draw")
    # `jaxlake solve` writes null for the plan of a board for which it has none.
    planned = record.get("plan") is not None or "text" in record
    return _read_plan(record) if planned else _read_task(record), planned


def _picture(task: _Task, planned: bool) -> Picture:
    """Draw a board; with a plan, or an answer that holds none, also what comes of it."""
    if not planned:
        return jaxlake.show(task.board)
    plan = np.full((max(task.steps, 1), task.num_agents), Action.WAIT, np.int8)
    for agent, actions in enumerate(task.plan or ()):
        plan[: len(actions), agent] = actions
    if task.plan is not None:
        return jaxlake.show(task.board, plan, length=task.steps)
    unread = jax.jit(jaxlake.verify)(
        task.board,
        np.zeros((1, MAX_AGENTS), np.int8),
        np.int32(0),
        np.bool_(False),
        unknown_solution(1, MAX_AGENTS),
    )
    return jaxlake.show(task.board, None, unread)


def _answer_in_batches(
    records: Iterator[tuple[int, _Task | RecordError]],
    answer: Callable[[Sequence[_Task], int], list[Record]],
) -> Answers:
    few, many = _BATCH_SIZES
    chunk = list(itertools.islice(records, many))
    # All batches have one size, but a handful of boards shouldn't pay for a large one.
    batch_size = few if len(chunk) <= few else many
    while chunk:
        answers = iter(answer([task for _, task in chunk if isinstance(task, _Task)], batch_size))
        for number, task in chunk:
            yield number, task.answer if isinstance(task, RecordError) else next(answers)
        chunk = list(itertools.islice(records, many))


def _read_board(record: Record) -> _Task:
    task = _read_task(record)
    if (agents := task.num_agents) < MIN_AGENTS:
        raise RecordError(f"grid: got {agents} agents, {MIN_AGENTS} to {MAX_AGENTS} are allowed")
    return task


def _read_plan(record: Record) -> _Task:
    task = _read_task(record)
    given = [name for name in ("plan", "text") if name in record]
    if len(given) != 1:
        found = " and ".join(given) or f"neither, but the fields {clipped_json(sorted(record))}"
        raise RecordError(f"plan, text: got {found}; exactly one of the two is needed")
    if given == ["plan"]:
        answer = _plan_of_names(record["plan"], task.num_agents)
    elif isinstance(text := record["text"], str):
        answer = parse_answer(text, task.num_agents, max_steps=max(1, len(text)))
    else:
        raise RecordError(f"text: got {clipped_json(text)}, a string is needed")
    task = replace(task, plan=answer.plan, unread=answer.reason)
    if task.steps > MAX_STEPS:
        raise RecordError(f"{given[0]}: got {task.steps} steps, at most {MAX_STEPS} are allowed")
    return task


def _read_task(record: Record) -> _Task:
    for field in ("id", "grid"):
        if field not in record:
            raise RecordError(f"{field}: missing, got the fields {clipped_json(list(record))}")
    grid = record["grid"]
    if not isinstance(grid, list) or not all(isinstance(row, str) for row in grid):
        raise RecordError(f"grid: got {clipped_json(grid)}, a list of strings is needed")
    if not 2 <= len(grid) <= MAX_SIZE:
        raise RecordError(f"grid: got {len(grid)} rows, 2 to {MAX_SIZE} are allowed")
    try:
        size = _padded(len(grid), _EFFORTS)
        board = jaxlake.parse_grid(grid, max_size=size, max_agents=MAX_AGENTS)
        return _Task(record["id"], board, grid)
    except GridError as error:
        raise RecordError(f"grid: {str(error).removeprefix('grid: ')}") from None


def _plan_of_names(plan: Any, num_agents: int) -> Answer:
    """Read a plan that is given as action names, or say why it is none."""

    def unread(reason: str) -> Answer:
        return Answer(parsed=False, plan=None, reason=f"plan: {reason}")

    if not isinstance(plan, list) or not all(isinstance(names, list) for names in plan):
        return unread(f"got {clipped_json(plan)}, a list of actions for each agent is needed")
    if len(plan) != num_agents:
        return unread(f"got {len(plan)} lists of actions, the board has {num_agents} agents")
    for agent, names in enumerate(plan):
        for step, name in enumerate(names):
            # Letters beyond ASCII may turn into an action's letters when they are upper-cased.
            if not (isinstance(name, str) and name.isascii()) or name.upper() not in ACTIONS:
                place = f"agent {agent}, step {step}"
                allowed = ", ".join(ACTIONS)
                return unread(f"{place}: got {clipped_json(name)}, allowed are {allowed}")
    numbers = tuple(tuple(int(Action[name.upper()]) for name in names) for names in plan)
    return Answer(parsed=True, plan=numbers, reason=None)


def _padded(value: int, allowed: Iterable[int]) -> int:
    return min(limit for limit in allowed if limit >= value)


def _solution_records(tasks: Sequence[_Task], batch_size: int) -> list[Record]:
    records = []
    for task, solution in zip(tasks, _solve(tasks, batch_size), strict=True):
        record = {"id": task.id, "grid": task.grid, "status": Status(int(solution.status)).name}
        if solution.status == Status.OPTIMAL:
            record |= solution_fields(solution, task.num_agents)
            plan = np.asarray(solution.makespan_plan)[:, : task.num_agents]
            record["makespan_plan"] = action_names(plan)
        else:
            record |= dict.fromkeys(_OPTIMA)
        records.append(record | {"expansions": int(solution.expansions)})
    return records


def solution_fields(solution: Solution, num_agents: int | None = None) -> Record:
    """Put the optima of an OPTIMAL solution into JSON, with its plan as trimmed action names.

    The board has `num_agents` in the slots from 0 on (None: in every slot).
    """
    return {
        "sum_of_costs": int(solution.sum_of_costs),
        "makespan": int(solution.makespan),
        "needs_wait": bool(solution.needs_wait),
        "plan": action_names(np.asarray(solution.plan)[:, :num_agents]),
    }


def _outcome_records(tasks: Sequence[_Task], batch_size: int, *, optimum: bool) -> list[Record]:
    unknown: Solution = jax.device_get(unknown_solution(0, MAX_AGENTS))
    solutions = _solve(tasks, batch_size) if optimum else [unknown] * len(tasks)
    rows = []
    for task, solution in zip(tasks, solutions, strict=True):
        # Plans are padded to a power of two.
        length = max(_SHORTEST_PLAN, 1 << (task.steps - 1).bit_length() if task.steps else 0)
        plan = np.full((length, MAX_AGENTS), Action.WAIT, np.int8)
        for agent, actions in enumerate(task.plan or ()):
            plan[: len(actions), agent] = actions
        # Verification reads only the optima, and plans of different shapes can't be stacked.
        no_plan: Any = np.zeros((0, MAX_AGENTS), np.int8)
        optima = replace(solution, plan=no_plan, makespan_plan=no_plan)
        rows.append((task.board, plan, np.int32(task.steps), task.plan is not None, optima))
    outcomes = _in_batches(rows, lambda row: (_verifier(), batch_size))
    return [
        _outcome_record(task, outcome, optimum_known=bool(solution.status != Status.UNKNOWN))
        for task, solution, outcome in zip(tasks, solutions, outcomes, strict=True)
    ]


def _outcome_record(task: _Task, outcome: Outcome, *, optimum_known: bool) -> Record:
    failure = Failure(int(outcome.failure))
    reason = {} if task.unread is None else {"reason": task.unread}
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
    """Solve boards; of one or two agents, UNKNOWN ones are tried again at a long horizon."""

    def solve_all(tasks: Sequence[_Task], effort: _Effort | None = None) -> list[Solution]:
        def how(board: Instance) -> tuple[Callable[[Instance], Solution], int]:
            chosen = effort or _EFFORTS[np.shape(board.holes)[-1]]
            solve = partial(solve_batch, horizon=chosen.horizon)
            return solve, min(batch_size, chosen.batch_size)

        boards = [_with_slots(task.board, task.num_agents) for task in tasks]
        return _in_batches(boards, how, filler=_without_agents)

    solutions = solve_all(tasks)
    unknown = [i for i, one in enumerate(solutions) if one.status == Status.UNKNOWN]
    unknown = [i for i in unknown if tasks[i].num_agents <= _FEW_AGENTS]
    again = solve_all([tasks[i] for i in unknown], _LONG_EFFORT)
    for i, solution in zip(unknown, again, strict=True):
        solutions[i] = solution
    return solutions


def _with_slots(board: Instance, num_agents: int) -> Instance:
    slots = _padded(num_agents, _PADDED_AGENTS)
    cut = {name: getattr(board, name)[:slots] for name in ("starts", "goals", "agent_mask")}
    return replace(board, **cut)


def _without_agents(board: Instance) -> Instance:
    """A board that fills up a batch and takes no time."""
    nobody: Any = np.zeros_like(board.agent_mask)
    return replace(board, agent_mask=nobody)


@cache
def _verifier() -> Callable[[Any], Outcome]:
    return jax.jit(jax.vmap(lambda row: jaxlake.verify(*row)))


def _in_batches(
    rows: Sequence[Any],
    how: Callable[[Any], tuple[Callable[[Any], Any], int]],  # function and size of batches
    filler: Callable[[Any], Any] = lambda row: row,  # what the last batch is filled up with
) -> list[Any]:
    """Apply functions to batches of pytrees of one shape, which decides how; the order is kept."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        groups[tuple(np.shape(leaf) for leaf in jax.tree.leaves(row))].append(i)
    answers: dict[int, Any] = {}
    for _, group in sorted(groups.items()):
        function, batch_size = how(rows[group[0]])
        fill = filler(rows[group[0]])
        for start in range(0, len(group), batch_size):
            chunk = group[start : start + batch_size]
            filled = [rows[i] for i in chunk] + [fill] * (batch_size - len(chunk))
            done = jax.device_get(function(jax.tree.map(lambda *leaves: np.stack(leaves), *filled)))
            for place, i in enumerate(chunk):
                answers[i] = jax.tree.map(lambda leaf, place=place: leaf[place], done)
    return [answers[i] for i in range(len(rows))]
