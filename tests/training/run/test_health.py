"""Warnings of a run that does not learn or collapses."""

from typing import Any

import pytest

from jaxlake.statistics.paired import PairedComparison
from tests.paths import TINY
from tests.training.update_records import make_update
from training.run.answer_records import EpisodeRecord
from training.run.health import Finding, find_problems, print_findings, summarize
from training.run.records import GateRecord, UpdateMetrics
from training.schema import load

CONFIG = load(TINY, ["stages.instances=160"])  # 20 updates per stage


def make_updates(count: int, stage: int = 1, first: int = 1, **changes: Any) -> list[UpdateMetrics]:
    defaults = {"truncated_share": 0.1}
    return [
        make_update(stage, first + index, **{**defaults, **changes, "step": index})
        for index in range(count)
    ]


def make_answers(count: int, **changes: Any) -> list[EpisodeRecord]:
    defaults: dict[str, Any] = {"group": "3", "lines": ("S G",), "slices": {}, "text": "?"}
    defaults |= {"reward": 0.0, "valid": False, "scores": {}, "failure": "hole", "parsed": True}
    defaults |= {"time": 0, "reason": None}
    return [EpisodeRecord(id=index, **{**defaults, **changes}) for index in range(count)]


def make_gate(num_gained: int, num_lost: int, restored: Any = None) -> GateRecord:
    comparison, initial = PairedComparison(100, num_gained, num_lost), CONFIG.environment.initial
    return GateRecord(
        reference=0, comparison=comparison, restored=restored, configuration=initial, notice=""
    )


def test_find_problems_finds_nothing_in_a_healthy_stage():
    updates, answers = make_updates(20), {0: make_answers(9), 1: make_answers(9)}
    assert find_problems(CONFIG, updates, answers, {1: make_gate(9, 9)}) == []


@pytest.mark.parametrize(
    ("changes", "cause", "message"),
    [
        ({"parsed_rate": 0.0}, "unreadable", "0% of the answers are readable. Read a few"),
        (
            {"parsed_rate": 0.0, "zero_variance_share": 1.0, "grad_norm": 0.0},
            "unreadable",
            "prompt.style",
        ),
        (
            {"parsed_rate": 0.01, "truncated_share": 0.9},
            "unreadable",
            "90% are cut off at prompt.max_tokens = 24: raise it",
        ),
        ({"truncated_share": 0.5}, "cut_off", "50% of the answers are cut off at prompt.max_tok"),
        (
            {"zero_variance_share": 1.0, "grad_norm": 0.0, "valid_rate": 0.0},
            "no_variance",
            "100% of the groups have equal rewards, so nothing is learned (0% of answers valid). "
            "Try easier instances",
        ),
        ({"zero_variance_share": 1.0, "valid_rate": 1.0}, "no_variance", "Try harder instances"),
        ({"grad_norm": 0.0}, "no_gradient", "the gradient is zero"),
    ],
)
def test_find_problems_names_training_problems(changes: Any, cause: str, message: str):
    records = [*make_updates(5), *make_updates(12, first=6, **changes), *make_updates(3, first=18)]
    [finding] = find_problems(CONFIG, records)
    assert (finding.stage, finding.cause) == (1, cause)
    assert str(finding).startswith("stage 1: in updates 6 to 17, ")
    assert message in str(finding)


def test_find_problems_waits_for_ten_updates_or_a_whole_stage():
    assert find_problems(CONFIG, make_updates(9, parsed_rate=0.0)) == []
    records = [*make_updates(9, parsed_rate=0.0), *make_updates(9, first=10)]
    assert find_problems(CONFIG, records) == []
    short_config = load(TINY)  # 4 updates per stage
    assert find_problems(short_config, make_updates(3, parsed_rate=0.0)) == []
    assert len(find_problems(short_config, make_updates(4, parsed_rate=0.0))) == 1


def test_find_problems_counts_replaced_groups_as_learned_from():
    idle_metrics = {"zero_variance_share": 1.0, "resampled_boards": 8}
    assert find_problems(CONFIG, make_updates(20, **idle_metrics, replaced_boards=8)) == []
    assert len(find_problems(CONFIG, make_updates(20, **idle_metrics, replaced_boards=0))) == 1


def test_find_problems_blames_masked_answers_for_a_zero_gradient():
    config = load(TINY, ["stages.instances=160", "grpo.mask_truncated=true"])
    [finding] = find_problems(config, make_updates(20, grad_norm=0.0))
    assert finding.advice.startswith("grpo.mask_truncated excludes cut off answers")


def test_find_problems_reads_validation_answers():
    unreadable_answers = make_answers(50, parsed=False, failure="parse_error")
    [finding] = find_problems(CONFIG, answers={0: unreadable_answers})
    assert str(finding).startswith("stage 0: 0 of 50 validation answers are readable. Read a few")
    findings = find_problems(CONFIG, make_updates(20, parsed_rate=0.0), {1: unreadable_answers})
    assert [finding.cause for finding in findings] == ["unreadable"]
    truncated_answers = [*make_answers(20, truncated=True), *make_answers(30)]
    [finding] = find_problems(CONFIG, answers={2: truncated_answers})
    assert (finding.cause, finding.fact[:8]) == ("cut_off", "20 of 50")


def test_find_problems_reports_significant_falls():
    assert find_problems(CONFIG, gates={1: make_gate(5, 9)}) == []
    [finding] = find_problems(CONFIG, gates={1: make_gate(5, 25)})
    assert str(finding).startswith("stage 1: the valid rate fell by 20.0 points [9.")
    assert "engineer.gate.rollback=checkpoint" in finding.advice
    [finding] = find_problems(CONFIG, gates={2: make_gate(5, 25, "checkpoint")})
    assert "the previous checkpoint was restored" in finding.fact
    assert "rollback" not in finding.advice


def test_summarize_gives_one_line_per_cause():
    causes = [(1, "unreadable"), (1, "fell"), (2, "unreadable"), (4, "unreadable")]
    findings = [Finding(stage, cause, f"fact {stage}", "Try") for stage, cause in causes]
    assert summarize(findings) == [
        "Stage 1: fact 1. Also in stages 2, 4. Try.",
        "Stage 1: fact 1. Try.",
    ]


def test_print_findings_prints_each_stage_and_cause_once(capsys: pytest.CaptureFixture[str]):
    records: list[UpdateMetrics] = []
    findings = find_problems(CONFIG, records)
    for update in make_updates(20, parsed_rate=0.0):
        records.append(update)
        findings = print_findings(find_problems(CONFIG, records), findings)
    assert capsys.readouterr().out.count("\n") == 1
