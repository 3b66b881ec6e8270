"""A study's page says what its Markdown says, shows its figures, and passes no HTML on."""

import base64
import hashlib
import re
from html.parser import HTMLParser

from tests.paths import ROOT
from training.analysis.study.figures import FigureFile
from training.analysis.study.page import study_page

STUDY = ROOT / "docs/study_miniature"


class Cells(HTMLParser):
    """The cells of all tables, and every tag and attribute."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._in_cell = False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        self._in_cell = self._in_cell or tag in ("td", "th")
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data):
        if self._in_cell:
            self.rows[-1][-1] += data


def test_every_row_of_the_committed_report_stands_on_its_page_and_every_figure_is_in_it():
    text = (STUDY / "report.md").read_text()
    figures = [FigureFile(one.name, "", "", one.read_text()) for one in STUDY.glob("*.svg")]
    page = Cells(study_page("miniature", text, figures))
    rows = [
        [cell.strip().replace("`", "").replace("*", "") for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and not re.fullmatch(r"[|\s:-]+", line)
    ]
    assert len(rows) > 30
    assert page.rows == rows
    shown = [attrs["src"] for tag, attrs in page.tags if tag == "img"]
    drawn = {
        f"data:image/svg+xml;base64,{base64.b64encode(one.svg.encode()).decode()}"
        for one in figures
    }
    assert set(shown) == drawn
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a"]
    ids = {f"#{attrs['id']}" for tag, attrs in page.tags if tag == "h2"}
    assert len(ids) > 5
    assert ids == {link for link in links if link.startswith("#")}


def test_html_and_addresses_in_a_text_are_not_passed_on():
    text = "# S\n\n<script>alert(1)</script> [x](javascript:alert(1)) ![y](https://h/y.png)\n\n"
    text += "| a |\n| --- |\n| <img src=x onerror=alert(1)> |\n"
    source = study_page("</title><script>", text, [])
    page = Cells(source)
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.rows[1] == ["<img src=x onerror=alert(1)>"]
    assert not [attrs for tag, attrs in page.tags if "javascript:" in (attrs.get("href") or "")]
    sheets = re.findall(r"<style>(.*?)</style>", source, flags=re.DOTALL)
    [digest] = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in sheets]
    assert f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:" in source
    assert "style" not in {name for _, attrs in page.tags for name in attrs}
