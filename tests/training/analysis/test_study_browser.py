"""The page of a study in a real browser: it fits, it can be read, and its charts tell values."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.training.analysis.browsing import (
    SMALLEST_TEXT,
    TEXT_COLOURS,
    OpenPage,
    contrast,
    open_pages,
)
from tests.training.analysis.studies import report_only, results_of, run_of
from training.analysis.study.figures import engineer_colours, study_figures
from training.analysis.study.page import study_page
from training.analysis.study.report import markdown

WIDTHS, THEMES = [390, 820, 1400], ["light", "dark"]
TILE_INKS = ("rgb(17, 22, 27)", "rgb(254, 254, 254)")
"""Of words on tiles, which keep their colours in both themes."""

OUTSIDE = """() => {
  const room = document.documentElement.clientWidth, found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.textContent.trim() || node.parentElement.closest("script, style, title")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const { left, right, top, bottom, width } = range.getBoundingClientRect();
    if (!width || node.parentElement.closest(".cards thead")?.clientWidth <= 1) continue;
    const frame = node.parentElement.closest("svg.chart, .scroll")?.getBoundingClientRect();
    const end = Math.min(room, frame ? frame.right : room), begin = frame ? frame.left : 0;
    const chart = node.parentElement.closest("svg.chart")?.getBoundingClientRect();
    const slack = 0.2 * (bottom - top); // a line is higher than its letters
    const cut = chart && (top < chart.top - slack || bottom > chart.bottom + slack);
    if (cut || left < begin - 0.5 || right > end + 0.5) found.push(node.textContent);
  }
  return found;
}"""
"""Words of which a part lies outside of the window, or of their chart or box."""


@pytest.fixture
def open_study(browser: Browser, finished_study: Path) -> Iterator[OpenPage]:
    """Opens the study's page; after the test no error and no warning may stand in its console."""
    yield from open_pages(browser, (finished_study / "out/report/report.html").as_uri())


def told(page: Page) -> str:
    box = page.locator(".tooltip")
    return box.inner_text() if box.is_visible() else ""


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_page_fits_its_window_and_its_text_can_be_read(
    open_study: OpenPage, width: int, theme: str
):
    page = open_study(width, theme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(OUTSIDE) == []
    size, words = page.evaluate(SMALLEST_TEXT)
    assert size >= 11, words
    colours = [row for row in page.evaluate(TEXT_COLOURS) if row[0] not in TILE_INKS]
    assert len(colours) > 4
    assert [row for row in colours if contrast(*row[:2]) < 4.5] == []


def test_themes_differ_in_the_ink_and_the_paper_of_charts(open_study: OpenPage):
    seen = set()
    for theme in THEMES:
        page = open_study(theme=theme)
        words = page.locator("svg.chart text").first
        seen.add(words.evaluate("node => getComputedStyle(node).fill"))
        card = page.locator("figure").first
        seen.add(card.evaluate("node => getComputedStyle(node).backgroundColor"))
    assert len(seen) == 4


def test_charts_tell_the_numbers_of_the_results_to_keys_pointer_and_finger(
    open_study: OpenPage, finished_study: Path
):
    results, page = results_of(finished_study), open_study(has_touch=True)
    lively = results["engineers"]["lively"]
    measured = lively["difference"]["valid"]
    value, low, high = (100 * measured[key] for key in ("value", "low", "high"))
    difference = page.get_by_role("slider", name="Difference to steady, valid")
    difference.focus()
    expected = f"lively: {value:+.1f} [{low:+.1f}, {high:+.1f}] points above steady"
    assert told(page) == difference.get_attribute("aria-valuetext") == expected
    page.keyboard.press("Escape")
    assert told(page) == ""

    curve = page.get_by_role("slider", name="Learning curve, valid")
    curve.focus()
    page.keyboard.press("End")
    last = lively["learning_curve"]["valid"][-1]
    shares = [f"{100 * last[key]:.1f}" for key in ("mean", "low", "high")]
    assert told(page) == "lively {}% ({} to {}), stage 3".format(*shares)

    worst = lively["slices"][0]
    slices = page.get_by_role("slider", name="By slice: valid, 3x3, no wait needed")
    slices.scroll_into_view_if_needed()
    box = slices.bounding_box()
    rows = 4  # boards, start, steady, lively
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + box["height"] * (rows - 0.2) / rows)
    said = told(page)
    shares = [f"{100 * worst['valid'][key]:.1f}" for key in ("mean", "low", "high")]
    assert said == "lively, holes 0-9%: {}% ({} to {}), 14 boards".format(*shares)

    page.keyboard.press("Escape")
    flow = page.get_by_role("slider", name="Failure flows, steady")
    flow.scroll_into_view_if_needed()
    box = flow.bounding_box()
    page.touchscreen.tap(box["x"] + 0.45 * box["width"], box["y"] + 0.55 * box["height"])
    assert re.fullmatch(r"[a-z ]+ at the start, [a-z ]+ at the end: [\d.]+%", told(page))
    page.touchscreen.tap(2, 2)
    assert told(page) == ""


def test_narrow_window_shows_each_value_beside_the_name_of_its_column(open_study: OpenPage):
    page = open_study(390)
    row = page.get_by_role("row", name="lively").first
    assert row.get_by_role("rowheader").inner_text() == "lively"
    cell = row.get_by_role("cell").nth(1)
    before = cell.evaluate("node => getComputedStyle(node, '::before').content")
    assert before == '"valid (CSR), %"'
    assert re.fullmatch(r"[\d.]+ \[[\d.]+, [\d.]+\]", cell.inner_text())
    assert page.get_by_role("columnheader").count() > 20


def test_study_that_is_not_finished_says_so_at_the_top(browser: Browser, study_copy: Path):
    run_of(study_copy, "lively", 2).summary.remove()
    assert report_only(study_copy) == 0
    pages = open_pages(browser, (study_copy / "out/report/report.html").as_uri())
    page = next(pages)(820)
    assert page.locator(".over").inner_text() == "jaxlake study not finished"
    top = page.locator("header.top").inner_text()
    assert "3 of 4 runs are finished. Missing: lively seed 2 (not finished)." in top
    assert next(pages, None) is None


@pytest.mark.slow
def test_page_of_fifteen_engineers_stays_below_five_megabytes(finished_study: Path):
    results = results_of(finished_study)
    one = results["engineers"]["lively"]
    results["engineers"] |= {f"engineer_{number}": one for number in range(13)}
    results["study"]["engineers"] = {name: [] for name in results["engineers"]}
    figures = study_figures(results)
    text, colours = markdown(results, figures), engineer_colours(results)
    page = study_page("large", text, list(figures.values()), colours=colours)
    assert page.count("engineer_12") > 20
    assert len(page.encode()) < 5_000_000
