"""Lay out a playback as SVG elements; lengths are in pixels, times in steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape

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

# Fraction of a failing step that agents complete: they touch, and both numbers stay readable.
_REACH: Final = {"off_board": 0.66, "vertex_conflict": 0.6, "swapping_conflict": 0.2}

# In pixels: lower bounds that keep text and marks readable in small cells.
_SMALLEST_TEXT: Final = 11.0
_SMALLEST_MARK: Final = 5.0


@dataclass(frozen=True)
class Scene:
    """A picture as SVG elements, with the paths of its moving groups by class name."""

    width: float
    height: float
    title: str
    elements: str
    paths: dict[str, tuple[Point, ...]]  # the position of each moving group after each step
    marked: bool  # whether there is a group `mark`, which appears at the end
    steps: int


def scene(playback: Playback, cell: float, *, panel: bool = False) -> Scene:
    """Lay out a playback with cells of the given size in pixels; `panel` adds a background."""
    track, board = _motion(playback), playback.board
    layout = _Layout(playback, track, cell)
    words, details = caption(playback), whereabouts(playback)
    size, agents = len(board.holes), len(board.starts)
    title = f"{agents} agent{'' if agents == 1 else 's'} on a {size} by {size} board"
    title += f": {words}" if words else ""
    title += f", {details}" if details else ""
    paths = _agent_paths(board, track, layout)
    parts = []
    if panel:
        paper = _paint(palette.PAPER, role="panel")
        parts.append(_rectangle(0, 0, layout.width, layout.height, 0.25 * cell, paper))
    parts.append(_ice(board, layout))
    if track is not None:
        parts.append(_trails(track, layout))
    parts += [_goals_and_starts(board, layout), _cast(paths, track, layout)]
    if track is not None:
        heads = _playheads(track, layout)
        parts.append(_timeline(track, heads, layout))
        paths["playhead"] = heads
    middle = layout.width / 2
    if words is not None:
        weight = 600 if playback.fault is not None else 400
        letters = layout.letters(0.33, len(words))
        parts.append(_text(middle, layout.baseline, letters, words, _INK, weight))
    if details is not None:
        letters = layout.letters(0.29, len(details))
        parts.append(_text(middle, layout.detail, letters, details, _QUIET))
    marked, steps = (False, 0) if track is None else (bool(track.marks), track.steps)
    return Scene(layout.width, layout.height, title, "".join(parts), paths, marked, steps)


def number(value: float) -> str:
    """Format a length with at most two decimals and without trailing zeros."""
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def _paint(
    fill: str | None = None,
    stroke: str | None = None,
    width: float = 0.0,  # of the stroke
    *,
    opacity: float = 1.0,  # of the fill, or of the stroke without a fill
    dashes: tuple[float, float] | None = None,  # lengths of dashes and gaps
    role: str = "",  # some roles have other colours on dark pages
) -> str:
    parts = [f'class="{role}"'] if role else []
    parts.append(f'fill="{fill or "none"}"')
    if stroke is not None:
        parts.append(f'stroke="{stroke}" stroke-width="{number(width)}"')
    if opacity != 1:
        parts.append(f'{"stroke" if fill is None else "fill"}-opacity="{opacity:g}"')
    if dashes is not None:
        parts.append(f'stroke-dasharray="{" ".join(map(number, dashes))}"')
    return " ".join(parts)


_INK: Final = _paint(palette.INK, role="ink")
_QUIET: Final = _paint(palette.QUIET, role="quiet")


def _element(tag: str, paint: str, **lengths: float) -> str:
    places = " ".join(f'{name}="{number(length)}"' for name, length in lengths.items())
    return f"<{tag} {places} {paint}/>"


def _rectangle(x: float, y: float, width: float, height: float, radius: float, paint: str) -> str:
    return _element("rect", paint, x=x, y=y, width=width, height=height, rx=radius)


def _text(
    x: float, y: float, size: float, words: str, paint: str, weight: int | None = None
) -> str:
    """Return a text whose baseline is centred at (x, y)."""
    place = f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}"'
    bold = "" if weight is None else f' font-weight="{weight}"'
    return f"<text {place} {paint}{bold}>{escape(words)}</text>"


def _lines(parts: Sequence[Sequence[Point]], paint: str) -> str:
    """Draw lines through the points of each part, with round ends."""
    d = "".join("M" + "L".join(f"{number(x)} {number(y)}" for x, y in part) for part in parts)
    return f'<path d="{d}" {paint} stroke-linecap="round" stroke-linejoin="round"/>'


def _group(elements: Sequence[str], role: str = "", place: Point | None = None) -> str:
    attributes = f' class="{role}"' if role else ""
    if place is not None:
        attributes += f' transform="translate({number(place[0])} {number(place[1])})"'
    return f"<g{attributes}>{''.join(elements)}</g>"


@dataclass(frozen=True)
class _Motion:
    """Positions over time in cells; integers are the centres of rows and columns.

    The last frame of a failing step shows the moment of contact.
    """

    frames: NDArray[np.float64]  # (T + 1, K, 2)
    marks: tuple[Point, ...]  # positions of the crosses
    struck: tuple[Cell, ...]  # the cells involved in the failure
    failed: bool
    extra: int  # 1 for a failure after the last step, which gets its own slot on the timeline

    @property
    def steps(self) -> int:
        return len(self.frames) - 1

    @property
    def slots(self) -> int:
        """The number of slots on the timeline."""
        return max(self.steps + self.extra, 1)

    def playhead(self, moment: float) -> float:
        """Return the timeline position of a time 0..T in slots; failing steps end halfway."""
        unfinished = self.failed and not self.extra and moment == self.steps > 0
        return moment - 0.5 if unfinished else float(moment)


def _motion(playback: Playback) -> _Motion | None:
    if playback.actions is None:
        return None
    frames = playback.states.astype(np.float64)
    fault = playback.fault
    extra = int(fault is not None and fault.kind == "goal_not_reached")
    if fault is None or not fault.groups:
        return _Motion(frames, (), (), failed=fault is not None, extra=extra)
    marks: list[Point] = []
    reach = _REACH.get(fault.kind, 1.0)
    for group in fault.groups:
        members = list(group)
        if fault.in_a_step:
            frames[-1, members] = frames[-2, members] + reach * (
                frames[-1, members] - frames[-2, members]
            )
        marks.append(_mark_place(frames[-1, members]))
    struck = tuple(dict.fromkeys(fault.cells))
    return _Motion(frames, tuple(marks), struck, failed=True, extra=extra)


def _mark_place(places: NDArray[np.float64]) -> Point:
    """Return a position next to the discs' contact point or a disc's number, hiding neither."""
    row, column = places.mean(axis=0).tolist()
    if len(places) == 1:
        return row - 0.27, column + 0.27
    across, along = np.ptp(places, axis=0)
    return (row, column + 0.3) if across > along else (row - 0.3, column)


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
        """Return a font size: a fraction of a cell, but readable and narrower than the picture."""
        size = max(share * self.cell, _SMALLEST_TEXT)
        return min(size, 0.96 * self.width / (0.64 * max(characters, 1)))


def _ice(board: Board, layout: _Layout) -> str:
    size, cell = len(board.holes), layout.cell
    rim, gap, inset = 0.12 * cell, 0.035 * cell, 0.17 * cell
    whole, side = size * cell + 2 * rim, cell - 2 * gap
    ground, ice = _paint(palette.GROUND, role="ground"), _paint(palette.ICE, role="ice")
    hole = _paint(palette.HOLE, role="hole")
    pit = _paint(None, palette.PIT, 0.03 * cell, role="pit")
    parts = [_rectangle(layout.left - rim, layout.top - rim, whole, whole, 0.2 * cell, ground)]
    for r in range(size):
        for c in range(size):
            x, y = layout.left + c * cell + gap, layout.top + r * cell + gap
            paint = hole if board.holes[r, c] else ice
            parts.append(_rectangle(x, y, side, side, 0.13 * cell, paint))
            if board.holes[r, c]:
                inner = side - 2 * inset
                parts.append(_rectangle(x + inset, y + inset, inner, inner, 0.09 * cell, pit))
    letters = 0.26 * cell
    above = [(layout.x(c), layout.top - 0.27 * cell) for c in range(size)]
    beside = [(layout.left - 0.38 * cell, layout.y(r) + 0.35 * letters) for r in range(size)]
    for i, place in [*enumerate(above), *enumerate(beside)]:
        parts.append(_text(*place, letters, str(i), _QUIET))
    return _group(parts)


def _goals_and_starts(board: Board, layout: _Layout) -> str:
    cell = layout.cell
    half = 0.385 * cell
    goals = board.goals.tolist()
    parts = []
    for k, (start, goal) in enumerate(zip(board.starts, board.goals, strict=True)):
        colour = palette.AGENT_COLOURS[k][0]
        x, y = layout.x(int(goal[1])), layout.y(int(goal[0]))
        tint = _paint(colour, colour, 0.07 * cell, opacity=0.2)
        ring = _paint(None, colour, 0.05 * cell, dashes=(0.1 * cell, 0.088 * cell))
        parts.append(_rectangle(x - half, y - half, 2 * half, 2 * half, 0.1 * cell, tint))
        parts.append(_text(x, y + 0.12 * cell, 0.34 * cell, str(k), _INK, 600))
        x, y = layout.x(int(start[1])), layout.y(int(start[0]))
        parts.append(_element("circle", ring, cx=x, cy=y, r=0.36 * cell))
        if start.tolist() not in goals:  # the goal's number would be unreadable
            parts.append(_text(x, y + 0.1 * cell, 0.28 * cell, str(k), _QUIET))
    return _group(parts)


def _trails(track: _Motion, layout: _Layout) -> str:
    """Draw the path of each agent, slightly offset so that all stay visible in shared cells."""
    agents = track.frames.shape[1]
    parts = []
    for k in range(agents):
        aside = (k - (agents - 1) / 2) * 0.085 * layout.cell
        places = track.frames[:, k].tolist()
        turns = [places[0], *(b for a, b in pairwise(places) if a != b)]
        if len(turns) > 1:
            points = [(layout.x(c) + aside, layout.y(r) + aside) for r, c in turns]
            colour, width = palette.AGENT_COLOURS[k][0], 0.07 * layout.cell
            parts.append(_lines([points], _paint(None, colour, width, opacity=0.5, role="trail")))
    return _group(parts)


def _agent_paths(
    board: Board, track: _Motion | None, layout: _Layout
) -> dict[str, tuple[Point, ...]]:
    frames = board.starts[None] if track is None else track.frames
    return {
        f"agent-{k}": tuple((layout.x(c), layout.y(r)) for r, c in places)
        for k, places in enumerate(frames.transpose(1, 0, 2).tolist())
    }


def _cast(paths: dict[str, tuple[Point, ...]], track: _Motion | None, layout: _Layout) -> str:
    """Draw the agents at their last positions, and the marks of a failure."""
    cell = layout.cell
    parts = []
    for k, (role, path) in enumerate(paths.items()):
        colour, ink = palette.AGENT_COLOURS[k]
        disc = _paint(colour, palette.PAPER, 0.05 * cell, role="disc")
        label = _text(0, 0.125 * cell, 0.36 * cell, str(k), _paint(ink), 700)
        parts.append(_group([_element("circle", disc, r=0.3 * cell), label], role, path[-1]))
    if track is not None and track.marks:
        radius = max(0.19 * cell, _SMALLEST_MARK)
        rims = [_rim(layout.x(c), layout.y(r), cell) for r, c in track.struck]
        crosses = [_cross(layout.x(c), layout.y(r), radius) for r, c in track.marks]
        parts = [_group(rims, "mark"), *parts, _group(crosses, "mark")]
    return _group(parts, "cast")


def _rim(x: float, y: float, cell: float) -> str:
    """Outline a cell involved in a failure, light on dark, to be visible on ice and holes."""
    side, line = 0.9 * cell, max(0.08 * cell, 2.0)
    return "".join(
        _rectangle(x - side / 2, y - side / 2, side, side, 0.12 * cell, _paint(None, colour, width))
        for colour, width in ((palette.INK, 1.7 * line), (palette.MARK, line))
    )


def _cross(x: float, y: float, radius: float) -> str:
    """Draw the mark of a failure: a cross on a disc in a colour that no agent has."""
    arm = 0.42 * radius
    a, b, c, d = x - arm, y - arm, x + arm, y + arm
    disc = _paint(palette.MARK, palette.INK, 0.16 * radius)
    strokes = _lines([[(a, b), (c, d)], [(a, d), (c, b)]], _paint(None, palette.INK, 0.3 * radius))
    return _element("circle", disc, cx=x, cy=y, r=radius) + strokes


def _playheads(track: _Motion, layout: _Layout) -> tuple[Point, ...]:
    left, slot = (layout.width - layout.span) / 2, layout.span / track.slots
    moments = range(track.steps + 1)
    return tuple((left + track.playhead(t) * slot, layout.timeline) for t in moments)


def _timeline(track: _Motion, heads: Sequence[Point], layout: _Layout) -> str:
    """Draw one segment per step, with the failing one marked, and a moving playhead."""
    cell = layout.cell
    left, slot = (layout.width - layout.span) / 2, layout.span / track.slots
    gap, thick = min(0.07 * cell, 0.3 * slot), 0.13 * cell
    top = layout.timeline - thick / 2
    paints = [_paint(palette.SEGMENT, role="segment")] * (track.steps + track.extra)
    if track.failed and paints:
        paints[-1] = _paint(palette.MARK, palette.INK, 0.025 * cell)
    parts = [
        _rectangle(left + t * slot + gap / 2, top, slot - gap, thick, thick / 2, paint)
        for t, paint in enumerate(paints)
    ]
    head = _element("circle", _INK, r=0.11 * cell)
    return _group([*parts, _group([head], "playhead", heads[-1])])
