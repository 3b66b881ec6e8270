"""Layout of a playback as SVG elements. Lengths are in pixels and times in steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from jaxlake.render import palette
from jaxlake.render.playback import (
    Cell,
    Playback,
    UnpaddedBoard,
    describe_fault_location,
    make_caption,
)

Point = tuple[float, float]

# Lengths in cells.
_MARGIN: Final = 0.8
_MIN_WIDTH: Final = 5.6
_MIN_TIMELINE: Final = 4.0
_TIMELINE_HEIGHT: Final = 0.42
_CAPTION_HEIGHT: Final = 0.62
_DETAIL_HEIGHT: Final = 0.42

# In steps: the pause before the first step, the moving part of a step, and the pause at the end.
LEAD_IN: Final = 1.0
MOTION: Final = 0.72
PAUSE: Final = 3.0

# Fraction of a failing step after which agents touch while their numbers stay readable.
_CONTACT_FRACTIONS: Final = {"off_board": 0.66, "vertex_conflict": 0.6, "swapping_conflict": 0.2}

# In pixels: lower bounds that keep text and marks readable in small cells.
_MIN_FONT_SIZE: Final = 11.0
_MIN_MARK_RADIUS: Final = 5.0


@dataclass(frozen=True)
class Scene:
    """A picture as SVG elements, with the paths of its moving groups by class name."""

    width: float
    height: float
    title: str
    elements: str
    paths: dict[str, tuple[Point, ...]]  # the position of each moving group after each step
    has_marks: bool  # whether there is a group `mark`, which appears at the end
    steps: int


def make_scene(playback: Playback, cell: float, *, panel: bool = False) -> Scene:
    """Lay out a playback with cells of the given size in pixels; `panel` adds a background."""
    motion, board = _make_motion(playback), playback.board
    layout = _Layout(playback, motion, cell)
    frames = board.starts[None] if motion is None else motion.frames
    paths = {
        f"agent-{k}": tuple((layout.x(c), layout.y(r)) for r, c in positions)
        for k, positions in enumerate(frames.transpose(1, 0, 2).tolist())
    }
    elements = []
    if panel:
        paper = _paint(palette.PAPER, role="panel")
        elements.append(_rectangle(0, 0, layout.width, layout.height, 0.25 * cell, paper))
    elements.append(_draw_board(board, layout))
    if motion is not None:
        elements.append(_draw_trails(motion, layout))
    elements += [_draw_goals_and_starts(board, layout), _draw_agents(paths, motion, layout)]
    if motion is not None:
        playhead_path = _make_playhead_path(motion, layout)
        elements.append(_draw_timeline(motion, playhead_path, layout))
        paths["playhead"] = playhead_path
    elements.append(_draw_captions(playback, layout))
    return Scene(
        width=layout.width,
        height=layout.height,
        title=_make_title(playback),
        elements="".join(elements),
        paths=paths,
        has_marks=motion is not None and bool(motion.marks),
        steps=0 if motion is None else motion.steps,
    )


def _make_title(playback: Playback) -> str:
    size, num_agents = len(playback.board.holes), len(playback.board.starts)
    title = f"{num_agents} agent{'' if num_agents == 1 else 's'} on a {size} by {size} board"
    if caption := make_caption(playback):
        title += f": {caption}"
    if location := describe_fault_location(playback):
        title += f", {location}"
    return title


def format_number(value: float) -> str:
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
        parts.append(f'stroke="{stroke}" stroke-width="{format_number(width)}"')
    if opacity != 1:
        parts.append(f'{"stroke" if fill is None else "fill"}-opacity="{opacity:g}"')
    if dashes is not None:
        parts.append(f'stroke-dasharray="{" ".join(map(format_number, dashes))}"')
    return " ".join(parts)


_INK: Final = _paint(palette.INK, role="ink")
_QUIET: Final = _paint(palette.QUIET, role="quiet")


def _element(tag: str, paint: str, **lengths: float) -> str:
    attributes = " ".join(f'{name}="{format_number(length)}"' for name, length in lengths.items())
    return f"<{tag} {attributes} {paint}/>"


def _rectangle(x: float, y: float, width: float, height: float, radius: float, paint: str) -> str:
    return _element("rect", paint, x=x, y=y, width=width, height=height, rx=radius)


def _text(
    x: float, y: float, font_size: float, text: str, paint: str, weight: int | None = None
) -> str:
    """Return a text whose baseline is centred at (x, y)."""
    x_text, y_text, size_text = map(format_number, (x, y, font_size))
    weight_text = "" if weight is None else f' font-weight="{weight}"'
    attributes = f'x="{x_text}" y="{y_text}" font-size="{size_text}" {paint}{weight_text}'
    return f"<text {attributes}>{escape(text)}</text>"


def _draw_lines(lines: Sequence[Sequence[Point]], paint: str) -> str:
    """Draw lines with round ends, each through a sequence of points."""
    data = ""
    for line in lines:
        points = (f"{format_number(x)} {format_number(y)}" for x, y in line)
        data += "M" + "L".join(points)
    return f'<path d="{data}" {paint} stroke-linecap="round" stroke-linejoin="round"/>'


def _group(elements: Sequence[str], role: str = "", origin: Point | None = None) -> str:
    attributes = f' class="{role}"' if role else ""
    if origin is not None:
        x, y = map(format_number, origin)
        attributes += f' transform="translate({x} {y})"'
    return f"<g{attributes}>{''.join(elements)}</g>"


@dataclass(frozen=True)
class _Motion:
    """Positions over time in cells; integers are the centres of rows and columns.

    The last frame of a failing step shows the moment of contact.
    """

    frames: NDArray[np.float64]  # (T + 1, K, 2)
    marks: tuple[Point, ...]  # positions of the crosses
    fault_cells: tuple[Cell, ...]
    failed: bool
    extra_slots: int  # 1 for a failure after the last step, which has its own timeline slot

    @property
    def steps(self) -> int:
        return len(self.frames) - 1

    @property
    def slots(self) -> int:
        """The number of slots on the timeline."""
        return max(self.steps + self.extra_slots, 1)

    def playhead(self, time: float) -> float:
        """Return the timeline position of a time 0..T in slots; failing steps end halfway."""
        is_failing_step = self.failed and not self.extra_slots and time == self.steps > 0
        return time - 0.5 if is_failing_step else float(time)


def _make_motion(playback: Playback) -> _Motion | None:
    if playback.actions is None:
        return None
    frames = playback.states.astype(np.float64)
    fault = playback.fault
    extra_slots = int(fault is not None and fault.kind == "goal_not_reached")
    if fault is None or not fault.groups:
        return _Motion(frames, (), (), failed=fault is not None, extra_slots=extra_slots)
    marks: list[Point] = []
    fraction = _CONTACT_FRACTIONS.get(fault.kind, 1.0)
    for group in fault.groups:
        members = list(group)
        if fault.is_during_step:
            start, end = frames[-2, members], frames[-1, members]
            frames[-1, members] = start + fraction * (end - start)
        marks.append(_mark_position(frames[-1, members]))
    fault_cells = tuple(dict.fromkeys(fault.cells))
    return _Motion(frames, tuple(marks), fault_cells, failed=True, extra_slots=extra_slots)


def _mark_position(positions: NDArray[np.float64]) -> Point:
    """Return a position next to a disc's number, or next to the contact point of two discs."""
    row, column = positions.mean(axis=0).tolist()
    if len(positions) == 1:
        return row - 0.27, column + 0.27
    row_distance, column_distance = np.ptp(positions, axis=0)
    return (row, column + 0.3) if row_distance > column_distance else (row - 0.3, column)


class _Layout:
    def __init__(self, playback: Playback, motion: _Motion | None, cell: float) -> None:
        size = len(playback.board.holes)
        width = max(size + 2 * _MARGIN, _MIN_WIDTH)
        unit = max(cell, _MIN_FONT_SIZE / 0.33)
        timeline = (size + 2 * _MARGIN) * cell
        baseline = timeline + (0 if motion is None else _TIMELINE_HEIGHT * cell)
        detail = baseline + (0 if make_caption(playback) is None else _CAPTION_HEIGHT * unit)
        self.cell = cell
        self.width = width * cell
        self.height = detail + (
            0 if describe_fault_location(playback) is None else _DETAIL_HEIGHT * unit
        )
        self.timeline_width = max(size, _MIN_TIMELINE) * cell
        self.timeline_left = (self.width - self.timeline_width) / 2
        self.left = (width - size) / 2 * cell
        self.top = _MARGIN * cell
        self.timeline = timeline + 0.05 * cell
        self.baseline = baseline + 0.3 * unit
        self.detail = detail + 0.1 * unit

    def x(self, column: float) -> float:
        return self.left + (column + 0.5) * self.cell

    def y(self, row: float) -> float:
        return self.top + (row + 0.5) * self.cell

    def font_size(self, fraction: float, num_characters: int) -> float:
        """Return a fraction of a cell, limited so that a text is readable and fits the picture."""
        size = max(fraction * self.cell, _MIN_FONT_SIZE)
        return min(size, 0.96 * self.width / (0.64 * max(num_characters, 1)))


def _draw_captions(playback: Playback, layout: _Layout) -> str:
    """Draw the caption, and below it the location of a failure."""
    middle, elements = layout.width / 2, []
    if (caption := make_caption(playback)) is not None:
        weight = 600 if playback.fault is not None else 400
        font_size = layout.font_size(0.33, len(caption))
        elements.append(_text(middle, layout.baseline, font_size, caption, _INK, weight))
    if (location := describe_fault_location(playback)) is not None:
        font_size = layout.font_size(0.29, len(location))
        elements.append(_text(middle, layout.detail, font_size, location, _QUIET))
    return "".join(elements)


def _draw_board(board: UnpaddedBoard, layout: _Layout) -> str:
    size, cell = len(board.holes), layout.cell
    rim, gap, inset = 0.12 * cell, 0.035 * cell, 0.17 * cell
    ground_side, side = size * cell + 2 * rim, cell - 2 * gap
    ground, ice = _paint(palette.GROUND, role="ground"), _paint(palette.ICE, role="ice")
    hole = _paint(palette.HOLE, role="hole")
    pit = _paint(None, palette.PIT, 0.03 * cell, role="pit")
    x, y = layout.left - rim, layout.top - rim
    parts = [_rectangle(x, y, ground_side, ground_side, 0.2 * cell, ground)]
    for row in range(size):
        for column in range(size):
            x, y = layout.left + column * cell + gap, layout.top + row * cell + gap
            is_hole = board.holes[row, column]
            parts.append(_rectangle(x, y, side, side, 0.13 * cell, hole if is_hole else ice))
            if is_hole:
                pit_side = side - 2 * inset
                parts.append(_rectangle(x + inset, y + inset, pit_side, pit_side, 0.09 * cell, pit))
    font_size = 0.26 * cell
    for column in range(size):
        x, y = layout.x(column), layout.top - 0.27 * cell
        parts.append(_text(x, y, font_size, str(column), _QUIET))
    for row in range(size):
        x, y = layout.left - 0.38 * cell, layout.y(row) + 0.35 * font_size
        parts.append(_text(x, y, font_size, str(row), _QUIET))
    return _group(parts)


def _draw_goals_and_starts(board: UnpaddedBoard, layout: _Layout) -> str:
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


def _draw_trails(motion: _Motion, layout: _Layout) -> str:
    """Draw the path of each agent, with an offset that keeps paths in shared cells apart."""
    num_agents = motion.frames.shape[1]
    parts = []
    for k in range(num_agents):
        offset = (k - (num_agents - 1) / 2) * 0.085 * layout.cell
        positions = motion.frames[:, k].tolist()
        path = [positions[0], *(end for start, end in pairwise(positions) if start != end)]
        if len(path) > 1:
            points = [(layout.x(c) + offset, layout.y(r) + offset) for r, c in path]
            colour, width = palette.AGENT_COLOURS[k][0], 0.07 * layout.cell
            parts.append(
                _draw_lines([points], _paint(None, colour, width, opacity=0.5, role="trail"))
            )
    return _group(parts)


def _draw_agents(
    paths: dict[str, tuple[Point, ...]], motion: _Motion | None, layout: _Layout
) -> str:
    """Draw the agents at their last positions, and the marks of a failure."""
    cell = layout.cell
    parts = []
    for k, (role, path) in enumerate(paths.items()):
        colour, label_colour = palette.AGENT_COLOURS[k]
        disc = _paint(colour, palette.PAPER, 0.05 * cell, role="disc")
        label = _text(0, 0.125 * cell, 0.36 * cell, str(k), _paint(label_colour), 700)
        parts.append(_group([_element("circle", disc, r=0.3 * cell), label], role, path[-1]))
    if motion is not None and motion.marks:
        radius = max(0.19 * cell, _MIN_MARK_RADIUS)
        outlines = [_draw_outline(layout.x(c), layout.y(r), cell) for r, c in motion.fault_cells]
        crosses = [_draw_cross(layout.x(c), layout.y(r), radius) for r, c in motion.marks]
        parts = [_group(outlines, "mark"), *parts, _group(crosses, "mark")]
    return _group(parts, "cast")


def _draw_outline(x: float, y: float, cell: float) -> str:
    """Outline a cell involved in a failure: light on dark, which is visible on ice and holes."""
    side, width = 0.9 * cell, max(0.08 * cell, 2.0)
    x, y = x - side / 2, y - side / 2
    dark, light = _paint(None, palette.INK, 1.7 * width), _paint(None, palette.MARK, width)
    return "".join(_rectangle(x, y, side, side, 0.12 * cell, paint) for paint in (dark, light))


def _draw_cross(x: float, y: float, radius: float) -> str:
    """Draw the mark of a failure: a cross on a disc in a colour that no agent has."""
    arm = 0.42 * radius
    left, top, right, bottom = x - arm, y - arm, x + arm, y + arm
    diagonals = [[(left, top), (right, bottom)], [(left, bottom), (right, top)]]
    disc = _paint(palette.MARK, palette.INK, 0.16 * radius)
    cross = _draw_lines(diagonals, _paint(None, palette.INK, 0.3 * radius))
    return _element("circle", disc, cx=x, cy=y, r=radius) + cross


def _make_playhead_path(motion: _Motion, layout: _Layout) -> tuple[Point, ...]:
    left, slot = layout.timeline_left, layout.timeline_width / motion.slots
    times = range(motion.steps + 1)
    return tuple((left + motion.playhead(t) * slot, layout.timeline) for t in times)


def _draw_timeline(motion: _Motion, playhead_path: Sequence[Point], layout: _Layout) -> str:
    """Draw one segment per step, with the failing one marked, and a moving playhead."""
    cell = layout.cell
    left, slot = layout.timeline_left, layout.timeline_width / motion.slots
    gap, height = min(0.07 * cell, 0.3 * slot), 0.13 * cell
    top = layout.timeline - height / 2
    paints = [_paint(palette.SEGMENT, role="segment")] * (motion.steps + motion.extra_slots)
    if motion.failed and paints:
        paints[-1] = _paint(palette.MARK, palette.INK, 0.025 * cell)
    parts = [
        _rectangle(left + t * slot + gap / 2, top, slot - gap, height, height / 2, paint)
        for t, paint in enumerate(paints)
    ]
    playhead = _element("circle", _INK, r=0.11 * cell)
    return _group([*parts, _group([playhead], "playhead", playhead_path[-1])])
