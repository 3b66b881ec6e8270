"""The feasibility map as a picture: a tile for every row, with its numbers."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

import pytest

from jaxlake.generator import FeasibilityRow
from jaxlake.render.feasibility_map import feasibility_figure
from tests.training.analysis.pictures import SVG, words_inside


def feasibility_row(size: int, hole_ratio: float, wait_ratio: float, **fields) -> FeasibilityRow:
    acceptance = fields.setdefault("acceptance", 0.9 * (1 - hole_ratio) / (1 + 40 * wait_ratio))
    fields = {"num_agents": 2, "boards": 1000, "candidates": 256, "problem": None} | fields
    return FeasibilityRow(
        size=size,
        hole_ratio=hole_ratio,
        wait_ratio=wait_ratio,
        holes=round(hole_ratio * size**2),
        **{"optimal": 200, "unsolvable": 56, "unknown": 0},
        **{"wait_share": 0.1, "wait_share_low": 0.05, "wait_share_high": 0.15},
        acceptance_low=0.9 * acceptance,
        acceptance_high=min(1.0, 1.1 * acceptance),
        **fields,
    )


def test_feasibility_figure_has_a_tile_with_its_numbers_for_every_row():
    grid = itertools.product((2, 3), (0.0, 0.1, 0.2), (0.0, 0.5))
    rows = [feasibility_row(*kind) for kind in grid if kind != (2, 0.2, 0.5)]
    rows.append(feasibility_row(2, 0.2, 0.5, acceptance=0.0, candidates=0, problem="<full>"))
    rows[0] = feasibility_row(2, 0.0, 0.0, acceptance=0.0, problem="no board needs a wait")
    svg = feasibility_figure(rows)
    picture = ElementTree.fromstring(svg)
    told = [group.findtext(f"{SVG}title") for group in picture.iter(f"{SVG}g")]
    told = [text for text in told if text is not None]
    assert len(told) == len(rows)
    for row in rows:
        name = f"2 agents, {row.size}x{row.size}, {row.holes} holes"
        wanted = row.problem or f"{100 * row.acceptance:.3g}% ["
        assert any(text.startswith(name) and wanted in text for text in told)
    words = words_inside(svg)
    assert (words.count("\u00d7"), words.count("\u2013")) == (1, 1)
    assert any("none of 256 candidates was of a kind it needs" in word for word in words)
    assert not re.search(r"<script|<image|https?://(?!www.w3.org)", svg)
    assert svg == feasibility_figure(rows)
    with pytest.raises(ValueError, match="rows: got none"):
        feasibility_figure([])
    few = [feasibility_row(12, 0.1, 0.5), feasibility_row(3, 0.2, 0.5)]
    assert words_inside(feasibility_figure(few))
