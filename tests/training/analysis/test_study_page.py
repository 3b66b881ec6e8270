"""A study's page says what its Markdown says, draws its figures, and passes no HTML on."""

import base64
import hashlib
import re

from markupsafe import Markup

from tests.paths import ROOT
from tests.training.analysis.pages import Page
from training.analysis.pages.chart_drawing import Series
from training.analysis.pages.charts import rate_chart
from training.analysis.pages.document import PageFigure
from training.analysis.study.figures import StudyFigure
from training.analysis.study.page import study_page

STUDY = ROOT / "docs/study_miniature"
VALUES = [(0.31, 0.27, 0.36), (0.4, 0.35, 0.72)]


def figure(file: str, keyed: bool = False) -> StudyFigure:
    chart = rate_chart(file, [Series("a", VALUES)], ["1", "2"], x_label="x", y_label="y") or ""
    return StudyFigure(file, file, "", "", (PageFigure(f"chart of {file}", Markup(chart)),), keyed)


def test_every_row_of_the_committed_report_stands_on_its_page_and_every_figure_is_drawn():
    text = (STUDY / "report.md").read_text()
    names = [one.name for one in STUDY.glob("*.svg")]
    colours = {"first": 0, "<second>": 1}
    figures = [figure(name, keyed=name == "mixtures.svg") for name in names]
    page = Page(study_page("miniature", text, figures, colours=colours, facts={"a fact": 12}))
    rows = [
        [cell.strip().replace("`", "").replace("*", "") for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and not re.fullmatch(r"[|\s:-]+", line)
    ]
    assert len(rows) > 30
    assert page.rows == rows
    assert sorted(re.findall(r"chart of (\S+)", page.text)) == sorted(names)
    assert page.source.count('class="chart"') == len(names) > 5
    assert page.source.count('class="mark"') == page.source.count("<li><svg") == len(colours)
    assert "first <second> chart of mixtures.svg" in page.text
    assert "img" not in page.tags
    links = [value for name, value in page.attributes if name == "href" and value.startswith("#p")]
    ids = [f"#{value}" for name, value in page.attributes if name == "id" and "part" in value]
    assert len(ids) > 5
    assert ids == links
    assert "a fact 12" in page.text


def test_html_pictures_and_addresses_in_a_text_are_not_passed_on():
    text = "# S\n\n<script>alert(1)</script> [x](javascript:alert(1)) ![y](https://h/y.png)\n\n"
    text += "## A\n\n![z](f.svg) beside words\n\n"
    text += "| ![w](f.svg) | a |\n| --- | --- |\n"
    text += "| <img src=x onerror=alert(1)> | 1.0 [0.5, <b>] |\n"
    source = study_page("</title><script>", text, [figure("f.svg")])
    page = Page(source)
    assert page.scripts == [source.partition("<script>")[2].partition("</script>")[0]]
    assert "alert" not in page.scripts[0]
    assert "<script>alert(1)</script>" in page.text
    assert page.rows == [["w", "a"], ["<img src=x onerror=alert(1)>", "1.0 [0.5, <b>]"]]
    assert "img" not in page.tags
    assert page.source.count('class="chart"') == 0, "a picture within words is no figure"
    assert not [value for _, value in page.attributes if "javascript:" in (value or "")]
    [sheet] = re.findall(r"<style>(.*?)</style>", source, flags=re.DOTALL)
    style, script = (
        base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()
        for one in (sheet, page.scripts[0])
    )
    policy = f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}';"
    assert policy in source
    assert "style" not in {name for name, _ in page.attributes}
