"""Charts: what they are given is what they show, as SVG that is whole, safe and the same twice."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

import numpy as np

from tests.training.analysis.pictures import SVG, words_in, words_inside
from training.analysis.pages.chart_drawing import (
    Curve,
    Series,
    running_mean,
    separate,
    short_number,
)
from training.analysis.pages.charts import (
    bar_chart,
    line_chart,
    rate_chart,
    rate_panels,
    tile_chart,
)
from training.analysis.pages.tiles import Mark, Tile, TileTable

BLUE = r"var\(--c0\)"


def test_tile_chart_has_its_tiles_and_marks_where_they_are_told():
    marks = [Mark(0.5, 0.5, about="decided: <here>"), Mark(1.25, 1.0, filled=False)]
    tiles = [[Tile("0.25", 1.0, "dark"), Tile("0.00", 0.0)], [Tile("0.10", 0.4), Tile("-", None)]]
    table = TileTable("3 x 3", ["no waits", "waits"], ["0%", "40%"], tiles, marks)
    svg = tile_chart("a title", [table, table], across=1)
    assert tile_chart("a title", [table, table], across=1) == svg
    assert tile_chart("nothing", [], across=1) is None
    words = words_in(svg)
    assert {"3 x 3", "no waits", "waits", "0%", "40%", "0.25", "0.00", "0.10", "-"} <= set(words)
    picture = ElementTree.fromstring(svg)
    told = [group.findtext(f"{SVG}title") for group in picture.iter(f"{SVG}g")]
    assert told.count("decided: <here>") == told.count("dark") == 2
    # Light tiles stay light in dark mode, so their words must not follow the page's ink.
    (written,) = re.findall(r"<text ([^>]*)>0.00</text>", svg)[:1]
    assert 'fill="#' in written
    assert "var(" not in written


def test_gap_in_the_data_is_a_gap_in_the_curve():
    def moves(y: list[float | None]) -> int:
        chart = line_chart("t", [Curve("a", range(1, 6), y)], x_label="x", y_label="y") or ""
        (path,) = re.findall(
            rf'<path d="([^"]*)"[^>]*stroke="{BLUE}"[^>]*stroke-width="2.25"', chart
        )
        return path.count("M")

    assert moves([1.0, 2.0, 3.0, 2.0, 1.0]) == 1
    assert moves([1.0, 2.0, float("nan"), 2.0, 1.0]) == 2
    assert moves([1.0, 2.0, None, 2.0, 1.0]) == 2
    assert line_chart("t", [Curve("a", [1.0], [None])], x_label="x", y_label="y") is None


def test_running_mean_of_a_straight_line_keeps_its_middle_and_its_gaps():
    line = 2.0 * np.arange(60)
    np.testing.assert_allclose(running_mean(line)[5:-5], line[5:-5])
    line[30] = np.nan
    assert np.flatnonzero(np.isnan(running_mean(line))).tolist() == [30]
    few = np.array([1.0, 5.0, 2.0])
    assert running_mean(few) is few


def test_labels_that_would_overlap_are_moved_apart_and_stay_in_the_picture():
    placed = separate([90.0, 91.0, 99.0], 10.0, 100.0)
    assert all(b - a >= 10.0 for a, b in itertools.pairwise(placed))
    assert max(placed) <= 100.0
    assert separate([10.0, 50.0], 10.0, 100.0) == [10.0, 50.0]


def test_series_differ_in_shape_as_well_as_in_colour():
    series = [Series(f"s{n}", [(0.1 * n, 0.1 * n, 0.1 * n)] * 2, n) for n in range(5)]
    svg = rate_panels("t", [{"a": series}], ["start", "end"])
    marks = set(re.findall(r'<use href="(#m\w+)"[^>]*style="fill: (#\w+); stroke: #ffffff', svg))
    assert len({colour for _, colour in marks}) == 5
    shapes = dict(re.findall(r'<path id="(m\w+)" d="([^"]*)"', svg))
    assert len({shapes[name[1:]] for name, _ in marks}) >= 5
    assert [f"s{n}" for n in range(5)] == [w for w in words_inside(svg) if re.fullmatch(r"s\d", w)]


def test_rates_stand_on_an_axis_that_covers_its_span_within_0_and_100_per_cent():
    series = [Series("a", [(0.31, 0.27, 0.36), (0.4, 0.35, 0.72)])]
    for span, least, most in (((0.27, 0.72), 0.0, 27), ((0.93, 1.0), 50, 93), ((0.0, 0.02), 0, 0)):
        svg = rate_chart("t", series, ["1", "2"], x_label="x", y_label="y", span=span) or ""
        ticks = [float(one[:-1]) for one in words_in(svg) if re.fullmatch(r"[\d.]+%", one)]
        ticks = [one for one in ticks if one not in (31, 40)]  # the last values, beside the curves
        assert len(ticks) >= 3
        assert least <= min(ticks) <= most
        assert 100 * span[1] <= max(ticks) <= 100


def test_names_with_markup_are_text_and_charts_without_values_are_none():
    bars = [("$a^2$ <b>", {"hole": 0.5}, "</svg>")]
    svg = bar_chart("<i>", bars, {"hole": 0}, x_label="x", percent=True) or ""
    assert {"$a^2$ <b>", "</svg>"} <= set(words_in(svg))
    assert "<title>$a^2$ &lt;b&gt;: hole 50%</title>" in svg
    assert bar_chart("t", [], {}, x_label="x") is None
    assert rate_chart("t", [Series("a", [None])], ["1"], x_label="x", y_label="y") is None


def test_numbers_are_written_with_three_digits_and_large_ones_whole():
    values = [0.0, 4.56e-7, -0.789, 12.34, 999.4, 999.6, 12345.6, -2e6]
    written = ["0", "4.56e-7", "-0.789", "12.3", "999", "1,000", "12,346", "-2,000,000"]
    assert [short_number(value) for value in values] == written
