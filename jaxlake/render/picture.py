"""Pictures of boards and plans, for notebooks and files, as SVG or as text."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxlake.board.dynamics import Action
from jaxlake.board.grids import parse_grid
from jaxlake.board.instance import Instance
from jaxlake.board.verification import Failure, Outcome, verify
from jaxlake.files import write_text_atomic
from jaxlake.render.playback import MAX_AGENTS, Playback, make_action_array, make_board, play
from jaxlake.render.svg import draw_svg
from jaxlake.render.terminal import episode_text
from jaxlake.solver.solution import unknown_solution

# Pixels; cells are drawn as large as both limits allow.
_MAX_CELL_SIDE = 36.0
_MAX_WIDTH = 800.0

_STEP_MULTIPLE = 32
"""Plans are padded to a multiple of this many steps, to limit the number of compiled programs."""

_verify = jax.jit(verify)


@dataclass(frozen=True)
class Picture:
    """Drawing of a board or of a plan on it, for notebooks and files; `print` shows `text`."""

    playback: Playback
    cell: float  # side of a cell in pixels

    @property
    def svg(self) -> str:
        """One `<svg>` element with a background, animated if there is a plan."""
        return draw_svg(self.playback, self.cell, panel=True)

    @property
    def text(self) -> str:
        """The board after each step, in letters."""
        return episode_text(self.playback)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to a file atomically, and return its path.

        Args:
            path: a name that ends in `.svg` or `.txt`, which selects the format.

        Raises:
            ValueError: the name has another ending.
            OSError: the file can't be written.
        """
        target = Path(path)
        if target.suffix.lower() not in (".svg", ".txt"):
            raise ValueError(f"path must end in .svg or .txt, got {str(path)!r}")
        text = self.svg if target.suffix.lower() == ".svg" else self.text + "\n"
        write_text_atomic(target, text)
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
    instance: Instance, plan: Any = None, *, length: int | None = None, cell: float | None = None
) -> Picture:
    """Return a picture of a board, or of a plan on it with its first failure marked.

    Notebooks display the `Picture`, and its method `save` writes SVG or text.

    Args:
        instance: an unbatched board with 1 to 5 agents.
        plan: int (T, K), one row per step, as in `Solution.plan`. None shows only the board.
        length: number of steps of the plan. If None, the plan ends with its last move.
        cell: side of a cell in pixels. If None, the picture is at most 800 pixels wide and cells
            are at most 36 pixels.

    Raises:
        ValueError: the instance is a batch, the plan has another shape, or it is filled with -1,
            which means that the solver found no plan.
    """
    board = make_board(instance)
    if cell is None:
        cell = min(_MAX_CELL_SIDE, _MAX_WIDTH / (len(board.holes) + 2))
    if plan is None:
        return Picture(play(board, None), float(cell))
    actions = _trim_plan(np.asarray(plan), len(board.starts), length)
    outcome = _verify_padded(instance, actions)
    failure = Failure(int(outcome.failure))
    label = None if failure is Failure.NONE else failure.label
    playback = play(board, actions, failure=label, agent=int(outcome.agent), time=int(outcome.time))
    return Picture(playback, float(cell))


def _trim_plan(plan: np.ndarray, num_agents: int, length: int | None) -> np.ndarray:
    """Return the actions of the agents up to `length`, or up to the last move if it is None."""
    if plan.ndim != 2 or plan.shape[1] < num_agents:
        raise ValueError(f"plan must have shape (T, K) with K >= {num_agents}, got {plan.shape}")
    actions = plan[:, :num_agents].astype(np.int64)
    if actions.size and (actions == -1).all():
        raise ValueError("plan must hold actions, got only -1, as for boards without a plan")
    if length is None:  # plans are padded with WAIT
        move_times = np.flatnonzero((actions != Action.WAIT).any(axis=1))
        length = int(move_times[-1]) + 1 if len(move_times) else 0
    if not 0 <= length <= len(actions):
        raise ValueError(f"length must be in [0, {len(actions)}], got {length}")
    return actions[:length]


def episode_svg(
    grid: Sequence[str], plan: Sequence[Sequence[str | int]] | None, *, cell: float = 36
) -> str:
    """Return a board, with a plan played on it, as one `<svg>` element of well-formed XML.

    Args:
        grid: the rows of a board with 1 to 5 agents, in the symbols of `parse_grid`.
        plan: one sequence of actions (names, or numbers 0 to 4) per agent, played up to its first
            failure. Agents with shorter sequences wait. None gives a still picture.
        cell: side of a cell in pixels.

    Raises:
        ValueError: an argument is invalid; the message names the row, agent or step. An invalid
            grid raises `GridError`.
    """
    board = parse_grid(grid, max_agents=MAX_AGENTS)
    if plan is None:
        return draw_svg(show(board).playback, cell)
    actions = make_action_array(plan, int(np.sum(board.agent_mask)))
    return draw_svg(show(board, actions, length=len(actions)).playback, cell)


def _verify_padded(instance: Instance, actions: np.ndarray) -> Outcome:
    num_slots = np.asarray(instance.agent_mask).shape[0]
    num_steps = -(-max(len(actions), 1) // _STEP_MULTIPLE) * _STEP_MULTIPLE
    padded_plan = np.zeros((num_steps, num_slots), np.int8)
    padded_plan[: len(actions), : actions.shape[1]] = np.clip(actions, -1, len(Action))
    unknown_optimum = unknown_solution(num_steps, num_slots)
    return _verify(instance, padded_plan, np.int32(len(actions)), np.bool_(True), unknown_optimum)
