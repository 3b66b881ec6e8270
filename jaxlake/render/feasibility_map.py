"""The feasibility map of the generator as a picture: tables of coloured tiles, in one SVG file."""

import math
from collections.abc import Sequence
from itertools import product
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from jaxlake.generator import FeasibilityRow
from jaxlake.render.palette import INK, PAPER

_CIVIDIS = ("#00224e", "#1a386f", "#434e6c", "#61656f", "#7d7c78", "#9b9476", "#bcae6c", "#dec958")
_DARK_TO_LIGHT = (*_CIVIDIS, "#fee838")
"""Equal steps of the colour map by Nuñez, Anderton and Renslow (PLOS ONE 13, 2018)."""

_EMPTY = "#e9eef2"
_INFEASIBLE, _UNSEEN = "\u00d7", "\u2013"
_LEAST_SHARE = 1e-3  # the darkest colour
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"

# In pixels.
_TILE_WIDTH, _TILE_HEIGHT, _MARGIN = 42, 26, 24
_LETTER = 6.4
_TOP, _BOTTOM, _LEAST_WIDTH = 74, 50, 660


def feasibility_figure(rows: Sequence[FeasibilityRow]) -> str:
    """Draw a feasibility map: tables by number of agents and wait ratio.

    The colour and the number of a tile are the acceptance rate in per cent of the candidates, on a
    logarithmic scale. A cross marks boards on which starts and goals do not fit; a dash marks sets
    that need a kind of board which was not among the candidates. Equal rows give equal text.

    Raises:
        ValueError: there are no rows.
    """
    if not rows:
        raise ValueError("rows: got none, at least one is needed")
    agents = sorted({row.num_agents for row in rows})
    waits = sorted({row.wait_ratio for row in rows})
    tables = [
        [row for row in rows if (row.num_agents, row.wait_ratio) == kind]
        for kind in ((one, share) for share, one in product(waits, agents))
    ]
    left = _LETTER * max(len(_size_name(row)) for row in rows) + 10
    across = left + _TILE_WIDTH * max(map(_columns, tables)) + _MARGIN
    down = 38 + _TILE_HEIGHT * max(len({row.size for row in table}) for table in tables) + _MARGIN
    width = max(_LEAST_WIDTH, _MARGIN + len(agents) * across)
    height = _TOP + len(waits) * down + _BOTTOM
    body = [
        f'<rect width="{width:g}" height="{height:g}" fill="{PAPER}"/>',
        _text(_MARGIN, 32, "Which boards can be made, and how easily", 'font-size="18"', bold=True),
        _text(
            _MARGIN,
            52,
            "per cent of random candidates that a large set can use, by map size and hole ratio",
        ),
    ]
    for number, table in enumerate(tables):
        row, column = divmod(number, len(agents))
        body += _table(table, _MARGIN + column * across, _TOP + row * down, left)
    body += _key(height - 46, max(row.candidates for row in rows))
    title = "Feasibility map of the lake's generator"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={quoteattr(title)} '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'font-family="{_FONT}" font-size="11" fill="{INK}"><title>{escape(title)}</title>'
        f"{''.join(body)}</svg>"
    )


def _table(rows: Sequence[FeasibilityRow], x: float, y: float, left: float) -> list[str]:
    """Draw one table with its upper left corner at a place; names take `left` pixels."""
    sizes = sorted({row.size for row in rows})
    holes = sorted({row.hole_ratio for row in rows})
    words = f"{rows[0].num_agents} agents, {100 * rows[0].wait_ratio:g}% waits"
    drawn = [_text(x, y + 12, words, bold=True)]
    for column, ratio in enumerate(holes):
        middle = x + left + (column + 0.5) * _TILE_WIDTH
        drawn.append(_text(middle, y + 32, f"{100 * ratio:g}%", 'text-anchor="middle"'))
    for row in rows:
        top = y + 38 + sizes.index(row.size) * _TILE_HEIGHT
        if row.hole_ratio == holes[0]:
            baseline = top + _TILE_HEIGHT / 2 + 4
            drawn.append(_text(x + left - 7, baseline, _size_name(row), 'text-anchor="end"'))
        words, share, about = _told(row)
        across = x + left + holes.index(row.hole_ratio) * _TILE_WIDTH
        drawn.append(f"<g><title>{escape(about)}</title>{_tile(across, top, words, share)}</g>")
    return drawn


def _told(row: FeasibilityRow) -> tuple[str, float | None, str]:
    """Return a tile's words, its share (None: it has none) and what a pointer is told."""
    about = f"{row.num_agents} agents, {row.size}x{row.size}, {row.holes} holes: "
    if row.problem or not row.candidates:
        mark = _UNSEEN if row.candidates else _INFEASIBLE
        return mark, None, about + (row.problem or "infeasible")
    shares = (row.acceptance, row.acceptance_low, row.acceptance_high)
    value, low, high = (100 * share for share in shares)
    words = f"{value:.{0 if value >= 10 else 1 if value >= 1 else 2}f}"
    about += f"{value:.3g}% [{low:.3g}, {high:.3g}] of {row.candidates} candidates"
    return words, row.acceptance, about


def _key(y: float, candidates: int) -> list[str]:
    """Say what the colours and the marks mean."""
    shares = {0.001: "\u22640.1%", 0.01: "1%", 0.1: "10%", 1.0: "100%"}
    none = f"none of {candidates:,} candidates was of a kind it needs"
    return [
        *(
            _tile(_MARGIN + number * _TILE_WIDTH, y, words, share)
            for number, (share, words) in enumerate(shares.items())
        ),
        _text(208, y + 6, f"{_INFEASIBLE}   starts and goals do not fit"),
        _text(208, y + 26, f"{_UNSEEN}   {none}"),
    ]


def _tile(x: float, y: float, words: str, share: float | None) -> str:
    colour = _EMPTY if share is None else _colour(share)
    linear = np.power([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)], 2.2)
    luminance = linear @ [0.2126, 0.7152, 0.0722]  # as in WCAG 2.1
    ink = INK if luminance > 0.19 else PAPER  # whichever has more contrast
    middle, baseline = x + _TILE_WIDTH / 2, y + _TILE_HEIGHT / 2 + 4
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{_TILE_WIDTH}" height="{_TILE_HEIGHT}" fill="{colour}" '
        f'stroke="{PAPER}"/>' + _text(middle, baseline, words, f'text-anchor="middle" fill="{ink}"')
    )


def _colour(share: float) -> str:
    """The colour of a share, which lies between 0.001 and 1 on a logarithmic scale."""
    place = 1 - math.log(min(max(share, _LEAST_SHARE), 1.0)) / math.log(_LEAST_SHARE)
    steps = place * (len(_DARK_TO_LIGHT) - 1)
    first = min(int(steps), len(_DARK_TO_LIGHT) - 2)
    ends = _DARK_TO_LIGHT[first], _DARK_TO_LIGHT[first + 1]
    low, high = (np.array([int(one[i : i + 2], 16) for i in (1, 3, 5)]) for one in ends)
    return "#" + "".join(f"{round(part):02x}" for part in low + (steps - first) * (high - low))


def _text(x: float, y: float, words: str, attributes: str = "", *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}"{weight} {attributes}>{escape(words)}</text>'


def _size_name(row: FeasibilityRow) -> str:
    return f"{row.size}\u00d7{row.size}"


def _columns(rows: Sequence[FeasibilityRow]) -> int:
    return len({row.hole_ratio for row in rows})
