"""The trainee's measurements on this machine: what is refused, and what the committed file says."""

import json

import pytest

from benchmarks.trainee.__main__ import main
from benchmarks.trainee.beside import refuse_different_updates, table_beside
from benchmarks.trainee.step_times import WORK, table_of_steps
from tests.paths import ROOT

RESULT = json.loads((ROOT / "benchmarks/results/trainee-cpu.json").read_text())


def test_sides_that_compute_different_updates_are_refused() -> None:
    same = {"plans": {"loss": -0.25, "grad_norm": 1.5}}
    refuse_different_updates({"ours": same, "TRL": {"plans": {"loss": -0.2501, "grad_norm": 1.5}}})
    for wrong in (-0.26, float("nan")):
        other = {"plans": {"loss": wrong, "grad_norm": 1.5}}
        with pytest.raises(ValueError, match=r"plans: loss is -0\.25 here"):
            refuse_different_updates({"ours": same, "TRL": other})


def test_the_tables_in_the_docs_are_those_of_the_committed_file() -> None:
    page = (ROOT / "docs/trainee_benchmarks.md").read_text()
    table, peaks = table_beside(RESULT["beside_trl"]).split("\n\n")
    assert table in page
    assert peaks in page
    assert table_of_steps(RESULT["steps"]) in page
    steps = RESULT["steps"]
    assert sum(steps["seconds"].values()) == pytest.approx(steps["wall_seconds"], abs=0.01)
    work = sum(steps["seconds"][name] for name in WORK) / steps["wall_seconds"]
    assert steps["beside_work"] == pytest.approx(1 - work, abs=1e-3)
    assert steps["beside_work"] < 0.1


def test_something_to_measure_has_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "--beside" in capsys.readouterr().err
