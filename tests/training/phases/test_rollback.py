"""Rollbacks by a run's gate, and contexts that can't be cut to fit."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engineer import BLOCKS
from engineer.context.symbols import make_compact_context
from jaxlake.command_line.entry import main
from tests.training.sample_run import CONFIG, write_sample_run
from training.phases.stage_results import (
    FAILED_CASES,
    get_configuration,
    make_stage_view,
    read_stage_results,
)
from training.run.directory import RunDirectory
from training.schema import RunConfig


def read_configuration(run: Path, stage: int) -> Any:
    return json.loads((run / f"stages/{stage}/configuration.json").read_text())


@pytest.mark.parametrize("rollback", ["configuration", "checkpoint"])
def test_second_rollback_skips_the_rolled_back_design(tmp_path, rollback):
    config = RunConfig.model_validate(CONFIG | {"engineer": {"gate": {"rollback": rollback}}})
    run = write_sample_run(tmp_path / "run", config, skills=(0.3, 0.9, 0.5, 0.1))
    gates = [json.loads((run / f"stages/{stage}/gate.json").read_text()) for stage in (1, 2, 3)]
    assert [gate["restored"] for gate in gates] == [None, rollback, rollback]
    assert len({json.dumps(read_configuration(run, stage)) for stage in (1, 2, 3)}) == 3
    assert [gate["configuration"] for gate in gates] == [read_configuration(run, 1)] * 3


def test_rollback_restores_failures(tmp_path):
    gate = {"rollback": "checkpoint"}
    config = RunConfig.model_validate(CONFIG | {"engineer": {"gate": gate, "kind": "rule"}})
    run = RunDirectory(write_sample_run(tmp_path / "run", config, skills=(0.3, 0.9, 0.1, 0.9)))
    results = read_stage_results(run, config)
    assert results[2].gate.restored == "checkpoint"
    view = make_stage_view(config, results, 2)
    restored_evidence, rejected_evidence = (results[stage].evidence for stage in (1, 2))
    assert (view.evidence.validation, view.evidence.failed_cases) == (
        restored_evidence.validation,
        restored_evidence.failed_cases,
    )
    assert view.evidence.validation != rejected_evidence.validation
    # The context still reports the configuration that was tried.
    assert (view.evidence.stage, view.evidence.training) == (2, rejected_evidence.training)
    assert view.trained == get_configuration(config, results, 2)
    assert "restored; the failures shown are theirs" in view.notice
    # The trend shows the tried edit, which made the valid rate fall.
    context = make_compact_context(view, BLOCKS)
    assert {row.trend for row in context.groups.values()} == {-1}
    shares = {group: row.valid / row.count for group, row in restored_evidence.validation.items()}
    valid_counts = {group: row.valid for group, row in context.groups.items()}
    assert valid_counts == {group: math.floor(10 * share + 0.5) for group, share in shares.items()}


def test_context_command_prints_what_the_engineer_saw(tmp_path, capsys):
    config = RunConfig.model_validate(CONFIG | {"engineer": {"style": "full"}})
    run = write_sample_run(tmp_path / "run", config, skills=(0.3, 0.9, 0.1, 0.9))
    capsys.readouterr()
    assert main(["engineer", "context", str(run), "--stage", "2"]) == 0
    stdout = capsys.readouterr().out
    assert stdout == (run / "stages/2/context.txt").read_text()
    assert "The valid rate fell by" in stdout


def test_failed_cases_have_the_most_frequent_kinds(tmp_path):
    config = RunConfig.model_validate(CONFIG)
    run = RunDirectory(write_sample_run(tmp_path / "run", config))
    evidence = read_stage_results(run, config)[2].evidence
    counts: Counter[tuple[str, str]] = Counter()
    for group, tally in evidence.validation.items():
        counts.update({(group, kind): count for kind, count in tally.failures.items()})
    failures = [(case.group, case.failure) for case in evidence.failed_cases]
    assert len(set(failures)) == len(failures) == min(FAILED_CASES, len(counts))
    expected_counts = [count for _, count in counts.most_common(len(failures))]
    assert [counts[case] for case in failures] == expected_counts
