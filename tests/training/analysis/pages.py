"""A report's page, parsed."""

from html.parser import HTMLParser
from pathlib import Path

from training.analysis.report import build_report

VOID = {"meta", "br", "img", "link", "input", "hr", "wbr"}


class Page(HTMLParser):
    """The elements of a page, and the text of its tables' rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        if "script" in self.open:
            self.scripts[-1] += data
            return
        self.words.append(data)
        if ("td" in self.open or "th" in self.open) and self.rows:
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(run: Path) -> Page:
    return Page(build_report(run).read_text(encoding="utf-8"))
