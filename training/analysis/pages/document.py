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

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class PageFigure:
    """A chart with its heading and a note."""

    heading: str
    chart: Markup
    note: str = ""


def page_figures(heading: str, chart: str | None, note: str = "") -> list[PageFigure]:
    """Return a list with the figure of a chart, or an empty list if `chart` is None.

    The template does not escape the markup, because charts escape all text.
    """
    return [] if chart is None else [PageFigure(heading, Markup(chart), note)]


def page_environment(folder: Path) -> jinja2.Environment:
    """Return a Jinja environment for the templates in a folder, which extend `page.html.jinja`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, _HERE]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    return environment


def page_sources(style: Path, script: Path | None = None) -> dict[str, Any]:
    """Return the `style`, `script` and `policy` of a page.

    The policy allows this style sheet, this script and the style attributes of charts. It blocks
    all other scripts and all network access. `style` is added to `page.css`.
    """
    sheet = _text(_HERE / "page.css") + _text(style)
    code = "" if script is None else _text(script)
    rules = [
        "default-src 'none'",
        f"style-src '{hash_source(sheet)}'",
        "style-src-attr 'unsafe-inline'",
        f"script-src '{hash_source(code)}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return {"style": Markup(sheet), "script": Markup(code), "policy": Markup("; ".join(rules))}


def hash_source(text: str) -> str:
    """Return the source expression of a style sheet or script: `sha256-` and a base-64 digest."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def breakable(value: object) -> Markup:
    """Return a long name that can wrap after punctuation only."""
    return Markup("<wbr>").join(re.split(r"(?<=[._:/])(?=\w)", str(value)))


def listed(names: Sequence[object]) -> str:
    """Join names with commas and "and"."""
    *others, last = map(str, names)
    return f"{', '.join(others)} and {last}" if others else last


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")
