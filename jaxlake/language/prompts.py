"""A board as a prompt, and a plan as the answer to it.

The symbols and the (row, column) coordinates are the published ones; the wording is ours.
"""

from collections.abc import Sequence
from string import Formatter
from typing import Literal, get_args

import numpy as np

from jaxlake.board.dynamics import Action
from jaxlake.board.grids import GOAL_SYMBOLS, START_SYMBOLS, format_grid
from jaxlake.board.instance import Instance
from jaxlake.errors import did_you_mean

PromptStyle = Literal["compact", "full", "reasoned"]
PROMPT_STYLES: tuple[PromptStyle, ...] = get_args(PromptStyle)

MAX_AGENTS = len(START_SYMBOLS)
"""The published symbols name this many agents."""

_EXAMPLE_MOVES = ("RIGHT DOWN DOWN", "WAIT LEFT", "UP UP RIGHT", "LEFT", "DOWN WAIT LEFT")

_RULES = """\
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
"""

_FULL = (
    _RULES
    + """
Answer
One line for each agent with its actions in order, up to its arrival, \
and nothing after these lines. The form, with actions that belong to another board:
{example}

Board
{board}
{tasks}

Your answer:
"""
)

_REASONED = (
    _RULES
    + """
Board
{board}
{tasks}

Answer
Think step by step: follow the cell of every agent through time, and check each step for holes \
and conflicts. Then end with the final plan between <answer> and </answer>: one line for each \
agent with its actions in order, up to its arrival, or WAIT for an agent that never moves. \
Only the plan between these tags counts. An example of the form, with the plan of another board:
<answer>
{example}
</answer>
"""
)

_COMPACT = """\
Find paths: {num_agents} agents, {size}x{size}
{board}
{tasks}
"""


_TEMPLATES: dict[PromptStyle, str] = {"compact": _COMPACT, "full": _FULL, "reasoned": _REASONED}

TEMPLATE_FIELDS = ("board", "tasks", "symbols", "example", "num_agents", "size")
"""What a template may name in braces; it has to name `board`."""


def render(board: Instance, style: PromptStyle, *, template: str | None = None) -> str:
    """Write the prompt for one unbatched board with 1 to 5 agents; the policy's answer follows.

    Args:
        board: The board.
        style: `compact` holds a header, the rows and one line per agent, for a policy that learns
            the rules from examples. `full` adds the rules, the objective and the form of the
            answer, for a model that answers at once. `reasoned` invites a model to think, and asks
            for the final plan between `<answer>` and `</answer>`.
        template: A text to use in place of the style's, with `TEMPLATE_FIELDS` in braces.

    Raises:
        ValueError: The style is unknown, or the template as in `check_template`.
    """
    if style not in PROMPT_STYLES:
        allowed = f"{', '.join(PROMPT_STYLES)}{did_you_mean(style, PROMPT_STYLES)}"
        raise ValueError(f"style: got {style!r}, allowed are {allowed}")
    rows = format_grid(board)
    agents = np.flatnonzero(np.asarray(board.agent_mask)).tolist()
    starts, goals = np.asarray(board.starts).tolist(), np.asarray(board.goals).tolist()
    text = _TEMPLATES[style] if template is None else check_template(template)
    return text.format(
        num_agents=len(agents),
        size=len(rows),
        board="\n".join(rows),
        tasks="\n".join(f"Agent {i}: {tuple(starts[i])} to {tuple(goals[i])}" for i in agents),
        symbols="\n".join(
            f"Agent {i} starts at {START_SYMBOLS[i]} and has its goal at {GOAL_SYMBOLS[i]}."
            for i in agents
        ),
        example="\n".join(f"Agent {i}: {_EXAMPLE_MOVES[i]}" for i in agents),
    )


def check_template(template: str) -> str:
    """Return a template of prompts that `render` can fill.

    Raises:
        ValueError: A brace doesn't pair, a field isn't among `TEMPLATE_FIELDS`, or none is `board`.
    """
    try:
        fields = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ValueError(f"template: {error}; write {{{{ and }}}} for braces") from None
    unknown = [name for name in fields if name not in TEMPLATE_FIELDS]
    allowed = ", ".join(f"{{{name}}}" for name in TEMPLATE_FIELDS)
    if unknown:
        raise ValueError(f"template: got the field {{{unknown[0]}}}, allowed are {allowed}")
    if "board" not in fields:
        raise ValueError("template: the field {board} is missing")
    return template


def target(plan: np.ndarray | Sequence[Sequence[int]], *, style: PromptStyle = "compact") -> str:
    """Write a plan, int (T, K), as the answer that the policy should give: one line per agent.

    An agent that never moves is written as `WAIT`, which costs nothing: waiting at the goal is
    free. The style `reasoned` puts the lines between `<answer>` and `</answer>`. There is no
    newline at the end. See `action_names` for the plan.
    """
    names = (" ".join(names) or Action.WAIT.name for names in action_names(plan))
    lines = "\n".join(f"Agent {i}: {line}" for i, line in enumerate(names))
    return f"<answer>\n{lines}\n</answer>" if style == "reasoned" else lines


def action_names(plan: np.ndarray | Sequence[Sequence[int]]) -> list[list[str]]:
    """Return the names of each agent's actions in a plan, int (T, K), up to its last move.

    In a valid plan the last move is the last arrival at the goal: what follows is waiting there.

    Raises:
        ValueError: The plan is not (T, K), or holds a value that is not an `Action`.
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
