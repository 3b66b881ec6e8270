"""A study's report as one page, `report.html`: what `report.md` says, with its figures in it.

Model-written names and texts are Markdown text there, and are escaped here: no HTML of the text
is ever passed on. The page needs no script and no other file.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from training.analysis import report as run_report
from training.analysis.content_policy import content_policy
from training.analysis.study.figures import FigureFile

TEMPLATE, STYLES = "page.html.jinja", ("report.css", "page.css")
_FOLDERS = [Path(__file__).parent, Path(run_report.__path__[0])]  # the style is that of runs


def study_page(name: str, markdown: str, figures: Sequence[FigureFile]) -> str:
    """Make a page of the report's Markdown; `name` is the study's.

    Headings get ids, and the page a list of them. Tables scroll in boxes of their own. A figure
    that the text names is embedded as a picture; a link to any other file stays a link.
    """
    pictures = {figure.file: _data_uri(figure.svg) for figure in figures}
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.validateLink = lambda url: url in pictures or url.startswith(("https://", "#"))  # type: ignore[method-assign]
    tokens = parser.parse(markdown)
    if tokens and tokens[0].tag == "h1":  # the page has a heading of its own
        tokens = tokens[3:]
    contents = _name_headings(tokens)
    for before, token in itertools.pairwise(tokens):
        if [one.type for one in token.children or ()] == ["image"]:
            before.attrs |= {"class": "picture", "tabindex": "0"}  # which may scroll
    for token in tokens:
        if token.attrs.pop("style", None) == "text-align:right":
            token.attrs["class"] = "number"  # the page's policy allows no attribute `style`
        for one in token.children or ():
            if one.type == "image" and one.attrs.get("src") in pictures:
                one.attrs["src"] = pictures[str(one.attrs["src"])]
    renderer = RendererHTML(parser)
    rules: dict[str, Any] = renderer.rules  # which is declared as a mapping of bound methods
    box = '<div class="scroll" tabindex="0" role="region" aria-label="Table">'
    rules["table_open"] = lambda *_: f"{box}<table>\n"
    rules["table_close"] = lambda *_: "</table></div>\n"
    body = renderer.render(tokens, parser.options, {})
    style = "".join(
        (folder / sheet).read_text(encoding="utf-8")
        for folder, sheet in zip(reversed(_FOLDERS), STYLES, strict=True)
    )
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDERS), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template(TEMPLATE).render(
        name=name,
        contents=contents,
        body=Markup(body),
        style=Markup(style),
        policy=content_policy([style], pictures=True),
    )


def _name_headings(tokens: Sequence[Token]) -> dict[str, str]:
    """Give each heading of the second level an id, and return their texts by id."""
    contents: dict[str, str] = {}
    for token, inline in itertools.pairwise(tokens):
        if token.type == "heading_open" and token.tag == "h2":
            token.attrs["id"] = name = f"part-{len(contents) + 1}"
            contents[name] = inline.content
    return contents


def _data_uri(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
