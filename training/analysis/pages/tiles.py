"""Tables of tiles that are coloured by their values, with marks on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.patches import Rectangle

from jaxlake.render.palette import INK, PAPER
from training.analysis.pages.chart_drawing import (
    COLOURS,
    EMPTY,
    LIGHT_TO_DARK,
    MARGIN,
    PAGE_TYPE,
    Canvas,
    width_of,
    write,
)
from training.analysis.pages.chart_markup import TOOLTIP

_BLUES = LinearSegmentedColormap.from_list("blues", LIGHT_TO_DARK)


@dataclass(frozen=True)
class Tile:
    """One entry of a table that is coloured by its values."""

    words: str = ""
    shade: float | None = None  # from 0 (light) to 1 (dark); None: it has no value and is grey
    about: str = ""  # what a browser shows while the pointer rests on it


@dataclass(frozen=True)
class Mark:
    """A mark on a table: its place in tiles from the upper left corner, as floats."""

    x: float
    y: float
    filled: bool = True  # a diamond; otherwise a ring
    about: str = ""  # what a browser shows while the pointer rests on it


@dataclass(frozen=True)
class TileTable:
    """A table of tiles by row and column, with its title and the names of both."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    tiles: Sequence[Sequence[Tile]]
    marks: Sequence[Mark] = ()


TILE_WIDTH, TILE_HEIGHT = 42, 22


@dataclass(frozen=True)
class TileStyle:
    """How the tiles of a table look."""

    width: float = TILE_WIDTH
    height: float = TILE_HEIGHT
    lift: float = 0.0  # how far words stand from the middle, where there may be a mark
    inks: tuple[str, str] = (INK, PAPER)  # on light tiles and on dark ones
    margin: float = MARGIN  # around each table
    scale: float = 1.0  # of the type, beside that of a file
    most: float = math.inf  # of a table's whole width: tiles get narrower, and long names upright


FILE_TILES = TileStyle()
# The inks are not those of the page, which change with its mode: tiles don't.
PAGE_TILES = TileStyle(62, 46, 14, ("#11161b", "#fefefe"), 4, PAGE_TYPE, 380)
SMALL_PAGE_TILES = replace(PAGE_TILES, height=28, lift=0.0)


def draw_tables(
    tables: Sequence[TileTable],
    across: int,
    top: float,
    bottom: float,
    least: float,
    style: TileStyle = FILE_TILES,
) -> Canvas:
    """Draw tables on a canvas at least `least` wide, with room above and below them."""
    margin = style.margin
    left = style.scale * max(width_of(name) for table in tables for name in table.rows) + 10
    columns = max(len(table.columns) for table in tables)
    style = replace(style, width=min(style.width, (style.most - 2 * margin - left) / columns))
    longest = style.scale * max(width_of(name) for table in tables for name in table.columns)
    upright, slanted = _turned(longest, style)
    above = 24.0 if any(table.title for table in tables) else 8.0
    above += longest + 12 if upright else 0.65 * longest if slanted else 14
    wide, tall = columns * style.width, max(len(table.rows) for table in tables) * style.height
    # From table to table, across and down.
    column = left + wide + (0.8 * longest - 20 if slanted else 0) + margin
    row = above + tall + MARGIN
    width = max(least, margin + min(across, len(tables)) * column)
    canvas = Canvas(width, top + math.ceil(len(tables) / across) * row + bottom)
    for number, table in enumerate(tables):
        x, y = margin + number % across * column, top + number // across * row
        canvas.text(x, y + 12, table.title, weight="bold")
        wide, tall = len(table.columns) * style.width, len(table.rows) * style.height
        _draw_tiles(canvas.axes(x + left, y + above, wide, tall), table, style, longest)
    return canvas


def _turned(longest: float, style: TileStyle) -> tuple[bool, bool]:
    """Whether names of columns, the longest so many pixels, stand upright, or are slanted."""
    too_long = longest > style.width
    return too_long and style.most < math.inf, too_long and style.most == math.inf


def _draw_tiles(axes: Axes, table: TileTable, style: TileStyle, longest: float) -> None:
    """Fill axes with the tiles of a table; names stand to the left of it and above it."""
    axes.set(xlim=(0, len(table.columns)), ylim=(len(table.rows), 0))
    axes.axis("off")
    upright, slanted = _turned(longest, style)
    turn: dict[str, Any] = {"ha": "left" if upright or slanted else "center"}
    turn["rotation"] = 90 if upright else 40 if slanted else 0
    for x, name in enumerate(table.columns):
        write(axes, name, (x + 0.5, 0), (4 * upright, 6), rotation_mode="anchor", **turn)
    for y, row in enumerate(table.tiles):
        write(axes, table.rows[y], (0, y + 0.5), (-7, -4), ha="right")
        for x, tile in enumerate(row):
            colour = EMPTY if tile.shade is None else _BLUES(min(max(tile.shade, 0.0), 1.0))
            patch = Rectangle((x, y), 1, 1, facecolor=colour, clip_on=False)
            patch.set_gid(TOOLTIP + tile.about if tile.about else None)
            axes.add_patch(patch)
            luminance = np.power(to_rgb(colour), 2.2) @ [0.2126, 0.7152, 0.0722]  # as in WCAG 2.1
            ink = style.inks[0 if luminance > 0.19 else 1]  # whichever has more contrast
            # Marks lie between the middles of the first row and of the last one.
            last = y > 0 and y + 1 == len(table.tiles)
            place = (0, (-style.lift if last else style.lift) - 4)
            write(axes, tile.words, (x + 0.5, y + 0.5), place, ha="center", color=ink)
    for mark in table.marks:
        look: dict[str, Any] = {"marker": "D", "markersize": 7, "color": COLOURS[3]}
        if not mark.filled:
            look |= {"marker": "o", "markersize": 9, "markerfacecolor": "none"}
            look |= {"markeredgecolor": COLOURS[3], "markeredgewidth": 2}
        [drawn] = axes.plot([mark.x], [mark.y], clip_on=False, **look)
        drawn.set_gid(TOOLTIP + mark.about if mark.about else None)
