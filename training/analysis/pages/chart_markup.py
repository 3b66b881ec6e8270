"""From matplotlib's SVG to the markup of a page: attributes for styles, values for tooltips."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

TOOLTIP = "tooltip:"
"""Begins the id of a patch; the rest of the id is what its tooltip says."""

MOST_STOPS = 100
"""Places of a line chart at which its values are told, evenly spread: two pixels apart or more."""

MATPLOTLIB_DEFAULTS = 'stroke-linejoin="round" stroke-linecap="butt"'
"""Attributes that say what matplotlib's own style sheet says of every shape."""


@dataclass(frozen=True)
class Stop:
    """One place of a line chart: what its tooltip says, and where its values are drawn, pixels."""

    words: str
    x: float
    y: tuple[float, ...]


def stops_attribute(stops: Sequence[Stop]) -> str:
    """Return the attribute from which charts.js reads the stops of a line chart; "" for none."""
    if not stops:
        return ""
    rows = [[one.words, round(one.x, 1), [round(y, 1) for y in one.y]] for one in stops]
    text = json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
    return f" data-stops={quoteattr(text)}"


def with_tooltips(svg: str) -> str:
    """Turn ids that begin with `TOOLTIP` into titles, and drop all other ids of groups."""
    svg = re.sub(rf'<g id="{TOOLTIP}([^"]*)">', r"<g><title>\1</title>", svg)
    return re.sub(r'<g id="[^"]*">', "<g>", svg)


def without_styles(svg: str, colours: Mapping[str, str]) -> str:
    """Write styles as presentation attributes, which a policy without inline styles allows.

    Colours are exchanged as `colours` says. Fonts are left to the page. The style sheet that
    matplotlib writes into every picture goes; `MATPLOTLIB_DEFAULTS` stand for it. Texts of the
    picture stay as they are.
    """
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)

    def plain(tag: re.Match[str]) -> str:
        text = re.sub(r' style="([^"]*)"', _attributes, tag[0])
        return re.sub(r"#[0-9a-f]{6}\b", lambda hit: colours.get(hit[0], hit[0]), text)

    return re.sub(r"<[^<>]*>", plain, svg)


def _attributes(style: re.Match[str]) -> str:
    pairs = [part.partition(":") for part in style[1].split(";") if part.strip()]
    return "".join(
        f' {name.strip()}="{value.strip()}"'
        for name, _, value in pairs
        if name.strip() != "font-family"
    )
