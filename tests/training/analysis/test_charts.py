"""Charts show their data as complete, safe and reproducible SVG."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from training.analysis.pages.charts import (
    Curve,
    Series,
    Tiles,
    bar_chart,
    interval_chart,
    line_chart,
    rate_chart,
    running_mean,
    tile_chart,
)

SVG = "{http://www.w3.org/2000/svg}"
ATTACK = "a<b>&\"'$x$"
LABELS = {"x_label": "x", "heading": "y"}
SERIES = [Series(f"s{n}", [(0.1 * n, 0.1 * n, 0.1 * n)] * 2, n) for n in range(5)]
CHARTS = {
    "line": line_chart(ATTACK, [Curve(ATTACK, [1, 2], [0.1, 0.2])], **LABELS),
    "log": line_chart(ATTACK, [Curve(ATTACK, [1, 2], [1e-5, 0.0])], **LABELS, log_scale=True),
    "rate": rate_chart(ATTACK, [Series(ATTACK, [(0.1, 0.0, 0.2)])], ["1"], **LABELS),
    "bar": bar_chart(ATTACK, [(ATTACK, {"a": 0.5}, "end")], {"a": 1}, x_label="x", percent=True),
    "interval": interval_chart(ATTACK, {ATTACK: ((1.0, -1.0, 3.0), 0)}, x_label="x"),
    "tile": tile_chart(ATTACK, [Tiles(ATTACK, ["a"], ["b", "c"], [[0.25, float("nan")]])]),
}


def read_texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", CHARTS)
def test_chart_escapes_names_and_uses_page_colours(name: str):
    svg = CHARTS[name] or ""
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == ATTACK
    assert any(ATTACK in text for text in read_texts(svg))
    assert "<style" not in svg
    if name != "tile":  # tiles keep their colours in dark mode
        assert not re.search("#[0-9a-f]{6}", svg)


@pytest.mark.parametrize(("value", "num_pieces"), [(3.0, 1), (float("nan"), 2), (None, 2)])
def test_missing_values_split_the_curve(value: float | None, num_pieces: int):
    y = [1.0, 2.0, value, 2.0, 1.0]
    svg = line_chart("t", [Curve("a", range(1, 6), y)], **LABELS) or ""
    path, *_ = (
        path_data
        for path_data, style in re.findall(r'<path d="([^"]*)"[^>]*style="([^"]*)"', svg)
        if "stroke-width: 2.25" in style
    )
    assert path.count("M") == num_pieces


def test_chart_of_no_data_is_empty():
    assert line_chart("t", [Curve("a", [1.0], [None])], **LABELS) is None
    assert rate_chart("t", [Series("a", [None])], ["1"], **LABELS) is None
    assert bar_chart("t", [], {}, x_label="x") is None
    assert interval_chart("t", {}, x_label="x") is None
    assert tile_chart("t", []) is None


def test_series_differ_in_shape_and_colour():
    svg = rate_chart("t", SERIES, ["start", "end"], **LABELS) or ""
    mark_pattern = r'<use href="(#m\w+)"[^>]*style="fill: (var\(--c\d\)); stroke: var\(--card\)'
    marks = set(re.findall(mark_pattern, svg))
    assert len({shape for shape, _ in marks}) == len({colour for _, colour in marks}) == 5


def test_running_mean_of_a_line_keeps_middle_and_gaps():
    line = 2.0 * np.arange(60)
    np.testing.assert_allclose(running_mean(line)[5:-5], line[5:-5])
    line[30] = np.nan
    assert np.flatnonzero(np.isnan(running_mean(line))).tolist() == [30]
    short_line = np.array([1.0, 5.0, 2.0])
    assert running_mean(short_line) is short_line
