"""Boards as a `Dataset` of Hugging Face's library `datasets`, and back.

A row has the fields of a record of `jaxlake solve`, so that people, trainers and the hub's viewer
can read it. `Dataset.push_to_hub`, `save_to_disk` and `to_parquet` write such a set, and
`load_dataset` and `load_from_disk` read it.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxlake.board.dynamics import Action
from jaxlake.board.grids import format_grid, parse_grid
from jaxlake.board.instance import Instance, pad_instance, stack_instances
from jaxlake.datasets.source_files import DatasetError
from jaxlake.errors import did_you_mean
from jaxlake.generator import Generated
from jaxlake.language.prompts import PromptStyle, action_names, render, target
from jaxlake.solver import DEFAULT_HORIZON, Solution, Status

if TYPE_CHECKING:
    from datasets import Dataset, Features

_OPTIMA = ("sum_of_costs", "makespan", "needs_wait", "plan", "makespan_plan")
_SOLUTION = ("status", *_OPTIMA, "expansions")


def to_hugging_face(
    boards: Instance | Generated,
    solutions: Solution | None = None,
    *,
    prompt: PromptStyle | None = None,
    chat: bool = True,
) -> "Dataset":
    """Make a data set with one row per board.

    | column                     | what it holds                                               |
    |----------------------------|-------------------------------------------------------------|
    | `grid`                     | the rows of the board in the published symbols              |
    | `size`, `num_agents`       | side of the board, cells; agents on it                      |
    | `status`                   | of the solution, the name of a `Status`                     |
    | `sum_of_costs`, `makespan` | the optima, steps                                           |
    | `needs_wait`               | whether an optimal plan has to wait                         |
    | `plan`, `makespan_plan`    | of each agent the names of its actions, up to its last move |
    | `expansions`               | nodes expanded by the search                                |
    | `prompt`                   | the board in words; where `prompt` is set                   |
    | `answer`                   | `plan` as a policy should write it; likewise                |

    Columns of the solution are there if there is one, and all but `status` and `expansions` are
    None unless it is OPTIMAL.

    Args:
        boards: Leaves (B, ...), of at most five agents in the first slots; or what `generate` and
            `load_set` return, of which the filled slots are taken, with their solutions.
        solutions: Of the boards, leaves (B, ...), where `boards` is an `Instance`.
        prompt: The style of the column `prompt`; see `render`. None leaves it out.
        chat: Whether a prompt is a list of chat messages, one by the user, or else a string.

    Raises:
        ValueError: `boards` is no batch, the lengths differ, solutions come twice, or the style is
            unknown; of boards that have no symbols, see `GridError`.
        ModuleNotFoundError: `datasets` is missing (the extra `hub`).
    """
    library = _import_library()
    if isinstance(boards, Generated):
        if solutions is not None:
            raise ValueError("solutions: got some, but what was generated brings its own")
        filled = np.asarray(boards.filled)
        instances, solutions = jax.tree.map(
            lambda leaf: np.asarray(leaf)[filled], (boards.instances, boards.solutions)
        )
    else:
        instances = boards
    if np.ndim(instances.size) != 1:
        raise ValueError(f"boards: got size of shape {np.shape(instances.size)}, (B,) is needed")
    count = len(instances.size)
    if solutions is not None and len(solutions.status) != count:
        raise ValueError(f"solutions: got {len(solutions.status)} for {count} boards")
    rows = [_row(board, solution, prompt, chat) for board, solution in _each(instances, solutions)]
    features = _features(solutions is not None, prompt is not None, chat)
    return library.Dataset.from_dict(
        {name: [row[name] for row in rows] for name in features}, features=features
    )


def from_hugging_face(
    dataset: "Dataset",
    *,
    max_size: int | None = None,
    max_agents: int | None = None,
    horizon: int = DEFAULT_HORIZON,
) -> tuple[Instance, Solution | None]:
    """Return the boards of a data set and their solutions, NumPy leaves (B, ...).

    With the padding that the boards had, they are exactly those that `to_hugging_face` was given.

    Args:
        dataset: One split, with the columns of `to_hugging_face`; others are passed over. Of these
            `grid` is needed. Without `status` there are no solutions.
        max_size: N, the side of the padded boards; None stands for the largest of the set.
        max_agents: K, the number of slots; None stands for the most agents of the set, but at least
            two.
        horizon: Steps of the plans, with waits after the last move.

    Raises:
        DatasetError: The data set is no split, is empty or lacks a column; or a row is not what it
            should be, or larger than the limits; the message names the row and the column.
        ModuleNotFoundError: `datasets` is missing (the extra `hub`).
    """
    if not isinstance(dataset, _import_library().Dataset):
        raise DatasetError(f"dataset: got {type(dataset).__name__}, one split is needed")
    solved = "status" in dataset.column_names
    needed = ("grid", *_SOLUTION) if solved else ("grid",)
    if missing := [name for name in needed if name not in dataset.column_names]:
        raise DatasetError(f"dataset: the columns {', '.join(missing)} are missing")
    rows: list[dict[str, Any]] = list(dataset.select_columns(list(needed)))
    if not rows:
        raise DatasetError("dataset: got no rows, at least one is needed")
    boards = [_board(row["grid"], number) for number, row in enumerate(rows)]
    sides = [np.shape(board.holes)[-1] for board in boards]
    slots = [np.shape(board.agent_mask)[-1] for board in boards]
    N, K = max(sides) if max_size is None else max_size, max_agents or max(2, *slots)
    for name, found, limit in (("max_size", sides, N), ("max_agents", slots, K)):
        if max(found) > limit:
            number = int(np.argmax(found))
            raise DatasetError(f"row {number}: grid: has {found[number]}, {name} is {limit}")
    instances = stack_instances([pad_instance(board, N, K) for board in boards])
    if not solved:
        return instances, None
    solutions = [
        _solution(row, number, slots[number], (horizon, K)) for number, row in enumerate(rows)
    ]
    return instances, jax.tree.map(lambda *leaves: np.stack(leaves), *solutions)


def _import_library() -> Any:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "data sets of Hugging Face need datasets: pip install 'jaxlake[hub]'", name=error.name
        ) from None
    return datasets


def _each(
    boards: Instance, solutions: Solution | None
) -> Iterator[tuple[Instance, Solution | None]]:
    """Yield the boards and solutions one by one, unbatched, with NumPy leaves."""
    batch = jax.tree.map(np.asarray, (boards, solutions))
    for row in range(len(boards.size)):
        yield jax.tree.map(lambda leaf, row=row: leaf[row], batch)


def _features(solved: bool, prompted: bool, chat: bool) -> "Features":
    """Return the types of the columns."""
    library = _import_library()
    text, whole, flag = (library.Value(name) for name in ("string", "int32", "bool"))
    features = {"grid": library.List(text), "size": whole, "num_agents": whole}
    if solved:
        names = library.List(library.List(text))
        optima = dict(zip(_OPTIMA, (whole, whole, flag, names, names), strict=True))
        features |= {"status": text, **optima, "expansions": whole}
    if prompted:
        features["prompt"] = library.List({"role": text, "content": text}) if chat else text
        if solved:
            features["answer"] = text
    return library.Features(features)


def _row(
    board: Instance, solution: Solution | None, style: PromptStyle | None, chat: bool
) -> dict[str, Any]:
    agents = int(np.sum(board.agent_mask))
    row: dict[str, Any] = {
        "grid": format_grid(board),
        "size": int(board.size),
        "num_agents": agents,
        "answer": None,
    }
    if style is not None:
        words = render(board, style)
        row["prompt"] = [{"role": "user", "content": words}] if chat else words
    if solution is None:
        return row
    row |= {"status": Status(int(solution.status)).name, "expansions": int(solution.expansions)}
    if solution.status != Status.OPTIMAL:
        return row | dict.fromkeys(_OPTIMA)
    plan = np.asarray(solution.plan)[:, :agents]
    return row | {
        "sum_of_costs": int(solution.sum_of_costs),
        "makespan": int(solution.makespan),
        "needs_wait": bool(solution.needs_wait),
        "plan": action_names(plan),
        "makespan_plan": action_names(np.asarray(solution.makespan_plan)[:, :agents]),
        "answer": target(plan),
    }


def _board(grid: Any, number: int) -> Instance:
    """Read a board without padding, one slot for each agent."""
    try:
        found = parse_grid(grid)
        agents = int(np.sum(found.agent_mask))
        return parse_grid(grid, max_agents=agents)
    except (TypeError, ValueError) as error:
        raise DatasetError(f"row {number}: {error}") from None


def _solution(row: dict[str, Any], number: int, agents: int, shape: tuple[int, int]) -> Solution:
    """Read a solution whose plans have this shape, (horizon, K)."""
    if row["status"] not in Status.__members__:
        allowed = ", ".join(Status.__members__)
        raise DatasetError(f"row {number}: status: got {row['status']!r}, allowed are {allowed}")
    optimal = row["status"] == Status.OPTIMAL.name
    if optimal and (missing := [name for name in _OPTIMA if row[name] is None]):
        raise DatasetError(f"row {number}: {missing[0]}: missing, but the status is OPTIMAL")
    none = np.full(shape, -1, np.int8)
    leaves: dict[str, Any] = {
        "status": np.int8(Status[row["status"]]),
        "sum_of_costs": np.int16(row["sum_of_costs"] if optimal else -1),
        "makespan": np.int16(row["makespan"] if optimal else -1),
        "needs_wait": np.bool_(optimal and row["needs_wait"]),
        "expansions": np.int32(row["expansions"]),
    }
    for name in ("plan", "makespan_plan"):
        try:
            leaves[name] = _plan(row[name], agents, shape) if optimal else none
        except ValueError as error:
            raise DatasetError(f"row {number}: {name}: {error}") from None
    return Solution(**leaves)


def _plan(names: Sequence[Sequence[str]], agents: int, shape: tuple[int, int]) -> np.ndarray:
    """Read the actions of each agent, int8 of this shape (horizon, K)."""
    longest = max(map(len, names), default=0)
    if len(names) != agents or longest > shape[0]:
        raise ValueError(
            f"got {len(names)} agents and {longest} steps, {agents} agents and at most {shape[0]} "
            "steps are allowed"
        )
    plan = np.full(shape, Action.WAIT, np.int8)
    for agent, actions in enumerate(names):
        for time, action in enumerate(actions):
            if action not in Action.__members__:
                allowed = ", ".join(Action.__members__)
                meant = did_you_mean(action, Action.__members__)
                raise ValueError(f"got the action {action!r}, allowed are {allowed}{meant}")
            plan[time, agent] = Action[action]
    return plan
