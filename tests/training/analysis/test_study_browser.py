"""The page of a study in a real browser: it fits its window, and it can be read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.training.analysis.pages import (
    SMALLEST_TEXT,
    TEXT_COLOURS,
    OpenPage,
    contrast,
    open_pages,
)

TILE_INKS = ("rgb(17, 22, 27)", "rgb(254, 254, 254)")
"""Of words on tiles, which keep their colours in both themes."""


@pytest.fixture
def open_study(browser: Browser, finished_study: Path) -> Iterator[OpenPage]:
    """Opens the study's page; after the test no error and no warning may stand in its console."""
    yield from open_pages(browser, (finished_study / "out/report/report.html").as_uri())


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1400, "light"), (1400, "dark")])
def test_page_fits_its_window_and_its_text_can_be_read(
    open_study: OpenPage, width: int, theme: str
):
    page = open_study(width, theme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    size, words = page.evaluate(SMALLEST_TEXT)
    assert size >= 11, words
    colours = [row for row in page.evaluate(TEXT_COLOURS) if row[0] not in TILE_INKS]
    assert len(colours) > 4
    assert [row for row in colours if contrast(*row[:2]) < 4.5] == []
