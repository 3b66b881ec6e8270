"""The report of a complete or incomplete run: one safe page that agrees with the files."""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import jaxlake
from jaxlake import wilson_interval
from tests.training.analysis.pages import Page, build_page
from tests.training.sample_run import DESIGNS, HOSTILE_TEXT
from training.analysis import RATE_NAMES
from training.analysis.report import build_report
from training.analysis.report.answers import answers_json
from training.analysis.report.load_run import load_run
from training.errors import UserError
from training.loop import run
from training.run.answer_records import Rates, compute_validation_rates
from training.run.directory import RunDirectory
from training.run.records import DecisionRecord


@pytest.fixture(scope="module")
def page(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    page_file = tmp_path_factory.mktemp("page") / "report.html"
    return Page(build_report(finished_run, page_file).read_text(encoding="utf-8"))


def read_decisions(run: Path) -> list[DecisionRecord]:
    return [RunDirectory(run).stage(stage).decision.read() for stage in (1, 2, 3)]


def iterate_validations(run: Path) -> Iterator[tuple[int, str, Rates]]:
    """Yield the stage, the map size as the page writes it, and the counts of each validation."""
    for stage in range(4):
        validation = compute_validation_rates(stage, RunDirectory(run).stage(stage).episodes.read())
        for size, row in validation.groups.items():
            yield stage, f"{size}x{size}", row
        yield stage, "All", validation.total


def test_report_validation_table_matches_files(finished_run, page):
    table, group = {}, ""
    for cells in page.rows:
        if len(cells) == 6 and "/" in cells[-1]:
            group, *cells = cells
        if len(cells) == 5 and "/" in cells[-1]:
            for stage, cell in enumerate(cells[1:]):
                table[stage, group, cells[0]] = " ".join(cell.split())
    expected = {}
    for stage, name, row in iterate_validations(finished_run):
        for metric, metric_name in RATE_NAMES.items():
            count = row.successes(metric)
            share, low, high = (
                f"{100 * x:.1f}" for x in (count / row.count, *wilson_interval(count, row.count))
            )
            expected[stage, name, metric_name] = f"{share} [{low}, {high}] {count}/{row.count}"
    assert table == expected


def test_report_configuration_table_marks_changes(finished_run, page):
    directory, decisions = RunDirectory(finished_run), read_decisions(finished_run)
    configurations = [directory.stage(stage).configuration.read().values() for stage in (1, 2, 3)]
    configurations.append(decisions[-1].configuration.values())
    ratio_rows = [
        row[-5:] for row in page.rows if len(row) in (5, 6) and row[-5].endswith("_ratio")
    ]
    expected = []
    for size in configurations[0]:
        for knob in ("data_ratio", "hole_ratio", "wait_ratio"):
            values = [f"{configuration[size][knob]:.2f}" for configuration in configurations]
            cells = [values[0]] + [
                new if new == old else f"{old} {new}" for old, new in itertools.pairwise(values)
            ]
            expected.append([knob, *cells])
    assert ratio_rows == expected
    num_changes = sum(len(decision.diff) for decision in decisions)
    assert num_changes > 5
    assert sum(value == "number changed" for _, value in page.attributes) == num_changes


def test_report_shows_each_decision_and_its_context(finished_run, page):
    for stage, decision in enumerate(read_decisions(finished_run), start=1):
        assert f"After stage {stage} {decision.kind}" in page.text
        assert RunDirectory(finished_run).stage(stage).context.read() in "".join(page.text_pieces)
        for answer in DESIGNS[stage - 1]:
            assert answer.encode("utf-8", "backslashreplace").decode() in "".join(page.text_pieces)


def test_report_begins_with_problems(run_copy, capsys):
    assert "What went wrong" not in build_page(run_copy).text
    directory = RunDirectory(run_copy)
    unread_metrics = {"parsed_rate": 0.0, "truncated_share": 0.0}
    records = [
        record.model_copy(update=unread_metrics)
        if getattr(record, "update", 0) and record.stage > 1
        else record
        for record in directory.metrics.read()
    ]
    directory.metrics.write(records)
    message = "Stage 2: in updates 1 to 40, 0% of the answers are readable. Also in stage 3. Read"
    text = build_page(run_copy).text
    assert text.index("What went wrong") < text.index("Valid answers to a fixed validation set")
    assert message in text
    capsys.readouterr()
    run(directory.config(), run_copy)  # it is finished
    assert message in capsys.readouterr().out


def test_report_shows_reasoning_and_unchanged_answers(run_copy):
    stage = RunDirectory(run_copy).stage(2)
    [answer] = stage.answers.read()
    reasoning = "Size 5 fails at holes, so <more> of them."
    changes = {"reasoning": reasoning, "text": "= = =", "kind": "unchanged"}
    stage.answers.write([answer.model_copy(update=changes)])
    stage.decision.write(stage.decision.read().model_copy(update={"kind": "unchanged", "diff": ()}))
    text = build_page(run_copy).text
    assert f"Its reasoning: {reasoning} Its answer: = = =" in text
    assert "The answer is the configuration in force: stage 3 has" in text
    assert "1 without a change" in text


def test_report_shows_answers_by_size(run_copy):
    last_stage = RunDirectory(run_copy).stage(3)
    truncation = {"truncated": True, "tokens": 40}
    last_stage.episodes.write(
        [
            episode.model_copy(update=truncation if episode.group == "4" else {})
            for episode in last_stage.episodes.read()
        ]
    )
    rows = {row[0]: row[1:] for row in build_page(run_copy).rows if len(row) == 5}
    stages = [RunDirectory(run_copy).stage(stage).episodes.read() for stage in (0, 3)]
    flags = [[episode.parsed for episode in stage if episode.group == "4"] for stage in stages]
    parsed_rates = dict.fromkeys(f"{100 * np.mean(values):.1f}" for values in flags)
    failure_shares = [
        100 * np.mean([update.by_group["4"].without_success for update in updates])
        for updates in map(RunDirectory(run_copy).updates, (1, 3))
    ]
    failure_rates = dict.fromkeys(f"{share:.1f}" for share in failure_shares)
    join = " → ".join
    assert rows["4x4"] == [join(parsed_rates), "0.0 → 100.0", "18 → 40", join(failure_rates)]


def test_report_escapes_model_text(page):
    assert HOSTILE_TEXT[:-1] in "".join(page.text_pieces)
    assert not {"img", "iframe", "link", "object"} & set(page.tags)
    assert len(page.scripts) == page.source.count("<script") == 2, "the answers, and report.js"
    assert page.source.count("</script") == 2
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_report_page_is_self_contained(page):
    assert set(re.findall(r"https?://[^\"' <]+", page.source)) == {"http://www.w3.org/2000/svg"}
    assert not {name for name, _ in page.attributes} & {"src", "action", "data", "xlink:href"}
    references = [value or "" for name, value in page.attributes if name == "href"]
    references += re.findall(r"url\(([^)]*)", page.source)
    assert all(reference.startswith("#") for reference in references)
    assert "@import" not in page.source


def test_report_embeds_every_answer(finished_run, page):
    data = json.loads(page.scripts[0])
    letters = {name[0]: name for name in ("LEFT", "DOWN", "RIGHT", "UP", "WAIT")}

    def spell_moves(plan: list[str] | None) -> list[list[str]] | None:
        return None if plan is None else [[letters[move] for move in moves] for moves in plan]

    assert len(data["stages"]) == 4
    for stage_number, stage in enumerate(data["stages"]):
        episodes = RunDirectory(finished_run).stage(stage_number).episodes.read()
        assert len(stage["answers"]) == len(episodes)
        for answer, episode in zip(stage["answers"], episodes, strict=True):
            padded_answer = answer + [None] * (8 - len(answer))
            board_index, result_index, plan, time, agents, text, _, reason = padded_answer
            board = data["boards"][board_index]
            assert board[0] == episode.id
            assert data["groups"][board[1]] == f"{episode.group}x{episode.group}"
            assert board[2] == [row.replace(" ", "") for row in episode.lines]
            holes = "".join(episode.lines).count("H")
            assert board[3:6] == [holes, episode.lake.needs_wait, episode.lake.optimum]
            episode_plan = episode.lake.plan
            assert spell_moves(plan) == (episode_plan and [list(moves) for moves in episode_plan])
            outcome = "optimal" if episode.best else "valid, not optimal"
            failure = (episode.failure or outcome).replace("_", " ")
            assert data["results"][result_index] == failure
            assert (result_index < data["valid_results"]) == episode.valid
            assert (time, reason) == (episode.time, episode.reason)
            assert (episode.lake.agent in (agents or [])) == (episode.lake.agent is not None)
            if text is None:
                text = "\n".join(
                    f"Agent {k}: {' '.join(moves)}" for k, moves in enumerate(spell_moves(plan))
                )
            assert text == episode.text


def test_report_solver_plans_are_optimal(page):
    data = json.loads(page.scripts[0])
    actions = {action.name[0]: int(action) for action in jaxlake.Action}
    for _, _, rows, _, _, optimum, plan_letters in data["boards"]:
        board = jaxlake.parse_grid([" ".join(row) for row in rows], max_size=5)
        plan = np.full((32, 2), jaxlake.Action.WAIT)
        for agent, moves in enumerate(plan_letters):
            plan[: len(moves), agent] = [actions[move] for move in moves]
        outcome = jaxlake.verify(board, plan)
        assert bool(outcome.valid)
        assert int(outcome.sum_of_costs) == optimum == sum(map(len, plan_letters))


def test_report_cuts_long_texts_and_old_stages(finished_run):
    run = load_run(finished_run)
    full_answers = answers_json(run)
    assert (full_answers.omitted_validations, full_answers.stride) == (0, 1)
    half_answers = answers_json(run, max_characters=len(full_answers.text) // 2)
    num_omitted = half_answers.omitted_validations
    assert 0 < num_omitted < 4
    assert len(half_answers.text) <= len(full_answers.text) // 2
    assert len(json.loads(half_answers.text)["stages"]) == 4 - num_omitted
    short_answers = answers_json(run, max_characters=len(full_answers.text) // 12)
    assert len(short_answers.text) <= len(full_answers.text) // 12
    assert short_answers.stride > 1
    [stage] = json.loads(short_answers.text)["stages"]
    assert len(stage["answers"]) == -(-120 // short_answers.stride)
    assert answers_json(run, max_characters=100).text == ""


def test_report_page_is_the_only_output(run_copy, tmp_path):
    run_files = sorted(run_copy.rglob("*"))
    page_file = tmp_path / "out" / "page.html"
    page_file.parent.mkdir()
    page_file.write_text("old")
    assert build_report(run_copy, page_file) == page_file
    assert page_file.read_text(encoding="utf-8").lstrip().startswith("<!doctype html>")
    assert sorted(run_copy.rglob("*")) == run_files
    assert list(page_file.parent.iterdir()) == [page_file]
    with pytest.raises(UserError, match="got a folder"):
        build_report(run_copy, page_file.parent)


def test_report_loads_neither_torch_nor_vllm_nor_flax():
    program = (
        "import sys, training.analysis.report; "
        "sys.exit(', '.join({'torch', 'vllm', 'flax', 'transformers'} & set(sys.modules)) or 0)"
    )
    completed_process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert completed_process.returncode == 0, completed_process.stderr
