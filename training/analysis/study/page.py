"""A study's report as one page, `report.html`: what `report.md` says, with its charts in it.

Model-written names and texts are Markdown text there, and are escaped here: no HTML of the text
is ever passed on. The page needs no other file.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

from training.analysis.pages.charts import key_mark
from training.analysis.pages.document import breakable, page_environment, page_sources
from training.analysis.study.figures import StudyFigure

_FOLDER = Path(__file__).parent
_CARDS = 4
"""Columns from which on a phone shows each row of a table as a card."""
_WITH_RANGE = re.compile(r"([+-]?[\d.,]+) (\[[^\[\]]*\]|\([^()]*\))")
"""A cell with a number, and its interval or its range."""


def study_page(
    name: str,
    markdown: str,
    figures: Sequence[StudyFigure] = (),
    *,
    colours: Mapping[str, int] | None = None,
    facts: Mapping[str, object] | None = None,
    finished: bool = True,
) -> str:
    """Make a page of the report's Markdown; `name` is the study's.

    What stands before the first heading of the second level becomes the head of the page, with the
    `facts` below it. A figure that the text names is drawn as charts; if these need a key, it has
    the names and `colours` of the engineers. A link to any other file, and any other picture, stays
    text. `finished` is whether every run of the study is.
    """
    by_file = {figure.file: figure for figure in figures}
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.validateLink = lambda url: url in by_file or url.startswith(("https://", "#"))  # type: ignore[method-assign]
    environment = page_environment(_FOLDER)
    tokens = parser.parse(markdown)
    if tokens and tokens[0].tag == "h1":  # the page has a heading of its own
        tokens = tokens[3:]
    contents = _name_headings(tokens)
    _shape_tables(tokens)
    marks = {name: Markup(key_mark(name, number)) for name, number in (colours or {}).items()}
    macros: Any = environment.get_template("figures.html.jinja").module
    for place, token in enumerate(tokens):
        children = token.children or []
        if [one.type for one in children] != ["image"]:
            continue
        if tokens[place - 1].type != "paragraph_open":
            continue
        if figure := by_file.get(str(children[0].attrs.get("src"))):
            drawn = macros.grid(
                figure.charts, "narrow" if len(figure.charts) > 3 and figure.keyed else ""
            )
            markup = (macros.mark_key(marks) if figure.keyed else "") + drawn
            tokens[place - 1 : place + 2] = [_block(""), _block(markup), _block("")]
    renderer = RendererHTML(parser)
    rules: dict[str, Any] = renderer.rules  # which is declared as a mapping of bound methods
    box = '<div class="scroll" tabindex="0" role="region" aria-label="Table">'
    opened = renderer.renderToken
    rules["table_open"] = lambda all_, place, options, env: box + opened(all_, place, options, env)
    rules["table_close"] = lambda *_: "</table></div>\n"
    rules["image"] = lambda images, place, *_: str(escape(images[place].content))
    first = next((n for n, one in enumerate(tokens) if one.tag == "h2"), len(tokens))
    headline, body = (
        Markup(renderer.render(part, parser.options, {}))
        for part in (tokens[:first], tokens[first:])
    )
    return environment.get_template("study.html.jinja").render(
        page_sources(_FOLDER / "study.css"),
        name=name,
        finished=finished,
        headline=headline,
        facts=facts or {},
        contents=contents,
        body=body,
    )


def _block(markup: str) -> Token:
    """Make a token of markup of our own."""
    return Token("html_block", "", 0, content=markup)


def _name_headings(tokens: Sequence[Token]) -> dict[str, str]:
    """Give each heading of the second level an id, and return their texts by id."""
    contents: dict[str, str] = {}
    for token, inline in itertools.pairwise(tokens):
        if token.type == "heading_open" and token.tag == "h2":
            token.attrs["id"] = name = f"part-{len(contents) + 1}"
            contents[name] = inline.content
    return contents


def _shape_tables(tokens: Sequence[Token]) -> None:
    """Give tables the roles that they keep as cards, and their cells the names of their columns."""
    names: list[str] = []
    column, table = 0, None
    for token, inline in itertools.pairwise(tokens):
        if token.attrs.pop("style", None) == "text-align:right":
            token.attrs["class"] = "number"  # the page's policy allows no attribute `style`
        match token.type:
            case "table_open":
                names, table = [], token
                token.attrs["role"] = "table"
            case "thead_open" | "tbody_open":
                token.attrs["role"] = "rowgroup"
            case "tr_open":
                token.attrs["role"], column = "row", 0
            case "th_open":
                token.attrs |= {"role": "columnheader", "scope": "col"}
                names.append(inline.content)
                if table is not None and len(names) == _CARDS:
                    table.attrs["class"] = "cards"
            case "td_open" if column == 0:
                token.tag = "th"
                token.attrs |= {"role": "rowheader", "scope": "row"}
                _let_break(inline)
            case "td_open":
                token.attrs |= {"role": "cell", "data-column": names[column]}
                _mark_range(inline)
            case "td_close":
                token.tag = "td" if column else "th"
                column += 1


def _let_break(inline: Token) -> None:
    """Let a long name break after its punctuation, and not within a word."""
    if [one.type for one in inline.children or ()] == ["text"]:
        inline.children = [Token("html_inline", "", 0, content=str(breakable(inline.content)))]


def _mark_range(inline: Token) -> None:
    """Put what a cell says into one element, and its interval or range into one of its own."""
    said = _WITH_RANGE.fullmatch(inline.content)
    if said is not None and inline.children:
        value, reach = said.groups()
        markup = f'<b>{escape(value)}</b> <span class="ci">{escape(reach)}</span>'
        inline.children = [Token("html_inline", "", 0, content=markup)]
    before, after = (Token("html_inline", "", 0, content=tag) for tag in ("<span>", "</span>"))
    inline.children = [before, *(inline.children or []), after]
