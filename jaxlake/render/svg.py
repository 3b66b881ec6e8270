"""An episode as SVG: a still board, or an animated one when there is a plan.

The picture is one SVG element that holds everything it needs: no script, no font, no link, and no
`id` attribute, so any number of pictures can stand in one page. The animation is CSS keyframes with
names derived from the content. Readers who ask for reduced motion see the last frame and every
agent's path.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from jaxlake.render.episode import (
    Board,
    Episode,
    actions_of_agents,
    board_of_grid,
    caption,
    play,
    whereabouts,
)
from jaxlake.render.motion import LEAD_IN, MOTION, PAUSE, Motion, motion
from jaxlake.render.palette import (
    AGENT_COLOURS,
    GROUND,
    HOLE,
    ICE,
    INK,
    MARK,
    PAPER,
    PIT,
    QUIET,
    SEGMENT,
)

# Lengths in cells.
_MARGIN: Final = 0.8
_MIN_WIDTH: Final = 5.6
_MIN_TIMELINE: Final = 4.0
_DISC: Final = 0.3
_TIMELINE_HEIGHT: Final = 0.42
_CAPTION_HEIGHT: Final = 0.62
_DETAIL_HEIGHT: Final = 0.42

_FADE: Final = 0.35
"""How long the discs take to come and to go, in steps."""

_SMALLEST_TEXT: Final = 11.0
_SMALLEST_MARK: Final = 5.0
"""In pixels: what is read stays readable when cells are small."""


def episode_svg(
    grid: Sequence[str],
    plan: Sequence[Sequence[str | int]] | None,
    *,
    failure: str | None = None,
    failure_agent: int | None = None,
    failure_time: int | None = None,
    cell: float = 36,
    seconds_per_step: float = 0.6,
) -> str:
    """Draw one board, and play the plan on it where there is one.

    Args:
        grid: the rows of the board in the published symbols, as `parse_grid` reads them; 1 to 5
            agents.
        plan: one sequence of actions (names, or numbers 0..4) for each agent; a shorter one waits.
            None gives a still picture.
        failure: one of `FAILURES`, or None. The plan is played up to it, and it is marked there.
        failure_agent: the lowest agent involved, as the verifier says it; None or -1: none.
        failure_time: the 0-based step in which it happens; None or -1: none.
        cell: side of a cell in pixels.
        seconds_per_step: duration of one step of the plan in seconds.

    Returns:
        One `<svg>` element, well-formed XML. Its size grows with the number of moves in the plan.

    Raises:
        ValueError: names the row, agent, step or argument that is wrong, and what is allowed
            (for the grid, a `GridError`).
    """
    board = board_of_grid(grid)
    actions = None if plan is None else actions_of_agents(plan, len(board.starts))
    episode = play(board, actions, failure=failure, agent=failure_agent, time=failure_time)
    return draw_svg(episode, cell=cell, seconds_per_step=seconds_per_step)


def draw_svg(
    episode: Episode, *, cell: float = 36, seconds_per_step: float = 0.6, panel: bool = False
) -> str:
    """Draw an episode as one `<svg>` element.

    Args:
        episode: what to draw.
        cell: side of a cell in pixels.
        seconds_per_step: duration of one step of the plan in seconds.
        panel: whether to paint the background, for pages whose own colour is not known.

    Raises:
        ValueError: `cell` or `seconds_per_step` is not positive.
    """
    if not cell > 0 or not seconds_per_step > 0:
        raise ValueError(
            f"cell, seconds_per_step: got {cell}, {seconds_per_step}; both must be positive"
        )
    track = motion(episode)
    layout = _lay_out(episode, track, float(cell))
    board = episode.board
    name = "lake-" + _digest(
        board.holes.tolist(),
        board.starts.tolist(),
        board.goals.tolist(),
        None if episode.actions is None else episode.actions.tolist(),
        episode.fault,
        cell,
        seconds_per_step,
        panel,
    )
    return _render(episode, track, layout, name, float(seconds_per_step), panel)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "replace")).hexdigest()[:10]


def _number(value: float) -> str:
    """At most two decimals and no trailing zeros: pixels need no more."""
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class _Layout:
    """Where things stand, in pixels."""

    cell: float
    width: float
    height: float
    span: float
    left: float
    top: float
    timeline: float
    baseline: float
    detail: float

    def x(self, column: float) -> float:
        return self.left + (column + 0.5) * self.cell

    def y(self, row: float) -> float:
        return self.top + (row + 0.5) * self.cell

    def letters(self, share: float, characters: int = 1) -> float:
        """Size of a text, a share of a cell, not too small to read nor too wide for the picture."""
        wanted = max(share * self.cell, _SMALLEST_TEXT)
        return min(wanted, 0.96 * self.width / (0.64 * max(characters, 1)))


def _lay_out(episode: Episode, track: Motion | None, cell: float) -> _Layout:
    size = len(episode.board.holes)
    width = max(size + 2 * _MARGIN, _MIN_WIDTH)
    unit = max(cell, _SMALLEST_TEXT / 0.33)
    timeline = (size + 2 * _MARGIN) * cell
    baseline = timeline + (0 if track is None else _TIMELINE_HEIGHT * cell)
    height = baseline + (0 if caption(episode) is None else _CAPTION_HEIGHT * unit)
    detail = height
    height += 0 if whereabouts(episode) is None else _DETAIL_HEIGHT * unit
    return _Layout(
        cell=cell,
        width=width * cell,
        height=height,
        span=max(size, _MIN_TIMELINE) * cell,
        left=(width - size) / 2 * cell,
        top=_MARGIN * cell,
        timeline=timeline + 0.05 * cell,
        baseline=baseline + 0.3 * unit,
        detail=detail + 0.1 * unit,
    )


def _render(
    episode: Episode,
    track: Motion | None,
    layout: _Layout,
    name: str,
    seconds_per_step: float,
    panel: bool,
) -> str:
    board = episode.board
    size, agents = len(board.holes), len(board.starts)
    words, details = caption(episode), whereabouts(episode)
    title = f"{agents} agent{'' if agents == 1 else 's'} on a {size} by {size} board"
    title = ": ".join(filter(None, [title, words]))
    title = ", ".join(filter(None, [title, details]))
    width, height = _number(layout.width), _number(layout.height)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lake {name}" role="img" '
        f'aria-label={quoteattr(title)} width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" text-anchor="middle" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif\">",
        f"<style>{_style(track, layout, name, seconds_per_step)}</style>",
    ]
    if panel:
        radius = 0.25 * layout.cell
        look = f'class="panel" fill="{PAPER}"'
        parts.append(_rectangle(0, 0, layout.width, layout.height, radius, look))
    parts.append(_ice(board, layout))
    if track is not None:
        parts.append(_trails(track, layout))
    parts += [_goals_and_starts(board, layout), _agents(board, track, layout)]
    if track is not None:
        parts.append(_timeline(track, layout))
    if words is not None:
        weight = 600 if episode.fault is not None else 400
        look = f'class="ink" fill="{INK}" font-weight="{weight}"'
        letters = layout.letters(0.33, len(words))
        parts.append(_text(layout.width / 2, layout.baseline, letters, words, look))
    if details is not None:
        look = f'class="quiet" fill="{QUIET}"'
        letters = layout.letters(0.29, len(details))
        parts.append(_text(layout.width / 2, layout.detail, letters, details, look))
    parts.append("</svg>")
    return "".join(parts)


def _style(track: Motion | None, layout: _Layout, name: str, seconds_per_step: float) -> str:
    """Dark colours, and the animation; every selector is scoped to this picture."""
    dark = {
        ".panel": "fill:#0d141a",
        ".ground": "fill:#16212b",
        ".ice": "fill:#2c3f4f",
        ".hole": "fill:#06090c",
        ".pit": "stroke:#33485a",
        ".ink": "fill:#e6edf3",
        ".quiet": "fill:#93a1ae",
        ".segment": "fill:#3b4d5c",
        ".disc": "stroke:#0d141a",
        ".trail": "stroke-opacity:.85",
    }
    rules = "".join(f".{name} {selector}{{{style}}}" for selector, style in dark.items())
    css = f"@media (prefers-color-scheme:dark){{{rules}}}"
    if track is not None and track.steps:
        motion = _animations(track, layout, name, seconds_per_step)
        css += f"@media screen and (prefers-reduced-motion:no-preference){{{motion}}}"
    return css


def _animations(track: Motion, layout: _Layout, name: str, seconds_per_step: float) -> str:
    steps = track.steps
    cycle = LEAD_IN + steps + PAUSE

    def percent(moment: float) -> str:
        return f"{100 * moment / cycle:.3f}%"

    def path(points: list[tuple[float, float]]) -> str:
        """Keyframes through one point a moment; a point that is waited at costs nothing."""
        stops = [("0%", points[0])]
        for t, (here, there) in enumerate(pairwise(points)):
            if here != there:
                stops.append((percent(LEAD_IN + t), here))
                stops.append((percent(LEAD_IN + t + MOTION), there))
        stops.append(("100%", points[-1]))
        return "".join(
            f"{at}{{transform:translate({_number(x)}px,{_number(y)}px)}}" for at, (x, y) in stops
        )

    def rule(target: str, keyframes: str, timing: str) -> str:
        seconds = _number(cycle * seconds_per_step)
        return (
            f"@keyframes {name}-{target}{{{keyframes}}}"
            f".{name} .{target}{{animation:{name}-{target} {seconds}s {timing} infinite}}"
        )

    rules = [
        rule(f"agent-{k}", path([(layout.x(c), layout.y(r)) for r, c in places]), "ease-in-out")
        for k, places in enumerate(track.frames.transpose(1, 0, 2).tolist())
    ]
    heads = [_playhead(track, layout, t) for t in range(steps + 1)]
    rules.append(rule("playhead", path(heads), "ease-in-out"))
    if track.marks:
        struck = percent(LEAD_IN + steps - 1 + MOTION)
        shown = percent(LEAD_IN + steps)
        rules.append(
            rule("mark", f"0%,{struck}{{opacity:0}}{shown},100%{{opacity:1}}", "ease-in-out")
        )
    fade = f"0%,100%{{opacity:0}}{percent(_FADE)},{percent(cycle - _FADE)}{{opacity:1}}"
    rules.append(rule("cast", fade, "linear"))
    return "".join(rules)


def _ice(board: Board, layout: _Layout) -> str:
    rows = columns = len(board.holes)
    cell = layout.cell
    rim, gap = 0.12 * cell, 0.035 * cell
    parts = [
        _rectangle(
            layout.left - rim,
            layout.top - rim,
            columns * cell + 2 * rim,
            rows * cell + 2 * rim,
            0.2 * cell,
            f'class="ground" fill="{GROUND}"',
        )
    ]
    for r in range(rows):
        for c in range(columns):
            side = cell - 2 * gap
            x, y = layout.left + c * cell + gap, layout.top + r * cell + gap
            look = (
                f'class="hole" fill="{HOLE}"' if board.holes[r, c] else f'class="ice" fill="{ICE}"'
            )
            parts.append(_rectangle(x, y, side, side, 0.13 * cell, look))
            if board.holes[r, c]:
                inset = 0.17 * cell
                line = _number(0.03 * cell)
                look = f'class="pit" fill="none" stroke="{PIT}" stroke-width="{line}"'
                parts.append(
                    _rectangle(
                        x + inset, y + inset, side - 2 * inset, side - 2 * inset, 0.09 * cell, look
                    )
                )
    size = 0.26 * cell
    for c in range(columns):
        parts.append(
            _text(
                layout.x(c), layout.top - 0.27 * cell, size, str(c), f'class="quiet" fill="{QUIET}"'
            )
        )
    for r in range(rows):
        x, y = layout.left - 0.38 * cell, layout.y(r) + 0.35 * size
        parts.append(_text(x, y, size, str(r), f'class="quiet" fill="{QUIET}"'))
    return "<g>" + "".join(parts) + "</g>"


def _goals_and_starts(board: Board, layout: _Layout) -> str:
    cell = layout.cell
    parts = []
    for k, ((start_row, start_column), (goal_row, goal_column)) in enumerate(
        zip(board.starts.tolist(), board.goals.tolist(), strict=True)
    ):
        colour = AGENT_COLOURS[k][0]
        half = 0.385 * cell
        x, y = layout.x(goal_column), layout.y(goal_row)
        parts.append(
            _rectangle(
                x - half,
                y - half,
                2 * half,
                2 * half,
                0.1 * cell,
                f'fill="{colour}" fill-opacity="0.2" stroke="{colour}" '
                f'stroke-width="{_number(0.07 * cell)}"',
            )
        )
        ink = f'class="ink" fill="{INK}" font-weight="600"'
        parts.append(_text(x, y + 0.12 * cell, 0.34 * cell, str(k), ink))
        x, y = layout.x(start_column), layout.y(start_row)
        parts.append(
            f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(0.36 * cell)}" fill="none" '
            f'stroke="{colour}" stroke-width="{_number(0.05 * cell)}" '
            f'stroke-dasharray="{_number(0.1 * cell)} {_number(0.088 * cell)}"/>'
        )
        parts.append(_text(x, y + 0.1 * cell, 0.28 * cell, str(k), f'class="quiet" fill="{QUIET}"'))
    return "<g>" + "".join(parts) + "</g>"


def _trails(track: Motion, layout: _Layout) -> str:
    """Each agent's whole path, a little aside for each, so that shared cells show every line."""
    agents = track.frames.shape[1]
    parts = []
    for k in range(agents):
        aside = (k - (agents - 1) / 2) * 0.085 * layout.cell
        places = track.frames[:, k].tolist()
        turns = [places[0], *(b for a, b in pairwise(places) if a != b)]
        if len(turns) > 1:
            points = " ".join(
                f"{_number(layout.x(c) + aside)},{_number(layout.y(r) + aside)}" for r, c in turns
            )
            parts.append(
                f'<polyline class="trail" points="{points}" fill="none" '
                f'stroke="{AGENT_COLOURS[k][0]}" '
                f'stroke-width="{_number(0.07 * layout.cell)}" stroke-opacity="0.5" '
                'stroke-linecap="round" stroke-linejoin="round"/>'
            )
    return "<g>" + "".join(parts) + "</g>"


def _agents(board: Board, track: Motion | None, layout: _Layout) -> str:
    cell = layout.cell
    last = board.starts if track is None else track.frames[-1]
    parts = []
    for k, (row, column) in enumerate(last.tolist()):
        disc, ink = AGENT_COLOURS[k]
        parts.append(
            f'<g class="agent-{k}" '
            f'transform="translate({_number(layout.x(column))} {_number(layout.y(row))})">'
            f'<circle class="disc" r="{_number(_DISC * cell)}" fill="{disc}" stroke="{PAPER}" '
            f'stroke-width="{_number(0.05 * cell)}"/>'
            + _text(0, 0.125 * cell, 0.36 * cell, str(k), f'fill="{ink}" font-weight="700"')
            + "</g>"
        )
    if track is not None and track.marks:
        radius = max(0.19 * cell, _SMALLEST_MARK)
        frames = "".join(_frame(layout, r, c) for r, c in track.struck)
        crosses = "".join(_cross(layout.x(c), layout.y(r), radius) for r, c in track.marks)
        parts.insert(0, f'<g class="mark">{frames}</g>')
        parts.append(f'<g class="mark">{crosses}</g>')
    return '<g class="cast">' + "".join(parts) + "</g>"


def _frame(layout: _Layout, row: int, column: int) -> str:
    """The frame of a cell at fault, light between two dark lines: seen on ice and on holes."""
    side = 0.9 * layout.cell
    x, y = layout.x(column) - side / 2, layout.y(row) - side / 2
    line = max(0.08 * layout.cell, 2.0)
    return "".join(
        _rectangle(
            x,
            y,
            side,
            side,
            0.12 * layout.cell,
            f'fill="none" stroke="{colour}" stroke-width="{w}"',
        )
        for colour, w in ((INK, _number(1.7 * line)), (MARK, _number(line)))
    )


def _cross(x: float, y: float, radius: float) -> str:
    """The mark of a failure: a cross on a disc in the one colour no agent has."""
    arm = 0.42 * radius
    a, b, c, d = (_number(v) for v in (x - arm, y - arm, x + arm, y + arm))
    return (
        f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}" fill="{MARK}" '
        f'stroke="{INK}" stroke-width="{_number(0.16 * radius)}"/>'
        f'<path d="M{a} {b}L{c} {d}M{a} {d}L{c} {b}" stroke="{INK}" '
        f'stroke-width="{_number(0.3 * radius)}" stroke-linecap="round"/>'
    )


def _timeline(track: Motion, layout: _Layout) -> str:
    """One segment a step, the failing one marked, and a head that runs along."""
    cell = layout.cell
    slot = layout.span / track.slots
    gap = min(0.07 * cell, 0.3 * slot)
    thick = 0.13 * cell
    segments = track.steps + track.extra
    parts = []
    for t in range(segments):
        failing = track.failed and t == segments - 1
        look = (
            f'fill="{MARK}" stroke="{INK}" stroke-width="{_number(0.025 * cell)}"'
            if failing
            else f'class="segment" fill="{SEGMENT}"'
        )
        x = (layout.width - layout.span) / 2 + t * slot + gap / 2
        parts.append(_rectangle(x, layout.timeline - thick / 2, slot - gap, thick, thick / 2, look))
    x, y = _playhead(track, layout, track.steps)
    parts.append(
        f'<g class="playhead" transform="translate({_number(x)} {_number(y)})">'
        f'<circle class="ink" r="{_number(0.11 * cell)}" fill="{INK}"/></g>'
    )
    return "<g>" + "".join(parts) + "</g>"


def _playhead(track: Motion, layout: _Layout, moment: int) -> tuple[float, float]:
    left = (layout.width - layout.span) / 2
    return left + track.playhead(moment) * layout.span / track.slots, layout.timeline


def _rectangle(
    x: float, y: float, width: float, height: float, radius: float, attributes: str
) -> str:
    return (
        f'<rect x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" '
        f'height="{_number(height)}" rx="{_number(radius)}" {attributes}/>'
    )


def _text(x: float, y: float, size: float, words: str, attributes: str) -> str:
    return (
        f'<text x="{_number(x)}" y="{_number(y)}" font-size="{_number(size)}" '
        f"{attributes}>{escape(words)}</text>"
    )
