"""Convert boards to a Hugging Face `Dataset`, with the fields of `jaxlake solve`."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxlake.board.grids import format_grid
from jaxlake.board.instance import Instance
from jaxlake.datasets.solution_fields import OPTIMA, solution_fields
from jaxlake.generator import Generated
from jaxlake.language.prompts import PromptStyle, render, target
from jaxlake.solver import Solution, Status

if TYPE_CHECKING:
    from datasets import Dataset, Features


def to_hugging_face(
    boards: Instance | Generated,
    solutions: Solution | None = None,
    *,
    prompt: PromptStyle | None = None,
    chat: bool = True,
) -> "Dataset":
    """Return a data set with one row per board.

    | column                     | content                                                   |
    |----------------------------|-----------------------------------------------------------|
    | `grid`                     | the rows of the board in the published symbols            |
    | `size`, `num_agents`       | side of the board in cells; number of agents              |
    | `status`                   | status of the solution, the name of a `Status`            |
    | `sum_of_costs`, `makespan` | the optima in steps                                       |
    | `needs_wait`               | whether every optimal plan has a wait                     |
    | `plan`, `makespan_plan`    | the action names of each agent, up to its last move       |
    | `expansions`               | nodes expanded by the search                              |
    | `prompt`                   | the prompt, if `prompt` is set                            |
    | `answer`                   | the target answer for `plan`, if `prompt` is set          |

    The columns of the solution exist if solutions are given. Except for `status` and `expansions`,
    they are None unless the status is OPTIMAL.

    Args:
        boards: An `Instance` with leaves (B, ...) and at most five agents in the first slots, or
            the output of `generate` or `load_set`, whose filled slots are used.
        solutions: Solutions of the boards, leaves (B, ...), if `boards` is an `Instance`.
        prompt: The style of the column `prompt`; see `render`. None omits the column.
        chat: Whether a prompt is a list with one chat message by the user, or a string.

    Returns:
        The data set.

    Raises:
        ValueError: `boards` is not a batch, the lengths differ, solutions are given twice, or the
            style is unknown. Boards that can't be written in symbols raise `GridError`.
        ModuleNotFoundError: the package `datasets` is missing (extra `hub`).
    """
    import datasets as library  # the extra `hub`

    if isinstance(boards, Generated):
        if solutions is not None:
            raise ValueError(
                "solutions must be None for the output of generate, which contains them"
            )
        is_filled = np.asarray(boards.filled)
        instances, solutions = jax.tree.map(
            lambda leaf: np.asarray(leaf)[is_filled], (boards.instances, boards.solutions)
        )
    else:
        instances = boards
    if np.ndim(instances.size) != 1:
        raise ValueError(f"boards.size must have shape (B,), got {np.shape(instances.size)}")
    num_boards = len(instances.size)
    if solutions is not None and len(solutions.status) != num_boards:
        raise ValueError(f"solutions must have {num_boards} entries, got {len(solutions.status)}")
    batch = jax.tree.map(np.asarray, (instances, solutions))
    rows = []
    for index in range(num_boards):
        board, solution = jax.tree.map(lambda leaf, index=index: leaf[index], batch)
        rows.append(_make_row(board, solution, prompt, chat))
    features = _make_features(solutions is not None, prompt is not None, chat)
    return library.Dataset.from_dict(
        {name: [row[name] for row in rows] for name in features}, features=features
    )


def _make_features(has_solution: bool, has_prompt: bool, chat: bool) -> "Features":
    """Return the types of the columns."""
    import datasets as library

    string, integer, flag = (library.Value(name) for name in ("string", "int32", "bool"))
    features = {"grid": library.List(string), "size": integer, "num_agents": integer}
    if has_solution:
        plan = library.List(library.List(string))
        optima = dict(zip(OPTIMA, (integer, integer, flag, plan, plan), strict=True))
        features |= {"status": string, **optima, "expansions": integer}
    if has_prompt:
        features["prompt"] = library.List({"role": string, "content": string}) if chat else string
        if has_solution:
            features["answer"] = string
    return library.Features(features)


def _make_row(
    board: Instance, solution: Solution | None, style: PromptStyle | None, chat: bool
) -> dict[str, Any]:
    num_agents = int(np.sum(board.agent_mask))
    row: dict[str, Any] = {
        "grid": format_grid(board),
        "size": int(board.size),
        "num_agents": num_agents,
    }
    if style is not None:
        text = render(board, style)
        row["prompt"] = [{"role": "user", "content": text}] if chat else text
    if solution is None:
        return row
    plan = np.asarray(solution.plan)[:, :num_agents]
    is_optimal = solution.status == Status.OPTIMAL
    answer = target(plan, style=style or "compact") if is_optimal else None
    return row | solution_fields(solution, num_agents) | {"answer": answer}
