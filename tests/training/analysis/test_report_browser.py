"""A run's page in a real browser: it plays, lists, filters and obeys its CSP."""

from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.paths import ROOT
from tests.training.analysis.pages import ATTACK, LAST_STAGE, SMALLEST_TEXT, OpenPage, open_pages
from training.analysis.report import build_report
from training.run.answer_records import EpisodeRecord
from training.run.directory import RunDirectory


def read_episodes(run: Path, stage: int) -> list[EpisodeRecord]:
    return list(RunDirectory(run).stage(stage).episodes.read())


def read_ids(page: Page) -> list[int]:
    return [int(text) for text in page.locator("#listed .pick").all_inner_texts()]


def read_styles(page: Page, board: str) -> list[str]:
    return page.locator(f"{board} .lake-agent").evaluate_all("all => all.map(g => g.style.cssText)")


def test_answer_plays_next_to_the_solver(open_page: OpenPage):
    page = open_page()
    page.select_option("#result", "valid")
    first_styles = [read_styles(page, board) for board in ("#model-board", "#solver-board")]
    page.select_option("#speed", "4")
    page.click("#play")
    assert page.inner_text("#play") == "Pause"
    expect(page.locator("#play")).to_have_text("Play", timeout=15_000)
    last_step = page.get_attribute("#scrub", "max")
    assert page.input_value("#scrub") == last_step
    last_styles = [read_styles(page, board) for board in ("#model-board", "#solver-board")]
    assert last_styles[0] != first_styles[0]
    assert last_styles[1] != first_styles[1]
    page.select_option("#speed", "0.5")  # so that it doesn't end between the two clicks
    page.click("#play")
    page.click("#play")
    assert page.inner_text("#play") == "Play", "the second click did not pause"
    paused_step = page.input_value("#scrub")
    page.wait_for_timeout(3000)  # two steps at this speed
    assert page.input_value("#scrub") == paused_step


def test_scrubbing_equals_stepping(open_page: OpenPage, run_with_attacks: Path):
    page = open_page()
    failed_episodes = [
        episode
        for episode in read_episodes(run_with_attacks, LAST_STAGE)
        if episode.time is not None
        and episode.failure not in ("goal_not_reached", "swapping_conflict")
    ]
    episode, failure = failed_episodes[0], str(failed_episodes[0].failure).replace("_", " ")
    page.select_option("#result", label=failure)
    assert read_ids(page)[0] == episode.id
    for _ in range(episode.time + 1):
        assert page.locator("#model-board .lake-ring").count() == 0
        page.click("#forward")
    assert page.locator("#model-board .lake-ring").count() > 0
    assert f"{failure} in step {episode.time}" in page.inner_text("#outcome")
    assert failure in (page.get_attribute("#scrub", "aria-valuetext") or "")
    final_styles = read_styles(page, "#model-board")
    page.click("#back")
    assert read_styles(page, "#model-board") != final_styles
    page.locator("#scrub").fill(str(episode.time + 1))
    assert read_styles(page, "#model-board") == final_styles
    page.locator("#scrub").focus()
    page.keyboard.press("ArrowLeft")
    assert page.input_value("#scrub") == str(episode.time)


def test_filters_list_matching_episodes(open_page: OpenPage, run_with_attacks: Path):
    page = open_page()
    old_episodes = read_episodes(run_with_attacks, LAST_STAGE - 1)
    episodes = read_episodes(run_with_attacks, LAST_STAGE)
    assert read_ids(page) == [episode.id for episode in episodes][:50]
    page.click("#next-page")
    assert read_ids(page) == [episode.id for episode in episodes][50:100]
    page.select_option("#change", "gained")
    pairs = zip(old_episodes, episodes, strict=True)
    gains = [episode for old, episode in pairs if episode.valid and not old.valid]
    assert gains
    assert read_ids(page) == [episode.id for episode in gains][:50]
    page.select_option("#group", label="4x4")
    assert read_ids(page) == [episode.id for episode in gains if episode.group == "4"][:50]
    page.select_option("#change", "")
    page.select_option("#waits", label="yes")
    cases = [episode for episode in episodes if episode.group == "4" and episode.lake.needs_wait]
    assert read_ids(page) == [episode.id for episode in cases]
    num_holes = "".join(cases[0].lines).count("H")
    page.select_option("#holes", label=str(num_holes))
    matches = [episode for episode in cases if "".join(episode.lines).count("H") == num_holes]
    assert read_ids(page) == [episode.id for episode in matches]
    page.select_option("#stage", label="Stage 1")
    page.select_option("#result", "failed")
    matching_ids = {episode.id for episode in matches}
    failed_ids = [
        episode.id
        for episode in read_episodes(run_with_attacks, 1)
        if episode.id in matching_ids and not episode.valid
    ]
    assert read_ids(page) == failed_ids


def test_hostile_model_texts_are_escaped(open_page: OpenPage):
    page = open_page()
    title = page.title()
    assert page.inner_text("#said") == ATTACK
    assert ATTACK in page.inner_text("#about")
    page.click("#next")
    assert page.inner_text("#said") == ATTACK + "\ud800"
    assert page.locator("img").count() == 0
    assert page.title() == title


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1400, "light")])
def test_page_fits_and_can_be_read(open_page: OpenPage, width: int, theme: str):
    page = open_page(width, theme)
    page.select_option("#result", "valid")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    size, text = page.evaluate(SMALLEST_TEXT)
    assert size >= 11, f"text of {size} pixels: {text}"
    boards = page.locator(".lake-board").all()
    widths = [board.bounding_box()["width"] for board in boards]
    assert min(widths) >= {390: 280, 1400: 420}[width]
    tops = [board.bounding_box()["y"] for board in boards]
    assert (tops[0] == tops[1]) == (width > 390)
    for table in page.locator(".scroll").all():
        name, is_last_column_visible = table.evaluate(
            "box => { const cell = box.querySelector('tr').lastElementChild; return [box.ariaLabel,"
            " cell.getBoundingClientRect().right <= box.getBoundingClientRect().right] }"
        )
        assert is_last_column_visible, f"the last column needs scrolling: {name}"
    if width == 390:
        for table in page.locator(".scroll:not(.tall)").all():
            heights = table.evaluate("box => [box.clientHeight, box.scrollHeight]")
            assert heights[0] == heights[1], "a table scrolls vertically on a narrow screen"


def test_page_policy_blocks_foreign_scripts_and_styles(browser, address, tmp_path):
    page_file = Path(address.removeprefix("file://"))
    changed_html = page_file.read_text(encoding="utf-8").replace(
        "</body>", "<script>document.title = 'run'</script><style>h1 { color: red }</style></body>"
    )
    changed_file = tmp_path / "changed.html"
    changed_file.write_text(changed_html, encoding="utf-8")
    page = browser.new_page()
    violations: list[str] = []
    page.on("console", lambda message: violations.append(message.text))
    page.goto(changed_file.as_uri())
    assert page.title() != "run"
    assert sum("Content Security Policy" in text for text in violations) == 2
    colour = page.locator("h1").evaluate("heading => getComputedStyle(heading).color")
    assert colour != "rgb(255, 0, 0)"
    page.close()


def test_other_environments_list_answers_as_text(browser: Browser, tmp_path: Path):
    directory = RunDirectory(tmp_path / "sums")
    directory.path.mkdir()
    directory.config_file.write_text((ROOT / "tests/training/environments/parity.yaml").read_text())
    for stage, solved_ids in enumerate(((0,), (0, 1, 3))):
        episodes = [
            EpisodeRecord(
                id=number,
                group="8" if number < 2 else "9",
                instance={"number": number},
                lines=(f"<b>{number}</b> + 1",),
                slices={},
                text=f"{ATTACK} {number}",
                reward=0.5,
                valid=number in solved_ids,
                scores={"best": number in solved_ids},
                parsed=True,
                failure=None if number in solved_ids else "wrong_digit",
                time=None,
                reason=None,
            )
            for number in range(4)
        ]
        stage_directory = directory.stage(stage)
        stage_directory.path.mkdir(parents=True)
        stage_directory.episodes.write(episodes)
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(build_report(directory.path).as_uri())
    assert read_ids(page) == [0, 1, 2, 3]
    assert page.inner_text("#instance-lines") == "<b>0</b> + 1"
    assert page.locator("#play, #holes, #waits, .lake-board").count() == 0
    page.select_option("#change", "gained")
    assert read_ids(page) == [1, 3]
    page.select_option("#group", label="9")
    assert read_ids(page) == [3]
    assert page.inner_text("#said") == f"{ATTACK} 3"
    page.select_option("#change", "")
    page.select_option("#result", label="wrong digit")
    assert read_ids(page) == [2]
    assert errors == []
    page.close()


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1400, "light"), (1400, "dark")])
def test_study_page_fits_its_window(browser: Browser, finished_study: Path, width: int, theme: str):
    address = (finished_study / "out/report/report.html").as_uri()
    with contextmanager(open_pages)(browser, address) as open_study:
        page = open_study(width, theme)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        size, text = page.evaluate(SMALLEST_TEXT)
        assert size >= 11, f"text of {size} pixels: {text}"
