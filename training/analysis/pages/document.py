"""A page as one file: its template, its styles and its script, and the policy that allows these."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from training.analysis.pages.content_policy import content_policy

_HERE = Path(__file__).parent
STYLE, SCRIPT = "page.css", "charts.js"


@dataclass(frozen=True)
class PageFigure:
    """A chart with the words above it."""

    heading: str
    chart: Markup
    note: str = ""


def page_environment(folder: Path) -> jinja2.Environment:
    """Make an environment for the templates in a folder, which extend `page.html.jinja`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, _HERE]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    return environment


def page_sources(
    style: Path, script: Path | None = None, *, pictures: Iterable[str] = ()
) -> dict[str, Any]:
    """Return `style`, `script` and `policy` of a page: what all pages have, and then its own files.

    `pictures` are the texts of further style sheets, of pictures that the page holds.
    """
    sheet = _text(_HERE / STYLE) + _text(style)
    code = _text(_HERE / SCRIPT) + ("" if script is None else _text(script))
    policy = content_policy([sheet, *pictures], code)
    return {"style": Markup(sheet), "script": Markup(code), "policy": policy}


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def breakable(value: object) -> Markup:
    """Let a long name break after its punctuation, and not within a word."""
    return Markup("<wbr>").join(re.split(r"(?<=[._:/])(?=\w)", str(value)))
