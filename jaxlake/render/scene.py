"""What a picture of a lake consists of: shapes, where they stand, and how they move.

`scene` lays a playback out once; `svg` and `gif` write what it gives and know nothing of lakes.
Lengths are in pixels, x to the right and y down. A moment is a number of steps made.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jaxlake.render import palette
from jaxlake.render.playback import Board, Cell, Playback, caption, whereabouts

Point = tuple[float, float]

# Lengths in cells.
_MARGIN: Final = 0.8
_MIN_WIDTH: Final = 5.6
_MIN_TIMELINE: Final = 4.0
_TIMELINE_HEIGHT: Final = 0.42
_CAPTION_HEIGHT: Final = 0.62
_DETAIL_HEIGHT: Final = 0.42

# In steps: the pause before the first step, the part of a step that is motion, the last pause.
LEAD_IN: Final = 1.0
MOTION: Final = 0.72
PAUSE: Final = 3.0

# How far agents come in a failing step: they touch, and both numbers stay readable.
_REACH: Final = {"off_board": 0.66, "vertex_conflict": 0.6, "swapping_conflict": 0.2}

# In pixels: what is read stays readable when cells are small.
_SMALLEST_TEXT: Final = 11.0
_SMALLEST_MARK: Final = 5.0


class Paint(NamedTuple):
    """How a shape is painted. Strokes lie half inside and half outside of the outline."""

    fill: str | None = None
    stroke: str | None = None
    width: float = 0.0  # of the stroke
    opacity: float = 1.0  # of the fill, or where there is none of the stroke
    dashes: tuple[float, float] | None = None  # lengths of a dash and of the gap after it
    role: str = ""  # what the shape shows; some roles have other colours on dark pages


class Rectangle(NamedTuple):
    """A rectangle with its upper left corner at (x, y); `radius` rounds its corners."""

    x: float
    y: float
    width: float
    height: float
    radius: float
    paint: Paint


class Circle(NamedTuple):
    """A circle around (x, y)."""

    x: float
    y: float
    radius: float
    paint: Paint


class Lines(NamedTuple):
    """Lines through the points of each part, with round ends."""

    parts: tuple[tuple[Point, ...], ...]
    paint: Paint


class Text(NamedTuple):
    """Words; the middle of their baseline is at (x, y), and their weight as in CSS."""

    x: float
    y: float
    size: float
    words: str
    paint: Paint
    weight: int | None = None


Shape = Rectangle | Circle | Lines | Text


@dataclass(frozen=True)
class Group:
    """Shapes that belong together.

    If there is a `path`, they are drawn around the origin, which stands at one of its points, one
    for each moment. With `at_the_end` they only appear when the plan has ended.
    """

    content: "Sequence[Shape | Group]"
    role: str = ""
    path: tuple[Point, ...] = ()
    at_the_end: bool = False


@dataclass(frozen=True)
class Scene:
    """A picture: its size, what it shows in words, what is drawn in order, the steps it plays."""

    width: float
    height: float
    title: str
    content: Sequence[Shape | Group]
    steps: int


def groups_in(content: Sequence[Shape | Group]) -> Iterator[Group]:
    """Yield all groups, also those within others, in the order in which they are drawn."""
    for item in content:
        if isinstance(item, Group):
            yield item
            yield from groups_in(item.content)


def cell_that_fits(playback: Playback, width: float) -> float:
    """Give the side of a cell with which a picture is as wide as asked for."""
    return width / max(len(playback.board.holes) + 2 * _MARGIN, _MIN_WIDTH)


def scene(playback: Playback, cell: float, *, panel: bool = False) -> Scene:
    """Lay out a playback, with cells of so many pixels; `panel` paints the background, too."""
    track, board = _motion(playback), playback.board
    layout = _Layout(playback, track, cell)
    words, details = caption(playback), whereabouts(playback)
    size, agents = len(board.holes), len(board.starts)
    title = f"{agents} agent{'' if agents == 1 else 's'} on a {size} by {size} board"
    title += f": {words}" if words else ""
    title += f", {details}" if details else ""
    content: list[Shape | Group] = []
    if panel:
        paper = Paint(palette.PAPER, role="panel")
        content.append(Rectangle(0, 0, layout.width, layout.height, 0.25 * cell, paper))
    content.append(_ice(board, layout))
    if track is not None:
        content.append(_trails(track, layout))
    content += [_goals_and_starts(board, layout), _cast(board, track, layout)]
    if track is not None:
        content.append(_timeline(track, layout))
    middle = layout.width / 2
    if words is not None:
        weight = 600 if playback.fault is not None else 400
        letters = layout.letters(0.33, len(words))
        content.append(Text(middle, layout.baseline, letters, words, _INK, weight))
    if details is not None:
        letters = layout.letters(0.29, len(details))
        content.append(Text(middle, layout.detail, letters, details, _QUIET))
    steps = 0 if track is None else track.steps
    return Scene(layout.width, layout.height, title, content, steps)


@dataclass(frozen=True)
class _Motion:
    """The moments of a plan, in cells: whole numbers are the middles of rows and columns.

    The last frame of a step that fails is the moment of contact.
    """

    frames: NDArray[np.float64]  # (T + 1, K, 2)
    marks: tuple[Point, ...]  # where the crosses stand
    struck: tuple[Cell, ...]  # the cells at fault
    failed: bool
    extra: int  # 1 for a fault after the last step, which has its own place on the timeline

    @property
    def steps(self) -> int:
        return len(self.frames) - 1

    @property
    def slots(self) -> int:
        """The number of places on the timeline."""
        return max(self.steps + self.extra, 1)

    def playhead(self, moment: float) -> float:
        """Place a moment 0..T on the timeline, in slots; a failing step is never completed."""
        unfinished = self.failed and not self.extra and moment == self.steps > 0
        return moment - 0.5 if unfinished else float(moment)


def _motion(playback: Playback) -> _Motion | None:
    if playback.actions is None:
        return None
    frames = playback.moments.astype(np.float64)
    fault = playback.fault
    extra = int(fault is not None and fault.kind == "goal_not_reached")
    if fault is None or not fault.groups:
        return _Motion(frames, (), (), failed=fault is not None, extra=extra)
    marks: list[Point] = []
    reach = _REACH.get(fault.kind, 1.0)
    for group in fault.groups:
        who = list(group)
        if fault.in_a_step:
            frames[-1, who] = frames[-2, who] + reach * (frames[-1, who] - frames[-2, who])
        marks.append(_mark_place(frames[-1, who]))
    struck = tuple(dict.fromkeys(fault.cells))
    return _Motion(frames, tuple(marks), struck, failed=True, extra=extra)


def _mark_place(places: NDArray[np.float64]) -> Point:
    """Beside the point where discs touch, or at the upper right of one: numbers stay readable."""
    row, column = places.mean(axis=0).tolist()
    if len(places) == 1:
        return row - 0.27, column + 0.27
    across, along = np.ptp(places, axis=0)
    return (row, column + 0.3) if across > along else (row - 0.3, column)


_INK: Final = Paint(palette.INK, role="ink")
_QUIET: Final = Paint(palette.QUIET, role="quiet")


class _Layout:
    def __init__(self, playback: Playback, track: _Motion | None, cell: float) -> None:
        size = len(playback.board.holes)
        width = max(size + 2 * _MARGIN, _MIN_WIDTH)
        unit = max(cell, _SMALLEST_TEXT / 0.33)
        timeline = (size + 2 * _MARGIN) * cell
        baseline = timeline + (0 if track is None else _TIMELINE_HEIGHT * cell)
        detail = baseline + (0 if caption(playback) is None else _CAPTION_HEIGHT * unit)
        self.cell = cell
        self.width = width * cell
        self.height = detail + (0 if whereabouts(playback) is None else _DETAIL_HEIGHT * unit)
        self.span = max(size, _MIN_TIMELINE) * cell
        self.left = (width - size) / 2 * cell
        self.top = _MARGIN * cell
        self.timeline = timeline + 0.05 * cell
        self.baseline = baseline + 0.3 * unit
        self.detail = detail + 0.1 * unit

    def x(self, column: float) -> float:
        return self.left + (column + 0.5) * self.cell

    def y(self, row: float) -> float:
        return self.top + (row + 0.5) * self.cell

    def letters(self, share: float, characters: int) -> float:
        """Size of a text, a share of a cell, not too small to read nor too wide for the picture."""
        wanted = max(share * self.cell, _SMALLEST_TEXT)
        return min(wanted, 0.96 * self.width / (0.64 * max(characters, 1)))


def _ice(board: Board, layout: _Layout) -> Group:
    size, cell = len(board.holes), layout.cell
    rim, gap, inset = 0.12 * cell, 0.035 * cell, 0.17 * cell
    whole, side = size * cell + 2 * rim, cell - 2 * gap
    ground, ice = Paint(palette.GROUND, role="ground"), Paint(palette.ICE, role="ice")
    hole = Paint(palette.HOLE, role="hole")
    pit = Paint(None, palette.PIT, 0.03 * cell, role="pit")
    content: list[Shape] = [
        Rectangle(layout.left - rim, layout.top - rim, whole, whole, 0.2 * cell, ground)
    ]
    for r in range(size):
        for c in range(size):
            x, y = layout.left + c * cell + gap, layout.top + r * cell + gap
            paint = hole if board.holes[r, c] else ice
            content.append(Rectangle(x, y, side, side, 0.13 * cell, paint))
            if board.holes[r, c]:
                inner = side - 2 * inset
                content.append(Rectangle(x + inset, y + inset, inner, inner, 0.09 * cell, pit))
    letters = 0.26 * cell
    above = [(layout.x(c), layout.top - 0.27 * cell) for c in range(size)]
    beside = [(layout.left - 0.38 * cell, layout.y(r) + 0.35 * letters) for r in range(size)]
    for i, place in [*enumerate(above), *enumerate(beside)]:
        content.append(Text(*place, letters, str(i), _QUIET))
    return Group(content)


def _goals_and_starts(board: Board, layout: _Layout) -> Group:
    cell = layout.cell
    half = 0.385 * cell
    content: list[Shape] = []
    for k, (start, goal) in enumerate(zip(board.starts, board.goals, strict=True)):
        colour = palette.AGENT_COLOURS[k][0]
        x, y = layout.x(int(goal[1])), layout.y(int(goal[0]))
        tint = Paint(colour, colour, 0.07 * cell, opacity=0.2)
        ring = Paint(None, colour, 0.05 * cell, dashes=(0.1 * cell, 0.088 * cell))
        content.append(Rectangle(x - half, y - half, 2 * half, 2 * half, 0.1 * cell, tint))
        content.append(Text(x, y + 0.12 * cell, 0.34 * cell, str(k), _INK, 600))
        x, y = layout.x(int(start[1])), layout.y(int(start[0]))
        content.append(Circle(x, y, 0.36 * cell, ring))
        content.append(Text(x, y + 0.1 * cell, 0.28 * cell, str(k), _QUIET))
    return Group(content)


def _trails(track: _Motion, layout: _Layout) -> Group:
    """Each agent's whole path, a little aside for each, so that shared cells show every line."""
    agents = track.frames.shape[1]
    content = []
    for k in range(agents):
        aside = (k - (agents - 1) / 2) * 0.085 * layout.cell
        places = track.frames[:, k].tolist()
        turns = [places[0], *(b for a, b in pairwise(places) if a != b)]
        if len(turns) > 1:
            points = tuple((layout.x(c) + aside, layout.y(r) + aside) for r, c in turns)
            colour, width = palette.AGENT_COLOURS[k][0], 0.07 * layout.cell
            content.append(Lines((points,), Paint(None, colour, width, opacity=0.5, role="trail")))
    return Group(content)


def _cast(board: Board, track: _Motion | None, layout: _Layout) -> Group:
    """The agents where they are at each moment, and the marks of a fault."""
    cell = layout.cell
    frames = board.starts[None] if track is None else track.frames
    content: list[Group] = []
    for k, places in enumerate(frames.transpose(1, 0, 2).tolist()):
        colour, ink = palette.AGENT_COLOURS[k]
        paint = Paint(colour, palette.PAPER, 0.05 * cell, role="disc")
        number = Text(0, 0.125 * cell, 0.36 * cell, str(k), Paint(ink), 700)
        path = tuple((layout.x(c), layout.y(r)) for r, c in places)
        content.append(Group([Circle(0, 0, 0.3 * cell, paint), number], f"agent-{k}", path))
    if track is not None and track.marks:
        radius = max(0.19 * cell, _SMALLEST_MARK)
        rims = [one for r, c in track.struck for one in _rims(layout.x(c), layout.y(r), cell)]
        crosses = [one for r, c in track.marks for one in _cross(layout.x(c), layout.y(r), radius)]
        content.insert(0, Group(rims, "mark", at_the_end=True))
        content.append(Group(crosses, "mark", at_the_end=True))
    return Group(content, "cast")


def _rims(x: float, y: float, cell: float) -> list[Shape]:
    """The rim of a cell at fault, light between two dark lines: seen on ice and on holes."""
    side, line = 0.9 * cell, max(0.08 * cell, 2.0)
    return [
        Rectangle(x - side / 2, y - side / 2, side, side, 0.12 * cell, Paint(None, colour, width))
        for colour, width in ((palette.INK, 1.7 * line), (palette.MARK, line))
    ]


def _cross(x: float, y: float, radius: float) -> list[Shape]:
    """The mark of a failure: a cross on a disc in the one colour no agent has."""
    arm = 0.42 * radius
    a, b, c, d = x - arm, y - arm, x + arm, y + arm
    return [
        Circle(x, y, radius, Paint(palette.MARK, palette.INK, 0.16 * radius)),
        Lines((((a, b), (c, d)), ((a, d), (c, b))), Paint(None, palette.INK, 0.3 * radius)),
    ]


def _timeline(track: _Motion, layout: _Layout) -> Group:
    """One segment per step, the failing one marked, and a head that runs along."""
    cell = layout.cell
    left, slot = (layout.width - layout.span) / 2, layout.span / track.slots
    gap, thick = min(0.07 * cell, 0.3 * slot), 0.13 * cell
    top = layout.timeline - thick / 2
    paints = [Paint(palette.SEGMENT, role="segment")] * (track.steps + track.extra)
    if track.failed and paints:
        paints[-1] = Paint(palette.MARK, palette.INK, 0.025 * cell)
    content: list[Shape | Group] = [
        Rectangle(left + t * slot + gap / 2, top, slot - gap, thick, thick / 2, paint)
        for t, paint in enumerate(paints)
    ]
    heads = tuple(
        (left + track.playhead(t) * layout.span / track.slots, layout.timeline)
        for t in range(track.steps + 1)
    )
    return Group([*content, Group([Circle(0, 0, 0.11 * cell, _INK)], "playhead", heads)])
