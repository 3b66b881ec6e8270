"""Draw the pictures of docs/environment.md: what ends an episode, and what each agent sees.

    PYTHONPATH=. .venv/bin/python tools/environment_pictures.py

Every failure in them is named by `jaxlake.verify`. The same files come out each time.
"""

from pathlib import Path

import jax
import numpy as np

import jaxlake
from jaxlake import Action, Failure
from jaxlake.environment import AgentCentred, LakeEnvironment, env_params
from jaxlake.files import write_text_whole

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "environment"

GRID = ["S F F H", "F H F F", "F F s g", "H F F G"]

EPISODES: dict[str, tuple[list[str], list[list[str]]]] = {
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


def episode(grid: list[str], plans: list[list[str]]) -> str:
    """Draw an episode up to its end, with the failure that `jaxlake.verify` names."""
    board = jaxlake.parse_grid(grid)
    steps = max(map(len, plans))
    plan = np.zeros((steps, len(plans)), np.int8)
    for k, names in enumerate(plans):
        plan[: len(names), k] = [Action[name] for name in names]
    outcome = jax.device_get(jaxlake.verify(board, plan))
    failure = Failure(int(outcome.failure))
    if failure == Failure.NONE:
        return jaxlake.episode_svg(grid, plans)
    return jaxlake.episode_svg(
        grid,
        plans,
        failure=failure.label,
        failure_agent=int(outcome.agent),
        failure_time=int(outcome.time),
    )


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
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (grid, plans) in EPISODES.items():
        write_text_whole(FOLDER / f"{name}.svg", episode(grid, plans))
    write_text_whole(FOLDER / "board.svg", jaxlake.episode_svg(GRID, None))
    write_text_whole(FOLDER / "window.svg", window(GRID, 0, 3))
    print(f"{len(EPISODES) + 2} pictures in {FOLDER}")


if __name__ == "__main__":
    main()
