import json
from collections.abc import Sequence
from typing import Any

import pytest

from engineer.configuration import Bounds, answer_schema, answer_text
from engineer.context import build_context
from engineer.design import DesignRecord, DesignSettings, design
from engineer.engineers import EngineerError, GeneratorEngineer, RuleEngineer

BOUNDS = Bounds(sizes=(3, 4, 5))
SETTINGS = DesignSettings(bounds=BOUNDS, attempts=3, style="compact")


class Script:
    """Answers in turn; remembers what it was asked."""

    def __init__(self, answers: Sequence[str | Exception]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any], int]] = []

    def __call__(self, context: str, schema: dict[str, Any], attempt: int) -> str:
        self.asked.append((context, schema, attempt))
        answer = self.answers[len(self.asked) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


def run(script: Script, evidence, current, history, **options: Any) -> DesignRecord:
    engineer = GeneratorEngineer(script, name="script", count_tokens=len)
    settings = SETTINGS.model_copy(update=options)
    return design(engineer, evidence, current, history, settings=settings, num_agents=2)


def test_the_rule_designs_through_the_same_door(evidence, current, history):
    record = design(
        RuleEngineer(BOUNDS, 2), evidence, current, history, settings=SETTINGS, num_agents=2
    )
    assert (record.kind, record.engineer, record.stage) == ("accepted", "rule", 3)
    assert len(record.attempts) == 1
    assert record.attempts[0].text == answer_text(record.configuration)
    assert {change.field for change in record.diff} >= {"3.hole_ratio", "4.data_ratio"}


def test_a_good_answer_is_taken_and_all_is_recorded(evidence, current, history):
    script = Script([f"Keep it. {answer_text(current)}"])
    record = run(script, evidence, current, history)
    assert (record.kind, record.configuration, record.diff) == ("accepted", current, ())
    context = build_context(evidence, current, history, bounds=BOUNDS, style="compact")
    assert script.asked == [(context, answer_schema(BOUNDS), 0)]
    assert record.context == record.attempts[0].context == context
    assert record.attempts[0].text == script.answers[0]
    assert record.tokens == len(script.answers[0])


def test_repairs_stand_in_the_record(evidence, current, history):
    text = answer_text(current).replace('"hole_ratio":0.2', '"hole_ratio":0.9')
    record = run(Script([text]), evidence, current, history)
    assert record.kind == "repaired"
    assert [(r.name, r.field, r.old, r.new) for r in record.repairs] == [
        ("clamp", "3.hole_ratio", 0.9, 0.5)
    ]


def test_a_refused_engineer_is_told_why_and_asked_again(evidence, current, history):
    missing = answer_text(current).replace(',"wait_ratio":0.25', "")
    script = Script(["no idea", missing, answer_text(current)])
    record = run(script, evidence, current, history)
    assert record.kind == "accepted"
    assert [attempt.kind for attempt in record.attempts] == ["rejected", "rejected", "accepted"]
    assert [attempt for _, _, attempt in script.asked] == [0, 1, 2]
    assert "no complete JSON object" in script.asked[1][0]
    assert "3.wait_ratio is missing" in script.asked[2][0]
    assert "no complete JSON object" not in script.asked[2][0]
    assert [attempt.context for attempt in record.attempts] == [asked[0] for asked in script.asked]


def test_after_the_last_attempt_the_configuration_is_kept_and_it_is_said(
    evidence, current, history
):
    script = Script(["a", "b", "c", answer_text(current)])
    record = run(script, evidence, current, history)
    assert len(script.asked) == 3
    assert (record.kind, record.configuration, record.diff) == ("kept", current, ())
    assert record.reason.startswith("kept after 3 attempts, the last: the answer holds no")
    assert [attempt.text for attempt in record.attempts] == ["a", "b", "c"]


def test_an_engineer_that_fails_costs_an_attempt(evidence, current, history):
    script = Script([EngineerError("model x at y: HTTP 500"), answer_text(current)])
    record = run(script, evidence, current, history)
    assert record.kind == "accepted"
    failed = record.attempts[0]
    assert (failed.kind, failed.text, failed.reason) == ("failed", None, "model x at y: HTTP 500")
    assert script.asked[1][0] == script.asked[0][0]

    record = run(Script([EngineerError("down")] * 2), evidence, current, history, attempts=2)
    assert (record.kind, record.reason) == ("kept", "kept after 2 attempts, the last: down")


def test_a_bug_in_the_engineer_is_not_swallowed(evidence, current, history):
    with pytest.raises(ZeroDivisionError):
        run(Script([ZeroDivisionError()]), evidence, current, history)


@pytest.mark.parametrize("text", ["\ud800", "\x00" * 10, "x" * 50_000, "[" * 100_000])
def test_any_raw_text_can_be_written_and_read_back(evidence, current, history, text):
    record = run(Script([text] * 3), evidence, current, history)
    written = record.model_dump_json().encode("utf-8")
    assert DesignRecord.model_validate_json(written) == record
    raw = json.loads(written)["attempts"][0]["text"]
    assert raw == text.encode("utf-8", "backslashreplace").decode("utf-8")


def test_a_current_configuration_that_could_not_be_kept_is_refused(evidence, current, history):
    settings = DesignSettings(bounds=Bounds(sizes=(3, 4, 5), max_hole_ratio=0.1))
    with pytest.raises(ValueError, match=r"3\.hole_ratio must lie in 0\.\.0\.1, got 0\.2"):
        design(RuleEngineer(BOUNDS, 2), evidence, current, history, settings=settings, num_agents=2)
