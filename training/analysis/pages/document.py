"""Self-contained HTML pages: template, styles, script and content security policy."""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class PageFigure:
    """A chart as an SVG element, with its heading and a note."""

    heading: str
    chart: Markup
    note: str = ""


def page_figures(heading: str, chart: str | None, note: str = "") -> list[PageFigure]:
    """Return a list with the chart as a figure, or an empty list if `chart` is None.

    The template does not escape charts, because they escape all of their text.
    """
    return [] if chart is None else [PageFigure(heading, Markup(chart), note)]


def page_environment(folder: Path) -> jinja2.Environment:
    """Return a Jinja environment for templates in a folder that extend `page.html.jinja`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, _FOLDER]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = insert_line_breaks
    return environment


def page_sources(style: Path, script: Path | None = None) -> dict[str, Any]:
    """Return the `style`, `script` and `policy` of a page.

    The policy allows this style sheet, this script and the style attributes of charts. It blocks
    all other scripts and all network access. `style` is added to `page.css`.
    """
    css = _read_text(_FOLDER / "page.css") + _read_text(style)
    javascript = "" if script is None else _read_text(script)
    directives = [
        "default-src 'none'",
        f"style-src '{hash_source(css)}'",
        "style-src-attr 'unsafe-inline'",
        f"script-src '{hash_source(javascript)}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    policy = Markup("; ".join(directives))
    return {"style": Markup(css), "script": Markup(javascript), "policy": policy}


def hash_source(text: str) -> str:
    """Return the source expression of a style sheet or script: `sha256-` and a base-64 digest."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def insert_line_breaks(value: object) -> Markup:
    """Return a long name that wraps only after punctuation."""
    return Markup("<wbr>").join(re.split(r"(?<=[._:/])(?=\w)", str(value)))


def join_names(names: Sequence[object]) -> str:
    """Join names with commas and "and"."""
    *first, last = map(str, names)
    return f"{', '.join(first)} and {last}" if first else last


def _read_text(file: Path) -> str:
    return file.read_text(encoding="utf-8")
