"""One board or one episode, shown in whatever form is asked for."""

import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.dynamics import Action
from jaxlake.instance import Instance
from jaxlake.render.episode import Episode, board_of_instance, play
from jaxlake.render.gif import episode_gif
from jaxlake.render.svg import draw_svg
from jaxlake.render.text import episode_text
from jaxlake.solver import Solution, Status
from jaxlake.verify import Failure, Outcome, verify

_LARGEST_CELL = 36.0
_WIDTH = 800.0
"""In pixels: boards are drawn as large as fits."""

_PADDING = 32
"""Plans are padded to multiples of this many steps, so that few lengths are compiled for."""


@dataclass(frozen=True)
class Picture:
    """A board or an episode as a notebook shows it, and as files.

    `svg` is animated if there is a plan. `print` gives the text.
    """

    episode: Episode
    cell: float
    seconds_per_step: float

    @property
    def svg(self) -> str:
        """One `<svg>` element on a background of its own."""
        return draw_svg(
            self.episode, cell=self.cell, seconds_per_step=self.seconds_per_step, panel=True
        )

    @property
    def text(self) -> str:
        """The board at each moment, in letters."""
        return episode_text(self.episode)

    def gif(self, *, side: int = 640) -> bytes:
        """An animated GIF, see `episode_gif`."""
        return episode_gif(self.episode, side=side, seconds_per_step=self.seconds_per_step)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a file, whole or not at all, in the format that its name ends with.

        Args:
            path: a name that ends in `.svg`, `.gif` or `.txt`.

        Returns:
            The path.

        Raises:
            ValueError: the name ends in something else.
            ImportError: a GIF is asked for and Pillow is not installed.
        """
        target = Path(path)
        formats = {
            ".svg": lambda: self.svg.encode(),
            ".gif": self.gif,
            ".txt": lambda: (self.text + "\n").encode(),
        }
        if target.suffix.lower() not in formats:
            raise ValueError(f"path: got {str(path)!r}, allowed are {', '.join(formats)}")
        content = formats[target.suffix.lower()]()
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
        return target

    def _repr_html_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        board, fault = self.episode.board, self.episode.fault
        steps = 0 if self.episode.actions is None else len(self.episode.actions)
        end = "" if fault is None else f", {fault.kind}"
        return f"<Picture: {len(board.starts)} agents, size {len(board.holes)}, {steps} steps{end}>"


def show(
    instance: Instance,
    plan: Any = None,
    outcome: Outcome | None = None,
    *,
    length: int | None = None,
    cell: float | None = None,
    seconds_per_step: float = 0.6,
) -> Picture:
    """Picture one board, or one plan on it with its failure marked where it happens.

    Args:
        instance: the board, 1 to 5 agents, not a batch.
        plan: int (T, K), one row a step, as in `Solution.plan`. None shows the board alone.
        outcome: what `verify` says of the plan; it is verified here if None.
        length: number of steps of the plan. If None, up to the last one in which anyone moves.
        cell: side of a cell in pixels; if None as large as fits 800 pixels, at most 36.
        seconds_per_step: duration of one step in seconds.

    Returns:
        A `Picture`: a notebook shows it, `.save(path)` writes SVG, GIF or text.

    Raises:
        ValueError: the instance is a batch, the plan has another shape or is the -1 of a board
            without a plan, or the outcome is of another plan.
    """
    board = board_of_instance(instance)
    side = min(_LARGEST_CELL, _WIDTH / (len(board.holes) + 2)) if cell is None else float(cell)
    if plan is None:
        failure = None if outcome is None else Failure(int(outcome.failure))
        if failure not in (None, Failure.PARSE_ERROR):
            raise ValueError(f"plan: got None with an outcome of {failure.label}")
        episode = play(board, None, failure=None if failure is None else failure.label)
        return Picture(episode, side, float(seconds_per_step))

    rows = np.asarray(plan)
    agents = len(board.starts)
    if rows.ndim != 2 or rows.shape[1] < agents:
        raise ValueError(f"plan: got shape {rows.shape}, (steps, {agents} or more) is needed")
    actions = rows[:, :agents].astype(np.int64)
    if actions.size and (actions == -1).all():
        raise ValueError("plan: got -1 throughout, which the solver gives where it found no plan")
    if length is None:
        length = _steps(actions, outcome)
    if not 0 <= length <= len(actions):
        raise ValueError(f"length: got {length}, 0 to {len(actions)} are allowed")
    actions = actions[:length]
    if outcome is None:
        outcome = _judge(instance, actions)
    failure = Failure(int(outcome.failure))
    episode = play(
        board,
        actions,
        failure=None if failure is Failure.NONE else failure.label,
        agent=int(outcome.agent),
        time=int(outcome.time),
    )
    return Picture(episode, side, float(seconds_per_step))


def _steps(actions: np.ndarray, outcome: Outcome | None) -> int:
    """Steps of a plan that is padded with WAIT; a plan that stops short has told its length."""
    if outcome is not None and int(outcome.failure) == Failure.GOAL_NOT_REACHED:
        return int(outcome.time)
    moving = np.flatnonzero((actions != Action.WAIT).any(axis=1))
    return int(moving[-1]) + 1 if len(moving) else 0


def _judge(instance: Instance, actions: np.ndarray) -> Outcome:
    slots = np.asarray(instance.agent_mask).shape[0]
    steps = -(-max(len(actions), 1) // _PADDING) * _PADDING
    padded = np.zeros((steps, slots), np.int8)
    padded[: len(actions), : actions.shape[1]] = np.clip(actions, -1, len(Action))
    return _verifier()(instance, padded, np.int32(len(actions)))


@cache
def _verifier() -> Any:
    def without_optimum(instance: Instance, plan: jax.Array, length: jax.Array) -> Outcome:
        none = jnp.int16(-1)
        unknown = Solution(
            status=jnp.int8(Status.UNKNOWN),
            sum_of_costs=none,
            makespan=none,
            needs_wait=jnp.bool_(False),
            plan=plan[:0],
            makespan_plan=plan[:0],
            expansions=jnp.int32(0),
        )
        return verify(instance, plan, length, jnp.bool_(True), unknown)

    return jax.jit(without_optimum)
