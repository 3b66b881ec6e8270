"""The page of a run without a mouse: keyboard, touch, screen readers, colours, little motion."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page

from tests.training.analysis.browsing import TEXT_COLOURS, OpenPage, contrast
from training.analysis.report import build_report
from training.run.answer_records import count_answers
from training.run.directory import RunDirectory
from training.run.records import UpdateMetrics


def updates_of(run: Path) -> list[UpdateMetrics]:
    return [one for one in RunDirectory(run).metrics.read() if isinstance(one, UpdateMetrics)]


def chart(page: Page, name: str) -> Locator:
    return page.locator(f'svg.chart[aria-label="{name}"]')


def told(page: Page) -> str:
    """What the tooltip says; nothing while it is hidden."""
    box = page.locator(".tooltip")
    return box.inner_text() if box.is_visible() else ""


def test_line_chart_tells_the_values_of_an_update_to_the_arrow_keys(open_page, hostile_run):
    page, updates = open_page(), updates_of(hostile_run)
    rewards = chart(page, "Training reward")
    rewards.focus()
    page.keyboard.press("End")
    last = f"GRPO update {len(updates)}, stage 3: {updates[-1].reward_mean:.3g} (mean "
    assert told(page).startswith(last)
    assert rewards.get_attribute("aria-valuetext") == told(page)
    page.keyboard.press("ArrowLeft")
    number = int(re.findall(r"update (\d+)", told(page))[0])
    assert number < len(updates)
    assert told(page).split(": ")[1].startswith(f"{updates[number - 1].reward_mean:.3g} ")
    assert rewards.locator(".cursor circle").count() == 1
    page.keyboard.press("Escape")
    assert told(page) == ""
    assert rewards.locator(".cursor > *").count() == 0


def test_line_chart_tells_the_values_below_a_pointer_and_hides_them_after_it(open_page):
    page = open_page()
    rates = chart(page, "Training rates")
    rates.scroll_into_view_if_needed()
    box = rates.bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.5 * box["height"])
    first = told(page)
    assert re.fullmatch(
        r"GRPO update \d+, stage 1: valid [\d.]+% \(mean [\d.]+%\), optimal .*", first
    )
    page.mouse.move(box["x"] + 0.55 * box["width"], box["y"] + 0.5 * box["height"])
    assert told(page) not in ("", first)
    assert rates.locator(".cursor circle").count() == 2
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] - 30)
    assert told(page) == ""


def test_rate_chart_tells_every_value_with_its_interval_to_the_arrow_keys(open_page, hostile_run):
    page = open_page()
    rates = chart(page, "Valid and optimal rate, All sizes")
    rates.focus()
    said = [told(page)]
    for _ in range(7):
        page.keyboard.press("ArrowRight")
        said.append(told(page))
    assert len(set(said)) == 8, "two rates of four validations"
    page.keyboard.press("ArrowRight")
    assert told(page) == said[-1]
    total = count_answers(1, RunDirectory(hostile_run).stage(1).episodes.read()).total
    [valid] = [words for words in said if re.match(r"valid .* stage 1$", words)]
    assert f"valid {100 * total.valid / total.count:.1f}% [" in valid


def test_tap_on_a_chart_tells_the_value_there_until_a_tap_beside_it(open_page):
    page = open_page(390, has_touch=True)
    for name in ("Failures, All sizes", "Training reward"):
        drawn = chart(page, name)
        drawn.scroll_into_view_if_needed()
        box = drawn.bounding_box()
        page.touchscreen.tap(box["x"] + 0.35 * box["width"], box["y"] + 0.45 * box["height"])
        assert re.search(r"\d", told(page)), name
        inside = page.locator(".tooltip").bounding_box()
        assert inside["x"] >= 0
        assert inside["x"] + inside["width"] <= 390
        page.touchscreen.tap(5, 5)
        assert told(page) == "", name


def test_player_obeys_space_and_arrow_keys_while_its_boards_have_the_focus(open_page):
    page = open_page()
    page.select_option("#result", "valid")
    page.locator("#boards").focus()
    scrolled = page.evaluate("scrollY")
    keys = [("ArrowRight", "1"), ("ArrowRight", "2"), ("ArrowLeft", "1"), ("Home", "0")]
    for key, step in keys:
        page.keyboard.press(key)
        assert page.input_value("#scrub") == step
    page.keyboard.press(" ")
    assert page.inner_text("#play") == "Pause"
    page.keyboard.press(" ")
    assert page.inner_text("#play") == "Play"
    page.keyboard.press("End")
    assert page.input_value("#scrub") == page.get_attribute("#scrub", "max")
    assert page.evaluate("scrollY") == scrolled


def accessible(page: Page) -> list[dict[str, Any]]:
    """Chromium's accessibility tree, without what it ignores."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    return [
        {
            "role": node["role"]["value"],
            "name": node.get("name", {}).get("value", "").strip(),
            "value": node.get("value", {}).get("value", ""),
        }
        for node in nodes
        if not node["ignored"]
    ]


def test_screen_readers_are_told_a_name_for_everything_that_can_be_used(open_page):
    tree = accessible(open_page())
    filters = {node["name"] for node in tree if node["role"] == "combobox"}
    asked = {"Stage", "Map size", "Holes", "Wait needed", "Result", "Since the stage before"}
    assert filters == asked | {"Speed"}
    sliders = {node["name"] for node in tree if node["role"] == "slider"}
    assert {"Step", "Training reward", "Valid and optimal rate, All sizes"} <= sliders
    for role in ("button", "slider", "combobox", "link", "image", "region", "DisclosureTriangle"):
        named = [node["name"] for node in tree if node["role"] == role]
        assert named, role
        assert all(named), role


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_has_contrast(open_page: OpenPage, theme: str):
    page = open_page(theme=theme)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    chart(page, "Training reward").focus()
    colours = page.evaluate(TEXT_COLOURS)
    assert len(colours) > 10
    weak = [row for row in colours if contrast(*row[:2]) < 4.5]
    assert weak == []


def test_nothing_moves_by_itself_where_little_motion_is_asked_for(open_page):
    moving = []
    for motion in ("no-preference", "reduce"):
        page = open_page(reduced_motion=motion)
        page.select_option("#result", "valid")
        agent = page.locator(".lake-agent").first
        moving.append(
            (
                agent.evaluate("one => getComputedStyle(one).transitionDuration"),
                page.evaluate("document.getAnimations().some(one => one.animationName)"),
            )
        )
    assert moving == [("0.25s", True), ("0s", False)]


def test_failure_on_a_board_that_cannot_be_read_is_shown(
    browser: Browser, hostile_run: Path, run_copy: Path
):
    file = RunDirectory(run_copy).stage(3).episodes
    first, *others = file.read()
    failure = {"valid": False, "scores": {}, "failure": "hole", "time": 1}
    failure |= {"lines": ("S G",), "lake": first.lake.model_copy(update={"agent": 1})}
    file.write([first.model_copy(update=failure), *others])
    page = browser.new_page()
    page.goto(build_report(run_copy).as_uri())
    page.select_option("#result", label="hole")
    assert page.locator("#listed .pick").first.inner_text() == str(first.id)
    assert page.inner_text("#outcome") == "✗ hole in step 1, agent 1"
    assert page.inner_text("#model-board") == "The grid of this record is no board."
    page.close()
