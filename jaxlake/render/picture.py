"""One board or one plan, shown in whatever form is asked for: notebook, SVG, GIF or text."""

import os
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxlake.board.dynamics import Action
from jaxlake.board.instance import Instance
from jaxlake.board.verification import Failure, Outcome, verify
from jaxlake.files import write_bytes_whole
from jaxlake.render.playback import Playback, board_of_instance, play
from jaxlake.render.svg import draw_svg
from jaxlake.render.terminal import episode_text
from jaxlake.solver.solution import unknown_solution

# In pixels: boards are drawn as large as fits.
_LARGEST_CELL = 36.0
_WIDTH = 800.0

_PADDING = 32
"""Plans are padded to multiples of this many steps, so that few lengths are compiled for."""

_verify = jax.jit(verify)


@dataclass(frozen=True)
class Picture:
    """A board, or a plan played on it, as notebooks and files show it; `print` writes `text`."""

    playback: Playback
    cell: float
    seconds_per_step: float

    @property
    def svg(self) -> str:
        """One `<svg>` element on a background of its own, animated if there is a plan."""
        return draw_svg(self.playback, self.cell, self.seconds_per_step, panel=True)

    @property
    def text(self) -> str:
        """The board at each moment, in letters."""
        return episode_text(self.playback)

    def gif(self, *, side: int = 640) -> bytes:
        """Draw an animated GIF; see `jaxlake.render.gif.episode_gif`.

        Raises:
            ImportError: Pillow is not installed.
            ValueError: `side` is out of range.
        """
        try:
            from jaxlake.render.gif import episode_gif
        except ImportError as error:
            raise ImportError(
                "drawing a GIF needs Pillow: install the extra `pictures` (jaxlake[pictures])"
            ) from error
        return episode_gif(self.playback, side=side, seconds_per_step=self.seconds_per_step)

    def png(self, *, side: int = 640) -> bytes:
        """Draw a still picture, which shows how a plan ends; see `gif`.

        Raises:
            ImportError: Pillow is not installed.
            ValueError: `side` is out of range.
        """
        film = self.gif(side=side)
        from PIL import Image

        with Image.open(BytesIO(film)) as frames, BytesIO() as file:
            frames.seek(getattr(frames, "n_frames", 1) - 1)
            frames.save(file, format="PNG")
            return file.getvalue()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `path`, whole or not at all, as its name ends: `.svg`, `.gif`, `.png` or `.txt`.

        Raises:
            ValueError: the name ends in something else.
            ImportError: a GIF or PNG is asked for and Pillow is not installed.
            OSError: the file can't be written.
        """
        target = Path(path)
        formats = {
            ".svg": lambda: self.svg.encode(),
            ".gif": self.gif,
            ".png": self.png,
            ".txt": lambda: (self.text + "\n").encode(),
        }
        if target.suffix.lower() not in formats:
            raise ValueError(f"path: got {str(path)!r}, allowed are {', '.join(formats)}")
        write_bytes_whole(target, formats[target.suffix.lower()]())
        return target

    def _repr_html_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        board, fault = self.playback.board, self.playback.fault
        steps = 0 if self.playback.actions is None else len(self.playback.actions)
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
    """Show one board, or one plan on it with its failure marked where it happens.

    A notebook shows the `Picture`, and its `save` writes SVG, GIF, PNG or text.

    Args:
        instance: the board, 1 to 5 agents, not a batch.
        plan: int (T, K), one row per step, as in `Solution.plan`. None shows the board alone.
        outcome: what `verify` says of the plan; it is verified here if None.
        length: number of steps of the plan. If None, up to the last one in which anyone moves.
        cell: side of a cell in pixels; if None as large as fits 800 pixels, at most 36.
        seconds_per_step: duration of one step in seconds.

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
        playback = play(board, None, failure=None if failure is None else failure.label)
        return Picture(playback, side, float(seconds_per_step))

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
    label = None if failure is Failure.NONE else failure.label
    playback = play(board, actions, failure=label, agent=int(outcome.agent), time=int(outcome.time))
    return Picture(playback, side, float(seconds_per_step))


def _steps(actions: np.ndarray, outcome: Outcome | None) -> int:
    """The number of steps of a plan that is padded with WAIT."""
    if outcome is not None and int(outcome.failure) == Failure.GOAL_NOT_REACHED:
        return int(outcome.time)  # which is how long the plan was
    moving = np.flatnonzero((actions != Action.WAIT).any(axis=1))
    return int(moving[-1]) + 1 if len(moving) else 0


def _judge(instance: Instance, actions: np.ndarray) -> Outcome:
    slots = np.asarray(instance.agent_mask).shape[0]
    steps = -(-max(len(actions), 1) // _PADDING) * _PADDING
    padded = np.zeros((steps, slots), np.int8)
    padded[: len(actions), : actions.shape[1]] = np.clip(actions, -1, len(Action))
    unknown = unknown_solution(steps, slots)
    return _verify(instance, padded, np.int32(len(actions)), np.bool_(True), unknown)
