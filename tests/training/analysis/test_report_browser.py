"""The page of a run in a real browser: it plays, lists and filters, and stays within its rules."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.training.analysis.browsing import ATTACK, SMALLEST_TEXT, STAGE, OpenPage, contrast
from tests.training.analysis.test_atlas import some_atlas
from training.analysis.pages.charts import tile_chart
from training.analysis.pages.tiles import Mark, Tile, TileTable
from training.analysis.report import build_report
from training.environments.catalogue import domain_of
from training.run.answer_records import EpisodeRecord
from training.run.directory import RunDirectory
from training.run.records import AtlasRecord


def episodes_of(run: Path, stage: int) -> list[EpisodeRecord]:
    return list(RunDirectory(run).stage(stage).episodes.read())


def listed(page: Page) -> list[int]:
    return [int(words) for words in page.locator("#listed .pick").all_inner_texts()]


def places(page: Page, holder: str) -> list[str]:
    return page.locator(f"{holder} .lake-agent").evaluate_all(
        "all => all.map(g => g.style.cssText)"
    )


def test_answer_plays_to_its_end_beside_the_solver(open_page: OpenPage):
    page = open_page()
    page.select_option("#result", "valid")
    before = [places(page, holder) for holder in ("#model-board", "#solver-board")]
    page.select_option("#speed", "4")
    page.click("#play")
    assert page.inner_text("#play") == "Pause"
    expect(page.locator("#play")).to_have_text("Play", timeout=15_000)
    steps = page.get_attribute("#scrub", "max")
    assert page.input_value("#scrub") == steps
    after = [places(page, holder) for holder in ("#model-board", "#solver-board")]
    assert after[0] != before[0]
    assert after[1] != before[1]
    page.select_option("#speed", "0.5")  # so that it doesn't end between the two clicks
    page.click("#play")
    page.click("#play")
    assert page.inner_text("#play") == "Play", "paused"
    paused = page.input_value("#scrub")
    page.wait_for_timeout(3000)  # two steps at this speed
    assert page.input_value("#scrub") == paused


def test_scrubbing_and_stepping_show_the_same_moment_and_mark_the_failure(
    open_page: OpenPage, hostile_run: Path
):
    page = open_page()
    conflicts = [one for one in episodes_of(hostile_run, STAGE) if one.failure == "vertex_conflict"]
    page.select_option("#result", label="vertex conflict")
    assert listed(page) == [one.id for one in conflicts][:50]
    failed = conflicts[0]
    assert failed.time is not None
    for _ in range(failed.time + 1):
        assert page.locator("#model-board .lake-ring").count() == 0
        page.click("#forward")
    assert page.locator("#model-board .lake-ring").count() == 1, "where both agents are"
    assert f"vertex conflict in step {failed.time}" in page.inner_text("#outcome")
    assert "vertex conflict" in (page.get_attribute("#scrub", "aria-valuetext") or "")
    stepped = places(page, "#model-board")
    page.click("#back")
    assert places(page, "#model-board") != stepped
    page.locator("#scrub").fill(str(failed.time + 1))
    assert places(page, "#model-board") == stepped
    page.locator("#scrub").focus()
    page.keyboard.press("ArrowLeft")
    assert page.input_value("#scrub") == str(failed.time)


def test_filters_list_what_the_files_say(open_page: OpenPage, hostile_run: Path):
    page = open_page()
    before, after = episodes_of(hostile_run, STAGE - 1), episodes_of(hostile_run, STAGE)
    assert listed(page) == [one.id for one in after][:50]
    page.click("#next-page")
    assert listed(page) == [one.id for one in after][50:100]
    page.select_option("#change", "gained")
    gained = [new for old, new in zip(before, after, strict=True) if new.valid and not old.valid]
    assert gained
    assert listed(page) == [one.id for one in gained][:50]
    page.select_option("#group", label="4 × 4")  # noqa: RUF001
    assert listed(page) == [one.id for one in gained if one.group == "4"][:50]
    page.select_option("#change", "")
    page.select_option("#waits", label="yes")
    waiting = [one for one in after if one.group == "4" and one.lake.needs_wait]
    assert listed(page) == [one.id for one in waiting]
    holes = "".join(waiting[0].lines).count("H")
    page.select_option("#holes", label=str(holes))
    alike = [one for one in waiting if "".join(one.lines).count("H") == holes]
    assert listed(page) == [one.id for one in alike]
    page.select_option("#stage", label="Stage 1")
    page.select_option("#result", "failed")
    numbers = {one.id for one in alike}
    failed = [one.id for one in episodes_of(hostile_run, 1) if one.id in numbers and not one.valid]
    assert listed(page) == failed


def test_list_can_be_used_from_the_keyboard(open_page: OpenPage, hostile_run: Path):
    page = open_page()
    third = episodes_of(hostile_run, STAGE)[2]
    page.locator("#listed .pick").nth(2).focus()
    page.keyboard.press("Enter")
    assert page.inner_text("#chosen").startswith(f"Board {third.id} ")
    assert page.inner_text("#said") == third.text
    assert page.locator("#listed tr[aria-current]").count() == 1
    page.locator("#next").focus()
    page.keyboard.press("Enter")
    assert page.inner_text("#chosen").startswith(f"Board {third.id + 1} ")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_hostile_texts_of_a_model_stay_text(open_page: OpenPage):
    page = open_page()
    title = page.title()
    assert page.inner_text("#said") == ATTACK
    assert ATTACK in page.inner_text("#about")
    page.click("#next")
    assert page.inner_text("#said") == ATTACK + "\ud800"
    assert page.locator("img").count() == 0
    assert page.title() == title


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 820, 1400])
def test_page_fits_its_window_and_its_text_can_be_read(open_page: OpenPage, width: int, theme: str):
    page = open_page(width, theme)
    page.select_option("#result", "valid")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    size, words = page.evaluate(SMALLEST_TEXT)
    assert size >= 11, words
    boards = page.locator(".lake-board").all()
    widths = [board.bounding_box()["width"] for board in boards]
    assert min(widths) >= {390: 280, 820: 330, 1400: 420}[width]
    tops = [board.bounding_box()["y"] for board in boards]
    assert (tops[0] == tops[1]) == (width > 390)
    for table in page.locator(".scroll").all():
        name, seen = table.evaluate(
            "box => { const cell = box.querySelector('tr').lastElementChild; return [box.ariaLabel,"
            " cell.getBoundingClientRect().right <= box.getBoundingClientRect().right] }"
        )
        assert seen, f"the last column is seen without scrolling: {name}"
    if width == 390:
        for table in page.locator(".scroll:not(.tall)").all():
            heights = table.evaluate("box => [box.clientHeight, box.scrollHeight]")
            assert heights[0] == heights[1], "a table on a narrow screen scrolls sideways only"


MARKS_AND_NUMBERS = """() => {
  const marks = [...document.querySelectorAll("g")]
    .filter((g) => g.querySelector(":scope > title")?.textContent === "a mark")
    .map((g) => g.getBoundingClientRect());
  const numbers = [...document.querySelectorAll("text")].filter((t) => t.textContent === "0.25");
  return [marks, numbers.map((text) => {
    const box = text.getBoundingClientRect(), place = text.getScreenCTM();
    const base = text.getStartPositionOfChar(0).matrixTransform(place).y;
    const tall = 0.73 * place.d * parseFloat(getComputedStyle(text).fontSize);
    return { left: box.left, right: box.right, top: base - tall, bottom: base };
  })].map((all) => all.map(({ left, right, top, bottom }) => [left, right, top, bottom]));
}"""
"""Boxes of marks, and of numbers from their base lines to the tops of their digits."""


def test_marks_between_the_levels_of_an_atlas_cover_no_number(browser: Browser):
    places = [(0.5 + x / 4, 0.5 + y / 10) for x in range(5) for y in range(11)]
    marks = [Mark(x, y, filled, "a mark") for x, y in places for filled in (True, False)]
    tiles = [[Tile("0.25", shade) for shade in (0.0, 1.0)] for _ in range(2)]
    page = browser.new_page()
    page.set_content(
        tile_chart("t", [TileTable("3", ["a", "b"], ["c", "d"], tiles, marks)], across=1)
    )
    drawn, numbers = page.evaluate(MARKS_AND_NUMBERS)
    page.close()
    assert (len(drawn), len(numbers)) == (len(marks), 4)
    for mark in drawn:
        for number in numbers:
            apart = mark[0] >= number[1] or mark[1] <= number[0]
            assert apart or mark[2] >= number[3] or mark[3] <= number[2]


def test_an_atlas_names_the_shares_of_the_decided_and_of_the_best_configuration(run_copy: Path):
    directory = RunDirectory(run_copy)
    config = directory.config()
    atlas = some_atlas(config)
    directory.stage(1).atlas.write(AtlasRecord(stage=1, weights=1, atlas=atlas))
    page = build_report(run_copy).read_text(encoding="utf-8")
    best = atlas.best(domain_of(config)).values()
    for group, knobs in directory.stage(1).decision.read().configuration.values().items():
        shares = [100 * one["data_ratio"] for one in (knobs, best[group])]
        words = "{} × {}, decided {:.0f}% of the data, best {:.0f}%"  # noqa: RUF001
        assert words.format(group, group, *shares) in page


def test_both_themes_have_contrast_on_the_ice(open_page: OpenPage):
    seen = set()
    for theme in ("light", "dark"):
        page = open_page(theme=theme)
        page.select_option("#result", "valid")
        ice, words = (
            page.locator(one).first.evaluate("node => getComputedStyle(node).fill")
            for one in (".lake-ice", ".lake-goal")
        )
        assert contrast(ice, words) >= 4.5
        seen.add(ice)
    assert len(seen) == 2


def test_policy_of_the_page_refuses_scripts_and_styles_that_are_not_its_own(
    browser, address, tmp_path
):
    page_file = Path(address.removeprefix("file://"))
    changed = page_file.read_text(encoding="utf-8").replace(
        "</body>",
        "<script>document.title = 'run'</script><style>h1 { color: red }</style>"
        '<p id="painted" style="color: red">x</p></body>',
    )
    file = tmp_path / "changed.html"
    file.write_text(changed, encoding="utf-8")
    page = browser.new_page()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(file.as_uri())
    assert page.title() != "run"
    assert sum("Content Security Policy" in words for words in refused) == 3
    colour = "one => getComputedStyle(one).color"
    assert "rgb(255, 0, 0)" not in [
        page.locator(one).evaluate(colour) for one in ("h1", "#painted")
    ]
    page.close()


def test_answers_of_another_environment_are_listed_as_text(browser: Browser, tmp_path: Path):
    directory = RunDirectory(tmp_path / "sums")
    for stage, solved in enumerate(((0,), (0, 1, 3))):
        rows = [
            EpisodeRecord(
                id=number,
                group="short" if number < 2 else "long",
                instance={"number": number},
                lines=(f"<b>{number}</b> + 1",),
                slices={},
                text=f"{ATTACK} {number}",
                reward=0.5,
                valid=number in solved,
                scores={"best": number in solved},
                parsed=True,
                failure=None if number in solved else "wrong_digit",
                time=None,
                reason=None,
            )
            for number in range(4)
        ]
        files = directory.stage(stage)
        files.path.mkdir(parents=True)
        files.episodes.write(rows)
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(build_report(directory.path).as_uri())
    assert listed(page) == [0, 1, 2, 3]
    assert page.inner_text("#instance-lines") == "<b>0</b> + 1"
    assert page.locator("#play, #holes, #waits, .lake-board").count() == 0
    page.select_option("#change", "gained")
    assert listed(page) == [1, 3]
    page.select_option("#group", label="long")
    assert listed(page) == [3]
    assert page.inner_text("#said") == f"{ATTACK} 3"
    page.select_option("#change", "")
    page.select_option("#result", label="wrong digit")
    assert listed(page) == [2]
    assert errors == []
    page.close()
