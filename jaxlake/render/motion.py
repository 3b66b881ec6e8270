"""Where the discs of an episode are drawn, moment by moment, and where its marks stand."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from jaxlake.render.episode import Cell, Episode

# Times in steps: a breath before the first one, the share of it that is motion, the last pause.
LEAD_IN: Final = 1.0
MOTION: Final = 0.72
PAUSE: Final = 3.0

# How far into the failing step the agents come: they touch, and both numbers stay readable.
_REACH_VERTEX: Final = 0.6
_REACH_SWAP: Final = 0.2
_REACH_OFF_BOARD: Final = 0.66


@dataclass(frozen=True)
class Motion:
    """The moments of a plan, in cells.

    `frames` float64 (T + 1, K, 2): the last frame of a step that fails is the moment of contact.
    `marks` are the places of the crosses, `struck` the cells at fault. `extra` is 1 if the fault
    comes once the plan has ended, and so has a place of its own on the timeline.
    """

    frames: NDArray[np.float64]
    marks: tuple[tuple[float, float], ...]
    struck: tuple[Cell, ...]
    failed: bool
    extra: int

    @property
    def steps(self) -> int:
        """T."""
        return len(self.frames) - 1

    @property
    def slots(self) -> int:
        """Places on the timeline, at least one."""
        return max(self.steps + self.extra, 1)

    def playhead(self, moment: float) -> float:
        """Where on the timeline a moment 0..T lies, in slots; a failing step is never completed."""
        unfinished = self.failed and not self.extra and moment == self.steps > 0
        return moment - 0.5 if unfinished else float(moment)


def motion(episode: Episode) -> Motion | None:
    """Lay an episode out in time; None if it has no plan."""
    if episode.actions is None:
        return None
    frames = episode.moments.astype(np.float64)
    fault = episode.fault
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
    """Aside of the point where discs touch, so that a mark leaves their numbers readable."""
    row, column = places.mean(axis=0)
    across, along = np.ptp(places, axis=0)
    return (
        (float(row), float(column) + 0.3) if across > along else (float(row) - 0.3, float(column))
    )


def _corner(place: NDArray[np.float64]) -> tuple[float, float]:
    """Upper right of a disc, where a mark leaves the agent's number readable."""
    return float(place[0]) - 0.27, float(place[1]) + 0.27
