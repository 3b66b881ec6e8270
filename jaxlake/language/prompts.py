"""Text of boards as prompts and of plans as answers.

Symbols and (row, column) coordinates follow the published format, but not the wording.
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
"""Maximum number of agents, limited by the published symbols."""

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
"""Fields that a template may name in braces; `board` is required."""


def render(board: Instance, style: PromptStyle, *, template: str | None = None) -> str:
    """Return the prompt for a board.

    Args:
        board: An unbatched board with 1 to 5 agents.
        style: `compact` has a header, the rows and one line per agent, for policies that learn the
            rules from examples. `full` adds the rules, the objective and the answer format, for
            models that answer directly. `reasoned` asks the model to think first and to write the
            final plan between `<answer>` and `</answer>`.
        template: A template that replaces the one of the style, with `TEMPLATE_FIELDS` in braces.

    Raises:
        ValueError: The style is unknown, or the template is invalid (see `check_template`).
    """
    if style not in PROMPT_STYLES:
        hint = did_you_mean(style, PROMPT_STYLES)
        raise ValueError(f"style must be one of {', '.join(PROMPT_STYLES)}, got {style!r}{hint}")
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
    """Return a prompt template unchanged if it is valid.

    Raises:
        ValueError: Braces are unbalanced, a field is unknown, or the field `board` is missing.
    """
    try:
        fields = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ValueError(f"template: {error}; write {{{{ and }}}} for braces") from None
    unknown_fields = [name for name in fields if name not in TEMPLATE_FIELDS]
    allowed_fields = ", ".join(f"{{{name}}}" for name in TEMPLATE_FIELDS)
    if unknown_fields:
        raise ValueError(
            f"template must have only the fields {allowed_fields}, got {{{unknown_fields[0]}}}"
        )
    if "board" not in fields:
        raise ValueError("template must have the field {board}")
    return template


def target(plan: np.ndarray | Sequence[Sequence[int]], *, style: PromptStyle = "compact") -> str:
    """Return the target answer for a plan: one line per agent, without a trailing newline.

    Agents that never move are written as `WAIT`, which has no cost at the goal.

    Args:
        plan: int (T, K); see `action_names`.
        style: `reasoned` puts the lines between `<answer>` and `</answer>`.

    Raises:
        ValueError: The plan is not (T, K), or holds a value that is not an `Action`.
    """
    names = (" ".join(names) or Action.WAIT.name for names in action_names(plan))
    lines = "\n".join(f"Agent {i}: {line}" for i, line in enumerate(names))
    return f"<answer>\n{lines}\n</answer>" if style == "reasoned" else lines


def action_names(plan: np.ndarray | Sequence[Sequence[int]]) -> list[list[str]]:
    """Return the names of each agent's actions up to its last move.

    In a valid plan an agent waits at its goal after its last move.

    Args:
        plan: int (T, K).

    Returns:
        One list of names per agent.

    Raises:
        ValueError: The plan is not (T, K), or holds a value that is not an `Action`.
    """
    steps = np.asarray(plan)
    if steps.ndim != 2:
        raise ValueError(f"plan must have shape (steps, agents), got {steps.shape}")
    invalid_values = steps[(steps < min(Action)) | (steps > max(Action))]
    if invalid_values.size:
        raise ValueError(
            f"plan must hold actions {min(Action)} to {max(Action)}, got {invalid_values[0]}"
        )
    names = []
    for actions in steps.T:
        moves = np.flatnonzero(actions != Action.WAIT)
        length = int(moves[-1]) + 1 if moves.size else 0
        names.append([Action(int(action)).name for action in actions[:length]])
    return names
