"""The task in words, and a plan in words.

The symbols and the (row, column) coordinates are the published ones; the wording is ours.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from jaxlake import Action, Instance, format_grid, parse_grid
from jaxlake.text import GOAL_SYMBOLS, START_SYMBOLS

Style = Literal["compact", "full"]
STYLES: tuple[Style, ...] = get_args(Style)

MAX_AGENTS = len(START_SYMBOLS)

_EXAMPLE_MOVES = ("RIGHT DOWN DOWN", "WAIT LEFT", "UP UP RIGHT", "LEFT", "DOWN WAIT LEFT")

_FULL = """\
Plan the paths of {num_agents} agents on a frozen lake, a board of {size} x {size} cells.

Coordinates are (row, column), counted from 0; (0, 0) is the top left cell.
Symbols: F is frozen ground, H is a hole.
{symbols}
Starts and goals are frozen ground too: every agent may cross them.

Rules
- In each time step every agent takes one action, all at the same moment: \
UP (row - 1), DOWN (row + 1), LEFT (column - 1), RIGHT (column + 1) or WAIT (stay in the cell).
- No agent may leave the board or enter a hole.
- Vertex conflict: two agents may never be in the same cell after a step.
- Swapping conflict: two agents may not trade cells with each other within one step. \
Entering a cell that another agent leaves in the same step is allowed.
- An agent whose actions have ended stays where it is and still blocks that cell.
- Once all actions have ended, every agent must be at its own goal.

Objective
An agent's cost is the number of steps until it arrives at its goal for good. \
Make the sum of these costs as small as possible; among the plans with the smallest sum, \
let the last agent arrive as early as possible.

Answer
One line for each agent with its actions in order, up to its arrival, \
and nothing after these lines. The form, with actions that belong to another board:
{example}

Board
{board}
{tasks}

Your answer:
"""

_COMPACT = """\
Find paths: {num_agents} agents, {size}x{size}
{board}
{tasks}
"""


def render(board: Sequence[str] | Instance, style: Style) -> str:
    """Put one board into words.

    Args:
        board: the rows in the published symbols, or one unbatched `Instance`; 1 to 5 agents.
        style: `compact` (a header, the rows, a line an agent; for the miniature policy, which
            learns the rules from examples) or `full` (rules, objective and answer format as well;
            for an instruct model).

    Returns:
        The prompt. It ends with a newline, and the policy's answer follows.

    Raises:
        GridError: the rows are not a board; the message names the row, column and letter.
        ValueError: the style is unknown.
    """
    if style not in STYLES:
        raise ValueError(f"style: got {style!r}, allowed are {', '.join(STYLES)}")
    if isinstance(board, Instance):
        instance, rows = board, format_grid(board)
    else:
        instance = parse_grid(board, max_size=max(10, len(board)), max_agents=MAX_AGENTS)
        rows = [" ".join(row.split()) for row in board]
    agents = np.flatnonzero(np.asarray(instance.agent_mask)).tolist()
    starts, goals = np.asarray(instance.starts), np.asarray(instance.goals)
    template = _COMPACT if style == "compact" else _FULL
    return template.format(
        num_agents=len(agents),
        size=len(rows),
        board="\n".join(rows),
        tasks="\n".join(f"Agent {i}: {_cell(starts[i])} to {_cell(goals[i])}" for i in agents),
        symbols="\n".join(
            f"Agent {i} starts at {START_SYMBOLS[i]} and has its goal at {GOAL_SYMBOLS[i]}."
            for i in agents
        ),
        example="\n".join(f"Agent {i}: {_EXAMPLE_MOVES[i]}" for i in agents),
    )


def target(plan: np.ndarray | Sequence[Sequence[int]]) -> str:
    """A plan as the policy should answer it: one line an agent, no newline at the end.

    Args:
        plan: int (T, K), one row a time step, padded with WAIT; T may be 0 only with an array.

    Returns:
        Each agent's actions up to its last move. An agent that never moves is written as `WAIT`,
        which costs nothing: waiting at the goal is free.

    Raises:
        ValueError: the plan is not (T, K), or holds a value that is not an `Action`.
    """
    lines = (" ".join(names) or Action.WAIT.name for names in action_names(plan))
    return "\n".join(f"Agent {i}: {line}" for i, line in enumerate(lines))


def action_names(plan: np.ndarray | Sequence[Sequence[int]]) -> list[list[str]]:
    """The names of each agent's actions, up to its last move.

    In a valid plan the last move is the last arrival at the goal: what follows is waiting there.

    Args:
        plan: int (T, K), one row a time step.

    Raises:
        ValueError: the plan is not (T, K), or holds a value that is not an `Action`.
    """
    steps = np.asarray(plan)
    if steps.ndim != 2:
        raise ValueError(f"plan: got shape {steps.shape}, (steps, agents) is needed")
    unknown = steps[(steps < min(Action)) | (steps > max(Action))]
    if unknown.size:
        raise ValueError(
            f"plan: got action {unknown[0]}, {min(Action)} to {max(Action)} are allowed"
        )
    names = []
    for actions in steps.T:
        moves = np.flatnonzero(actions != Action.WAIT)
        length = int(moves[-1]) + 1 if moves.size else 0
        names.append([Action(int(action)).name for action in actions[:length]])
    return names


def chat_messages(prompt: str) -> list[dict[str, str]]:
    """The prompt as a conversation, for a tokenizer's `apply_chat_template`.

    The rules are part of the prompt, so there is no system turn. Whether a model may think first
    (Qwen3's `enable_thinking`) is the caller's to pass to the template.
    """
    return [{"role": "user", "content": prompt}]


def _cell(position: np.ndarray) -> str:
    return f"({int(position[0])}, {int(position[1])})"
