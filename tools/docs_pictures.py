"""Draw the pictures of the documentation: the lake of the README, and those of docs/environment.md.

    PYTHONPATH=. .venv/bin/python tools/docs_pictures.py

`docs/pictures/loop.svg` is drawn by hand.
"""

from pathlib import Path
from typing import Final

import jax
import numpy as np

import jaxlake
from jaxlake.environment import AgentCentred, LakeEnvironment, env_params
from jaxlake.files import write_text_whole

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
LAKE_FILE: Final = DOCS / "pictures" / "lake.svg"

LAKE: Final = (
    "S F F A F g",
    "F H F H F F",
    "F F F F F F",
    "b H F H H F",
    "F F F F F F",
    "s F F a B G",
)
"""Four agents that cross each other's ways, in the symbols of `jaxlake.parse_grid`."""

GRID: Final = ["S F F H", "F H F F", "F F s g", "H F F G"]

EPISODES: Final[dict[str, tuple[list[str], list[list[str]]]]] = {
    "solved": (GRID, [["DOWN", "DOWN", "RIGHT", "DOWN", "RIGHT", "RIGHT"], ["RIGHT"]]),
    "off_board": (GRID, [["UP"], ["RIGHT"]]),
    "hole": (GRID, [["RIGHT", "DOWN"], ["RIGHT", "WAIT"]]),
    "vertex_conflict": (["S F s", "F F F", "g F G"], [["RIGHT"], ["LEFT"]]),
    "swapping_conflict": (["F S s", "F F F", "F g G"], [["RIGHT"], ["LEFT"]]),
    "following": (
        ["S s F", "F F F", "F G g"],
        [["RIGHT", "DOWN", "DOWN"], ["RIGHT", "DOWN", "DOWN"]],
    ),
}
"""Boards, and one list of actions for each agent."""


def lake_svg() -> str:
    """Solve `LAKE` and draw its plan of least sum of costs, animated."""
    board = jaxlake.parse_grid(LAKE)
    solution = jaxlake.solve(board)
    return jaxlake.show(board, solution.plan, cell=30).svg


def window(grid: list[str], agent: int, radius: int) -> str:
    """Draw what an agent sees around itself: blocked cells as holes, agents and goals."""
    environment = LakeEnvironment(observation=AgentCentred(radius))
    seen, _ = environment.reset(jax.random.key(0), env_params(jaxlake.parse_grid(grid)))
    blocked, others, own_goal, other_goals = np.moveaxis(np.asarray(seen.window[agent]), -1, 0)
    letters = np.where(blocked, "H", "F")
    letters[radius, radius] = "S"
    for plane, letter in ((own_goal, "G"), (others, "s"), (other_goals, "g")):
        letters[plane] = letter
    return jaxlake.episode_svg([" ".join(row) for row in letters], None)


def main() -> None:
    """Write the pictures."""
    folder = DOCS / "environment"
    write_text_whole(LAKE_FILE, lake_svg())
    for name, (grid, plans) in EPISODES.items():
        write_text_whole(folder / f"{name}.svg", jaxlake.episode_svg(grid, plans))
    write_text_whole(folder / "board.svg", jaxlake.episode_svg(GRID, None))
    write_text_whole(folder / "window.svg", window(GRID, 0, 3))


if __name__ == "__main__":
    main()
