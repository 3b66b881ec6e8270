"""What tests in a browser share: where it is, and what is asked of a page in it."""

import os
import shutil
from collections.abc import Callable

import pytest
from playwright.sync_api import Page

OpenPage = Callable[..., Page]
"""Opens the report of `hostile_run`, by width, theme and further options of a browser's context."""

STAGE = 3
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
    const place = parent.ownerSVGElement ? parent.getScreenCTM() : { a: 1, b: 0 };
    const scale = Math.hypot(place.a, place.b);
    sizes.push([scale * parseFloat(getComputedStyle(parent).fontSize), node.textContent]);
  }
  return sizes.reduce((least, one) => (one[0] < least[0] ? one : least));
}"""

TEXT_COLOURS = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = new Map();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.textContent.trim() || !parent.getBoundingClientRect().width) continue;
    if (parent.closest("script, style, title, option, :disabled, .board, .lake-board")) continue;
    const ink = getComputedStyle(parent)[parent.ownerSVGElement ? "fill" : "color"];
    let ground = parent;
    while (ground && getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") {
      ground = ground.parentElement;
    }
    const paper = getComputedStyle(ground ?? document.body).backgroundColor;
    found.set(ink + paper, [ink, paper, node.textContent.trim().slice(0, 60)]);
  }
  return [...found.values()];
}"""
"""Colours of text and of what is behind it. Boards are pictures, and disabled buttons exempt."""


def chromium() -> str:
    """Where the browser is; without one the tests are skipped, but not where all have to run."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    if os.environ.get("CI") == "true":
        pytest.fail("no chromium is installed, which CI=true needs (tools/setup.sh installs it)")
    pytest.skip("no chromium is installed")


def contrast(*colours: str) -> float:
    """The contrast of two colours `rgb(r, g, b)`, as WCAG 2.1 defines it."""
    lights = []
    for colour in colours:
        assert colour.startswith("rgb("), colour
        shares = [int(part) / 255 for part in colour[4:-1].split(",")]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in shares]
        lights.append(sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True)))
    return (max(lights) + 0.05) / (min(lights) + 0.05)
