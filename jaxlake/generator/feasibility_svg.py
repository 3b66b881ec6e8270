"""The feasibility map as a picture: sizes against holes, a panel for each agents and wait ratio."""

import math
from collections.abc import Iterable, Sequence
from html import escape

from jaxlake.generator.feasibility import FeasibilityRow

_WIDTH, _HEIGHT = 46, 26  # of a cell
_LEFT, _TOP, _GAP = 40, 46, 26  # of a panel: for its labels, and between panels
_MARGIN, _TITLE, _LEGEND = 20, 74, 74
_FONT = "font-family='system-ui, sans-serif'"
_LEAST = 1e-3  # the dark end of the scale

# Five points of a scale from dark blue to yellow whose lightness rises evenly, so that it reads the
# same with any colour vision and in grey.
_SCALE = ((8, 32, 80), (66, 76, 108), (122, 121, 121), (184, 170, 104), (253, 224, 71))
_CROSSED, _GREY, _INK = "#e6e6e6", "#8c8c8c", "#1a1a1a"


def feasibility_svg(rows: Iterable[FeasibilityRow]) -> str:
    """Draw the map: panels by number of agents (across) and by wait ratio (down).

    A cell's colour and its number are the acceptance rate, in per cents of the candidates, on a
    logarithmic scale. Crossed out is what can't be made because starts and goals don't fit; a dash
    marks sets of which a needed kind of board was not seen among the candidates.

    Args:
        rows: of `feasibility_map`.

    Returns:
        An SVG document.

    Raises:
        ValueError: there are no rows.
    """
    table = list(rows)
    if not table:
        raise ValueError("rows: got none, at least one is needed")
    agents = sorted({row.num_agents for row in table})
    waits = sorted({row.wait_ratio for row in table})
    sizes = sorted({row.size for row in table})
    holes = sorted({row.hole_ratio for row in table})
    across = _LEFT + len(holes) * _WIDTH + _GAP
    down = _TOP + len(sizes) * _HEIGHT + _GAP
    width = max(2 * _MARGIN + len(agents) * across - _GAP, 640)
    height = _TITLE + len(waits) * down + _LEGEND

    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
        f"width='{width}' height='{height}' {_FONT} role='img'>",
        "<title>Feasibility map of the lake's generator</title>",
        f"<rect width='{width}' height='{height}' fill='#ffffff'/>",
        _text(_MARGIN, 32, "Which boards can be made, and how easily", size=18, weight=600),
        _text(
            _MARGIN,
            52,
            "per cent of random candidates that a large set can use, by map size and hole ratio",
            size=12,
        ),
    ]
    for j, wait_ratio in enumerate(waits):
        for i, num_agents in enumerate(agents):
            panel = [r for r in table if (r.num_agents, r.wait_ratio) == (num_agents, wait_ratio)]
            x, y = _MARGIN + i * across, _TITLE + j * down
            parts += _panel(panel, x, y, sizes, holes, num_agents, wait_ratio)
    parts += _legend(_MARGIN, height - _LEGEND + 6, max(row.candidates for row in table))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    rows: Sequence[FeasibilityRow],
    x: float,
    y: float,
    sizes: Sequence[int],
    holes: Sequence[float],
    num_agents: int,
    wait_ratio: float,
) -> list[str]:
    title = f"{num_agents} agents, {100 * wait_ratio:g}% of the boards need a wait"
    if len(holes) < 5:
        title = f"{num_agents} agents, {100 * wait_ratio:g}% waits"
    parts = [_text(x, y + 16, title, size=13, weight=600)]
    for j, ratio in enumerate(holes):
        middle = x + _LEFT + (j + 0.5) * _WIDTH
        parts.append(_text(middle, y + _TOP - 8, f"{100 * ratio:g}%", anchor="middle"))
    for i, size in enumerate(sizes):
        middle = y + _TOP + (i + 0.5) * _HEIGHT + 4
        parts.append(_text(x + _LEFT - 7, middle, f"{size}\u00d7{size}", anchor="end"))
    for row in rows:
        left = x + _LEFT + holes.index(row.hole_ratio) * _WIDTH
        top = y + _TOP + sizes.index(row.size) * _HEIGHT
        parts.append(_cell(row, left, top))
    return parts


def _cell(row: FeasibilityRow, x: float, y: float) -> str:
    box = (x + 1, y + 1, _WIDTH - 2, _HEIGHT - 2)
    if not row.candidates:
        body = _crossed(*box)
        about = row.problem or "infeasible"
    elif row.problem:
        body = _dashed(*box)
        about = row.problem
    else:
        colour, light = _colour(row.acceptance)
        ink = _INK if light else "#ffffff"
        label = _percent(row.acceptance)
        body = (
            f"<rect x='{box[0]:g}' y='{box[1]:g}' width='{box[2]}' height='{box[3]}' rx='2' "
            f"fill='{colour}'/>"
        )
        body += _text(x + _WIDTH / 2, y + _HEIGHT / 2 + 4, label, anchor="middle", fill=ink)
        about = (
            f"{100 * row.acceptance:.3g}% [{100 * row.acceptance_low:.3g}, "
            f"{100 * row.acceptance_high:.3g}] of {row.candidates} candidates"
        )
    name = f"{row.num_agents} agents, {row.size}x{row.size}, {row.holes} holes"
    return f"<g><title>{escape(f'{name}: {about}')}</title>{body}</g>"


def _legend(x: float, y: float, candidates: int) -> list[str]:
    steps, width = 48, 240
    parts = []
    for step in range(steps):
        value = _LEAST ** (1 - (step + 0.5) / steps)
        left = x + step * width / steps
        parts.append(
            f"<rect x='{left:.2f}' y='{y}' width='{width / steps + 0.3:.2f}' height='12' "
            f"fill='{_colour(value)[0]}'/>"
        )
    for mark in (0.001, 0.01, 0.1, 1.0):
        place = x + width * (1 - math.log(mark) / math.log(_LEAST))
        label = ("≤ " if mark == _LEAST else "") + f"{100 * mark:g}%"
        anchor = {0.001: "start", 1.0: "end"}.get(mark, "middle")
        parts.append(_text(place, y + 26, label, anchor=anchor))
    left = x + width + 36
    crossed, dashed = _crossed(left, y - 4, 22, 16), _dashed(left, y + 18, 22, 16)
    return [
        *parts,
        crossed,
        _text(left + 30, y + 8, "starts and goals do not fit"),
        dashed,
        _text(left + 30, y + 30, f"none of {candidates:,} candidates was of a kind it needs"),
    ]


def _crossed(x: float, y: float, width: float, height: float) -> str:
    return (
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='2' "
        f"fill='{_CROSSED}'/><path d='M{x:g} {y:g}l{width:g} {height:g}m0 {-height:g}"
        f"l{-width:g} {height:g}' stroke='{_GREY}'/>"
    )


def _dashed(x: float, y: float, width: float, height: float) -> str:
    return (
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='2' fill='#ffffff' "
        f"stroke='{_GREY}' stroke-dasharray='3 2'/>"
        + _text(x + width / 2, y + height / 2 + 4, "\u2013", anchor="middle")
    )


def _colour(value: float) -> tuple[str, bool]:
    """The scale's colour, and whether dark ink reads better on it."""
    place = 1 - math.log(min(max(value, _LEAST), 1.0)) / math.log(_LEAST)
    low = min(int(place * (len(_SCALE) - 1)), len(_SCALE) - 2)
    part = place * (len(_SCALE) - 1) - low
    red, green, blue = (
        round(a + part * (b - a)) for a, b in zip(_SCALE[low], _SCALE[low + 1], strict=True)
    )
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return f"#{red:02x}{green:02x}{blue:02x}", luminance > 125


def _percent(share: float) -> str:
    value = 100 * share
    if value >= 10:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _text(
    x: float,
    y: float,
    content: str,
    *,
    size: int = 11,
    weight: int = 400,
    anchor: str = "start",
    fill: str = _INK,
) -> str:
    return (
        f"<text x='{x:g}' y='{y:g}' font-size='{size}' font-weight='{weight}' "
        f"text-anchor='{anchor}' fill='{fill}'>{escape(content)}</text>"
    )
