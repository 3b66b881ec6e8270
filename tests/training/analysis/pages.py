"""Helpers that parse report pages and open them in a browser."""

import os
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext
from playwright.sync_api import Page as BrowserPage

from training.analysis.report import build_report

VOID_TAGS = {"meta", "br", "img", "link", "input", "hr", "wbr"}


class Page(HTMLParser):
    """The elements of a page, and the text of its tables' rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open_tags: list[str] = []
        self.text_pieces: list[str] = []
        self.rows: list[list[str]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open_tags == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID_TAGS:
            self.open_tags.append(tag)
        if tag == "script":
            self.scripts.append("")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID_TAGS:
            return
        assert self.open_tags[-1] == tag, f"</{tag}> closes <{self.open_tags[-1]}>"
        self.open_tags.pop()

    def handle_data(self, data: str) -> None:
        if "style" in self.open_tags:
            return
        if "script" in self.open_tags:
            self.scripts[-1] += data
            return
        self.text_pieces.append(data)
        if ("td" in self.open_tags or "th" in self.open_tags) and self.rows:
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.text_pieces).split())


def build_page(run: Path) -> Page:
    return Page(build_report(run).read_text(encoding="utf-8"))


OpenPage = Callable[..., BrowserPage]
"""Opens a page, by width, theme and further options of a browser's context."""

LAST_STAGE = 3
ATTACK = (
    "</script><script>document.title='run'</script><!--<img src=x onerror=document.title='run'>"
)

SMALLEST_TEXT = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const sizes = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    const hidden = ["SCRIPT", "STYLE", "style", "title"].includes(parent.tagName);
    if (hidden || !node.textContent.trim() || !parent.getBoundingClientRect().width) continue;
    const matrix = parent.ownerSVGElement ? parent.getScreenCTM() : { a: 1, b: 0 };
    const scale = Math.hypot(matrix.a, matrix.b);
    sizes.push([scale * parseFloat(getComputedStyle(parent).fontSize), node.textContent]);
  }
  return sizes.reduce((smallest, size) => (size[0] < smallest[0] ? size : smallest));
}"""


def find_chromium() -> str:
    """Return the browser's path; without one skip the test, or fail it if CI=true."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    if os.environ.get("CI") == "true":
        pytest.fail("no chromium is installed, which CI=true needs (tools/setup.sh installs it)")
    pytest.skip("no chromium is installed")


def open_pages(browser: Browser, address: str) -> Iterator[OpenPage]:
    """Yield a function that opens the page; afterwards assert that its console is empty."""
    messages: list[str] = []
    contexts: list[BrowserContext] = []

    def open_page(width: int = 1400, theme: str = "light", **options: object) -> BrowserPage:
        viewport = {"width": width, "height": 900}
        contexts.append(browser.new_context(viewport=viewport, color_scheme=theme, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: messages.append(request.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [message for message in messages if message != address] == []
