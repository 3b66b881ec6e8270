"""Where the agents of a playback are drawn at each moment, and where a failure is marked."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from jaxlake.render.playback import Cell, Playback

# In steps: the pause before the first step, the part of a step that is motion, the last pause.
LEAD_IN: Final = 1.0
MOTION: Final = 0.72
PAUSE: Final = 3.0

# How far agents come in a failing step: they touch, and both numbers stay readable.
_REACH_VERTEX: Final = 0.6
_REACH_SWAP: Final = 0.2
_REACH_OFF_BOARD: Final = 0.66


@dataclass(frozen=True)
class Motion:
    """The moments of a plan, in cells: whole numbers are the middles of rows and columns.

    The last frame of a step that fails is the moment of contact.
    """

    frames: NDArray[np.float64]  # (T + 1, K, 2)
    marks: tuple[tuple[float, float], ...]  # where the crosses stand
    struck: tuple[Cell, ...]  # the cells at fault
    failed: bool
    extra: int  # 1 for a fault after the last step, which has its own place on the timeline

    @property
    def steps(self) -> int:
        """T, the number of steps."""
        return len(self.frames) - 1

    @property
    def slots(self) -> int:
        """The number of places on the timeline, at least one."""
        return max(self.steps + self.extra, 1)

    def playhead(self, moment: float) -> float:
        """Place a moment 0..T on the timeline, in slots; a failing step is never completed."""
        unfinished = self.failed and not self.extra and moment == self.steps > 0
        return moment - 0.5 if unfinished else float(moment)


def motion(playback: Playback) -> Motion | None:
    """Lay a playback out in time; None if it has no plan."""
    if playback.actions is None:
        return None
    frames = playback.moments.astype(np.float64)
    fault = playback.fault
    extra = int(fault is not None and fault.kind == "goal_not_reached")
    if fault is None or not fault.groups:
        return Motion(frames, (), (), failed=fault is not None, extra=extra)
    marks: list[tuple[float, float]] = []
    reach = {
        "off_board": _REACH_OFF_BOARD,
        "vertex_conflict": _REACH_VERTEX,
        "swapping_conflict": _REACH_SWAP,
    }.get(fault.kind, 1.0)
    for group in fault.groups:
        who = list(group)
        if fault.in_a_step:
            frames[-1, who] = frames[-2, who] + reach * (frames[-1, who] - frames[-2, who])
        marks.append(_beside(frames[-1, who]) if len(who) > 1 else _corner(frames[-1, who[0]]))
    struck = tuple(dict.fromkeys(fault.cells))
    return Motion(frames, tuple(marks), struck, failed=True, extra=extra)


def _beside(places: NDArray[np.float64]) -> tuple[float, float]:
    """A place beside the point where discs touch, so that a mark leaves their numbers readable."""
    row, column = places.mean(axis=0)
    across, along = np.ptp(places, axis=0)
    return (
        (float(row), float(column) + 0.3) if across > along else (float(row) - 0.3, float(column))
    )


def _corner(place: NDArray[np.float64]) -> tuple[float, float]:
    """A place at the upper right of a disc, where a mark leaves its number readable."""
    return float(place[0]) - 0.27, float(place[1]) + 0.27
