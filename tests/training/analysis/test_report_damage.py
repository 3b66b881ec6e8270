"""Reports of damaged or unfinished runs name the problems and show the rest."""

import shutil

import pytest

from tests.training.analysis.pages import build_page
from training.analysis.report.load_run import load_run


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("summary.json", None, "The run has not finished"),
        ("metrics.jsonl", None, "metrics.jsonl: is missing"),
        ("stages", None, "stages/0: does not exist yet"),
        ("stages/2", None, "stages/2: does not exist yet"),
        ("stages/3/decision.json", None, "stages/3/decision.json: is missing"),
        ("stages/3/episodes.jsonl", None, "stages/3/episodes.jsonl: is missing"),
        ("metrics.jsonl", "[1]\n3\n", "metrics.jsonl:1: "),
        ("stages/3/episodes.jsonl", '{"id": 7}\n', "stages/3/episodes.jsonl:1: group: required"),
        ("stages/2/decision.json", '{"kind": "accepted"}', "stages/2/decision.json: stage: req"),
        ("summary.json", "{}", "The run has not finished"),
    ],
)
def test_missing_or_damaged_file_is_named(run_copy, name, text, sentence):
    path = run_copy / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    else:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert sentence in " ".join(load_run(run_copy).missing)


def test_damaged_line_affects_only_itself(run_copy):
    all_episodes = load_run(run_copy).stages[3].episodes
    path = run_copy / "stages/3/episodes.jsonl"
    lines = path.read_text().splitlines()
    lines[1], lines[4] = '{"id": 1}', lines[4][:40]
    path.write_text("\n".join(lines))
    run = load_run(run_copy)
    assert run.stages[3].episodes == (all_episodes[0], *all_episodes[2:4], *all_episodes[5:])
    field_message, json_message = run.missing
    assert json_message == "stages/3/episodes.jsonl:5: not JSON; the line is left out"
    assert field_message.startswith("stages/3/episodes.jsonl:2: group: required, but missing; ")
    path.write_text("{}\n" * 9)
    assert load_run(run_copy).missing[-1] == "stages/3/episodes.jsonl: 4 more lines are left out"


def test_page_of_incomplete_run_names_missing_files(run_copy):
    shutil.rmtree(run_copy / "stages")
    for name in ("summary.json", "timings.jsonl"):
        (run_copy / name).unlink()
    page = build_page(run_copy)
    for sentence in ("not finished", "stages/0: does not exist yet"):
        assert sentence in page.text
    assert "Nothing has been validated yet." in page.text
    assert "Training reward" in page.text


def test_incomplete_last_log_line_is_ignored(run_copy):
    metrics_file = run_copy / "metrics.jsonl"
    metrics_file.write_text(metrics_file.read_text() + '{"phase": "train", "stage": 3, "upd')
    run = load_run(run_copy)
    assert run.missing == ()
    assert len(run.updates) == 120


def test_report_survives_a_damaged_last_validation(run_copy, cli):
    episodes_file = run_copy / "stages/3/episodes.jsonl"
    episodes_file.write_text(episodes_file.read_text()[:40])
    result = cli("report", run_copy)
    assert (result.status, result.out) == (0, f"{run_copy / 'report.html'}\n")
    assert "stages/3/episodes.jsonl:1: not JSON" in (run_copy / "report.html").read_text()
