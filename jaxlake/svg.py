"""An episode as a picture: a still board, or an animated one when a plan is given.

The picture is one SVG element that holds everything it needs: no script, no font, no link, and no
`id` attribute, so any number of pictures can stand in one page. The animation is CSS keyframes with
names derived from the content. Readers who ask for reduced motion see the last frame and every
agent's path.

Colours are from Okabe and Ito, Color Universal Design (2008); agents are told apart by number too.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from numpy.typing import NDArray

from jaxlake.dynamics import ACTION_DELTAS, Action
from jaxlake.text import parse_grid
from jaxlake.verify import Failure

FAILURES: Final = tuple(failure.label for failure in Failure if failure is not Failure.NONE)

# (disc, number on the disc) of agents 0..4: each pair has a contrast of at least 4.5.
_AGENT_COLOURS: Final = (
    ("#0072B2", "#ffffff"),
    ("#D55E00", "#10151a"),
    ("#009E73", "#10151a"),
    ("#CC79A7", "#10151a"),
    ("#E69F00", "#10151a"),
)
_MARK: Final = "#F0E442"
_MARK_INK: Final = "#10151a"

# Lengths in cells.
_MARGIN: Final = 0.8
_MIN_WIDTH: Final = 5.6
_MIN_TIMELINE: Final = 4.0
_DISC: Final = 0.3
_TIMELINE_HEIGHT: Final = 0.42
_CAPTION_HEIGHT: Final = 0.62

# Times in steps: a breath before the first one, the share of it that is motion, the last pause.
_LEAD_IN: Final = 1.0
_MOTION: Final = 0.72
_PAUSE: Final = 3.0
_FADE: Final = 0.35

# How far into the failing step the agents come: they touch, and both numbers stay readable.
_REACH_VERTEX: Final = 0.6
_REACH_SWAP: Final = 0.2
_REACH_OFF_BOARD: Final = 0.66


@dataclass(frozen=True)
class _Board:
    """A parsed grid: `holes` bool (R, C); `starts` and `goals` int64 (K, 2), rows and columns."""

    holes: NDArray[np.bool_]
    starts: NDArray[np.int64]
    goals: NDArray[np.int64]


@dataclass(frozen=True)
class _Track:
    """Where the agents are at each moment.

    `frames` float64 (T + 1, K, 2) in cells; the last frame of a failed plan is the moment of
    contact. `mark` is where the failure happens, (row, column) in cells, or None. `extra` is 1 if
    it happens once the plan has ended, and so has a place of its own on the timeline.
    """

    frames: NDArray[np.float64]
    mark: tuple[float, float] | None
    failed: bool
    extra: int


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
    if not cell > 0 or not seconds_per_step > 0:
        raise ValueError(
            f"cell, seconds_per_step: got {cell}, {seconds_per_step}; both must be positive"
        )
    if failure is not None and failure not in FAILURES:
        raise ValueError(f"failure: got {failure!r}, allowed are None, {', '.join(FAILURES)}")
    board = _parse_board(grid)
    agents = len(board.starts)
    agent = None if failure_agent is None or failure_agent < 0 else int(failure_agent)
    time = None if failure_time is None or failure_time < 0 else int(failure_time)
    if agent is not None and agent >= agents:
        raise ValueError(f"failure_agent: got {agent}, the board has agents 0..{agents - 1}")

    actions = None if plan is None else _parse_plan(plan, agents)
    track = None if actions is None else _follow(board, actions, failure, agent, time)
    caption = _caption(track, failure, agent, time)
    layout = _lay_out(board, track, caption, float(cell))
    moves = None if actions is None else actions.tolist()
    name = "lake-" + _digest(list(grid), moves, failure, agent, time, cell, seconds_per_step)
    return _render(board, track, layout, caption, name, float(seconds_per_step))


def _parse_board(grid: Sequence[str]) -> _Board:
    size = max(len(grid), 1)
    instance = parse_grid(grid, max_size=size, max_agents=len(_AGENT_COLOURS))
    present = np.asarray(instance.agent_mask)
    return _Board(
        np.asarray(instance.holes),
        np.asarray(instance.starts)[present].astype(np.int64),
        np.asarray(instance.goals)[present].astype(np.int64),
    )


def _parse_plan(plan: Sequence[Sequence[str | int]], agents: int) -> NDArray[np.int64]:
    """Actions as numbers, int64 (T, K), shorter plans filled up with WAIT."""
    if len(plan) != agents:
        raise ValueError(f"plan: got {len(plan)} agents, the board has {agents}")
    actions = np.full((max(map(len, plan)), agents), Action.WAIT, dtype=np.int64)
    for k, moves in enumerate(plan):
        for t, move in enumerate(moves):
            try:
                actions[t, k] = Action[move] if isinstance(move, str) else Action(move)
            except (KeyError, ValueError):
                allowed = ", ".join(f"{action.name} ({action.value})" for action in Action)
                raise ValueError(
                    f"plan of agent {k}, step {t}: got {move!r}, allowed are {allowed}"
                ) from None
    return actions


def _follow(
    board: _Board,
    actions: NDArray[np.int64],
    failure: str | None,
    agent: int | None,
    time: int | None,
) -> _Track:
    """Play the plan up to the failure; the rules are the verifier's, this only moves discs."""
    length = len(actions)
    breaks = failure not in (None, "parse_error", "goal_not_reached") and time is not None
    if breaks and time is not None:
        if time >= length:
            raise ValueError(
                f"failure_time: got {time}, the plan has {length} steps, counted from 0"
            )
        length = time + 1
    steps = ACTION_DELTAS[actions[:length]]
    exact = np.concatenate([board.starts[None], board.starts + np.cumsum(steps, axis=0)])
    frames = exact.astype(np.float64)
    if failure == "goal_not_reached":
        mark = None if agent is None else _corner(frames[-1, agent])
        return _Track(frames, mark, failed=True, extra=1)
    if not breaks or agent is None:
        return _Track(frames, None, failed=failure is not None, extra=0)

    before, after = exact[-2], exact[-1]
    if failure == "off_board":
        outside = ((after < 0) | (after >= np.array(board.holes.shape))).any(axis=1)
        _shorten(frames, outside, _REACH_OFF_BOARD)
    elif failure == "vertex_conflict":
        met = (after == after[agent]).all(axis=1)
        _shorten(frames, met, _REACH_VERTEX)
        return _Track(frames, _beside(frames[-1, met]), failed=True, extra=0)
    elif failure == "swapping_conflict":
        partner = (after == before[agent]).all(axis=1) & (before == after[agent]).all(axis=1)
        partner[agent] = True
        _shorten(frames, partner, _REACH_SWAP)
        return _Track(frames, _beside(frames[-1, partner]), failed=True, extra=0)
    return _Track(frames, _corner(frames[-1, agent]), failed=True, extra=0)


def _shorten(frames: NDArray[np.float64], who: NDArray[np.bool_], reach: float) -> None:
    frames[-1, who] = frames[-2, who] + reach * (frames[-1, who] - frames[-2, who])


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


def _caption(
    track: _Track | None, failure: str | None, agent: int | None, time: int | None
) -> str | None:
    if failure is not None:
        words = [failure.replace("_", " ")]
        if failure == "goal_not_reached" and agent is not None:
            words.append(f"agent {agent}")
        elif time is not None:
            words.append(f"step {time}")
        return " · ".join(words)
    if track is None:
        return None
    steps = len(track.frames) - 1
    return f"{steps} step{'' if steps == 1 else 's'}"


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

    def x(self, column: float) -> float:
        return self.left + (column + 0.5) * self.cell

    def y(self, row: float) -> float:
        return self.top + (row + 0.5) * self.cell


def _lay_out(board: _Board, track: _Track | None, caption: str | None, cell: float) -> _Layout:
    rows, columns = board.holes.shape
    width = max(columns + 2 * _MARGIN, _MIN_WIDTH)
    timeline = rows + 2 * _MARGIN
    baseline = timeline + (0 if track is None else _TIMELINE_HEIGHT)
    height = baseline + (0 if caption is None else _CAPTION_HEIGHT)
    return _Layout(
        cell=cell,
        width=width * cell,
        height=height * cell,
        span=max(columns, _MIN_TIMELINE) * cell,
        left=(width - columns) / 2 * cell,
        top=_MARGIN * cell,
        timeline=(timeline + 0.05) * cell,
        baseline=(baseline + 0.3) * cell,
    )


def _render(
    board: _Board,
    track: _Track | None,
    layout: _Layout,
    caption: str | None,
    name: str,
    seconds_per_step: float,
) -> str:
    rows, columns = board.holes.shape
    agents = len(board.starts)
    title = f"{agents} agent{'' if agents == 1 else 's'} on a {rows} by {columns} board"
    if caption is not None:
        title += f": {caption}"
    width, height = _number(layout.width), _number(layout.height)
    failed = track is None or track.failed
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lake {name}" role="img" '
        f'aria-label={quoteattr(title)} width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" text-anchor="middle" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif\">",
        f"<style>{_style(track, layout, name, seconds_per_step)}</style>",
        _ice(board, layout),
    ]
    if track is not None:
        parts.append(_trails(track, layout))
    parts += [_goals_and_starts(board, layout), _agents(board, track, layout)]
    if track is not None:
        parts.append(_timeline(track, layout))
    if caption is not None:
        parts.append(_caption_line(caption, failed, layout))
    parts.append("</svg>")
    return "".join(parts)


def _style(track: _Track | None, layout: _Layout, name: str, seconds_per_step: float) -> str:
    """Dark colours, and the animation; every selector is scoped to this picture."""
    dark = {
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
    if track is not None and len(track.frames) > 1:
        motion = _animations(track, layout, name, seconds_per_step)
        css += f"@media screen and (prefers-reduced-motion:no-preference){{{motion}}}"
    return css


def _animations(track: _Track, layout: _Layout, name: str, seconds_per_step: float) -> str:
    steps = len(track.frames) - 1
    cycle = _LEAD_IN + steps + _PAUSE

    def percent(moment: float) -> str:
        return f"{100 * moment / cycle:.3f}%"

    def path(points: list[tuple[float, float]]) -> str:
        """Keyframes through one point a moment; a point that is waited at costs nothing."""
        stops = [("0%", points[0])]
        for t, (here, there) in enumerate(pairwise(points)):
            if here != there:
                stops.append((percent(_LEAD_IN + t), here))
                stops.append((percent(_LEAD_IN + t + _MOTION), there))
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
    if track.mark is not None:
        struck = percent(_LEAD_IN + steps - 1 + _MOTION)
        shown = percent(_LEAD_IN + steps)
        rules.append(
            rule("mark", f"0%,{struck}{{opacity:0}}{shown},100%{{opacity:1}}", "ease-in-out")
        )
    fade = f"0%,100%{{opacity:0}}{percent(_FADE)},{percent(cycle - _FADE)}{{opacity:1}}"
    rules.append(rule("cast", fade, "linear"))
    return "".join(rules)


def _ice(board: _Board, layout: _Layout) -> str:
    rows, columns = board.holes.shape
    cell = layout.cell
    rim, gap = 0.12 * cell, 0.035 * cell
    parts = [
        _rectangle(
            layout.left - rim,
            layout.top - rim,
            columns * cell + 2 * rim,
            rows * cell + 2 * rim,
            0.2 * cell,
            'class="ground" fill="#c3d6e4"',
        )
    ]
    for r in range(rows):
        for c in range(columns):
            side = cell - 2 * gap
            x, y = layout.left + c * cell + gap, layout.top + r * cell + gap
            look = (
                'class="hole" fill="#16222d"' if board.holes[r, c] else 'class="ice" fill="#eef5fa"'
            )
            parts.append(_rectangle(x, y, side, side, 0.13 * cell, look))
            if board.holes[r, c]:
                inset = 0.17 * cell
                line = _number(0.03 * cell)
                look = f'class="pit" fill="none" stroke="#45596a" stroke-width="{line}"'
                parts.append(
                    _rectangle(
                        x + inset, y + inset, side - 2 * inset, side - 2 * inset, 0.09 * cell, look
                    )
                )
    size = 0.26 * cell
    for c in range(columns):
        parts.append(
            _text(
                layout.x(c), layout.top - 0.27 * cell, size, str(c), 'class="quiet" fill="#6a7885"'
            )
        )
    for r in range(rows):
        x, y = layout.left - 0.38 * cell, layout.y(r) + 0.35 * size
        parts.append(_text(x, y, size, str(r), 'class="quiet" fill="#6a7885"'))
    return "<g>" + "".join(parts) + "</g>"


def _goals_and_starts(board: _Board, layout: _Layout) -> str:
    cell = layout.cell
    parts = []
    for k, ((start_row, start_column), (goal_row, goal_column)) in enumerate(
        zip(board.starts.tolist(), board.goals.tolist(), strict=True)
    ):
        colour = _AGENT_COLOURS[k][0]
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
        ink = 'class="ink" fill="#10151a" font-weight="600"'
        parts.append(_text(x, y + 0.12 * cell, 0.34 * cell, str(k), ink))
        x, y = layout.x(start_column), layout.y(start_row)
        parts.append(
            f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(0.36 * cell)}" fill="none" '
            f'stroke="{colour}" stroke-width="{_number(0.05 * cell)}" '
            f'stroke-dasharray="{_number(0.1 * cell)} {_number(0.088 * cell)}"/>'
        )
        parts.append(_text(x, y + 0.1 * cell, 0.28 * cell, str(k), 'class="quiet" fill="#6a7885"'))
    return "<g>" + "".join(parts) + "</g>"


def _trails(track: _Track, layout: _Layout) -> str:
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
                f'stroke="{_AGENT_COLOURS[k][0]}" '
                f'stroke-width="{_number(0.07 * layout.cell)}" stroke-opacity="0.5" '
                'stroke-linecap="round" stroke-linejoin="round"/>'
            )
    return "<g>" + "".join(parts) + "</g>"


def _agents(board: _Board, track: _Track | None, layout: _Layout) -> str:
    cell = layout.cell
    last = board.starts if track is None else track.frames[-1]
    parts = []
    for k, (row, column) in enumerate(last.tolist()):
        disc, ink = _AGENT_COLOURS[k]
        parts.append(
            f'<g class="agent-{k}" '
            f'transform="translate({_number(layout.x(column))} {_number(layout.y(row))})">'
            f'<circle class="disc" r="{_number(_DISC * cell)}" fill="{disc}" stroke="#ffffff" '
            f'stroke-width="{_number(0.05 * cell)}"/>'
            + _text(0, 0.125 * cell, 0.36 * cell, str(k), f'fill="{ink}" font-weight="700"')
            + "</g>"
        )
    if track is not None and track.mark is not None:
        row, column = track.mark
        badge = _cross(layout.x(column), layout.y(row), 0.19 * cell)
        parts.append(f'<g class="mark">{badge}</g>')
    return '<g class="cast">' + "".join(parts) + "</g>"


def _cross(x: float, y: float, radius: float) -> str:
    """The mark of a failure: a cross on a disc in the one colour no agent has."""
    arm = 0.42 * radius
    a, b, c, d = (_number(v) for v in (x - arm, y - arm, x + arm, y + arm))
    return (
        f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}" fill="{_MARK}" '
        f'stroke="{_MARK_INK}" stroke-width="{_number(0.16 * radius)}"/>'
        f'<path d="M{a} {b}L{c} {d}M{a} {d}L{c} {b}" stroke="{_MARK_INK}" '
        f'stroke-width="{_number(0.3 * radius)}" stroke-linecap="round"/>'
    )


def _timeline(track: _Track, layout: _Layout) -> str:
    """One segment a step, the failing one marked, and a head that runs along."""
    cell = layout.cell
    steps = len(track.frames) - 1
    slot = _slot(track, layout)
    gap = min(0.07 * cell, 0.3 * slot)
    thick = 0.13 * cell
    parts = []
    for t in range(steps + track.extra):
        failing = track.failed and t == steps + track.extra - 1
        look = (
            f'fill="{_MARK}" stroke="{_MARK_INK}" stroke-width="{_number(0.025 * cell)}"'
            if failing
            else 'class="segment" fill="#c8d3dc"'
        )
        x = _slots_start(layout) + t * slot + gap / 2
        parts.append(_rectangle(x, layout.timeline - thick / 2, slot - gap, thick, thick / 2, look))
    x, y = _playhead(track, layout, steps)
    parts.append(
        f'<g class="playhead" transform="translate({_number(x)} {_number(y)})">'
        f'<circle class="ink" r="{_number(0.11 * cell)}" fill="#10151a"/></g>'
    )
    return "<g>" + "".join(parts) + "</g>"


def _slots_start(layout: _Layout) -> float:
    return (layout.width - layout.span) / 2


def _slot(track: _Track, layout: _Layout) -> float:
    """Width of one step on the timeline."""
    return layout.span / max(len(track.frames) - 1 + track.extra, 1)


def _playhead(track: _Track, layout: _Layout, moment: int) -> tuple[float, float]:
    """Where the head stands at a moment 0..T; a failing step is never completed."""
    steps = len(track.frames) - 1
    cut = 0.5 if track.failed and not track.extra and moment == steps > 0 else 0.0
    return _slots_start(layout) + (moment - cut) * _slot(track, layout), layout.timeline


def _caption_line(caption: str, failed: bool, layout: _Layout) -> str:
    size = 0.33 * layout.cell
    weight = 600 if failed else 400
    look = f'class="ink" fill="#10151a" font-weight="{weight}"'
    return _text(layout.width / 2, layout.baseline, size, caption, look)


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
