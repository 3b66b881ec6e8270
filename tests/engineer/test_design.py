"""`run_design`: attempts, records and failures."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from engineer import (
    Costs,
    DesignRecord,
    DesignSettings,
    EngineerError,
    GeneratedText,
    LanguageModelEngineer,
    Proposal,
    RuleEngineer,
    ShuffledEngineer,
    StageView,
    Task,
    TextRequest,
    build_context,
    run_design,
)
from engineer.context import STYLES, ContextTooLongError
from engineer.context.blocks import SUMMARY_LIMIT
from engineer.edits import edits_pattern
from engineer.engineers.language_model import make_reasoning_suffix
from engineer.lake import Bounds, LakeConfiguration, lake_domain
from engineer.quoting import quote
from engineer.space import AnswerForm, answer_schema, answer_text
from jaxlake.errors import UserError

SETTINGS = DesignSettings(attempts=3)


class FakeModel:
    """Text generator that returns scripted answers and records its requests."""

    def __init__(self, answers: Sequence[str | Exception]) -> None:
        self.answers = answers
        self.calls: list[tuple[str, AnswerForm | None, int]] = []
        self.requests: list[TextRequest] = []

    def __call__(self, request: TextRequest) -> GeneratedText:
        self.requests.append(request)
        self.calls.append((request.prompt, request.form, request.seed))
        answer = self.answers[len(self.calls) - 1]
        if isinstance(answer, Exception):
            raise answer
        return GeneratedText(answer, len(answer))


def make_easier(view: StageView) -> LakeConfiguration:
    """Return the current configuration with fewer waits on the largest boards."""
    values = view.current.values()
    values["5"]["wait_ratio"] -= 0.5
    return Bounds(sizes=(3, 4, 5)).make(values)


def run_script(script: FakeModel, view: StageView, **options: Any) -> DesignRecord:
    engineer = LanguageModelEngineer(script, name="script")
    return run_design(engineer, view, SETTINGS.model_copy(update=options))


@dataclass(frozen=True)
class FixedProposal:
    """Engineer that returns a fixed value as its proposal."""

    value: Any
    name: str = "mine"

    def propose(self, task: Task) -> Proposal:
        return self.value


@pytest.mark.parametrize("value", [None, "n3 = = =", Proposal(None, seconds=0.0)])
def test_run_design_rejects_invalid_proposals(view, value):
    with pytest.raises(UserError, match=r"^propose of engineer mine must return a Proposal, got"):
        run_design(FixedProposal(value), view, SETTINGS)


@pytest.mark.parametrize("style", STYLES)
def test_run_design_accepts_and_records_good_answer(view, style):
    script = FakeModel([f"Keep it. {answer_text(view.current)}"])
    record = run_script(script, view, style=style)
    assert (record.kind, record.configuration, record.diff) == ("unchanged", view.current, ())
    context = build_context(view, style=style).text
    form = answer_schema(view.domain.space) if style == "full" else edits_pattern(view.domain)
    assert script.calls == [(context, form, 0)]
    assert record.context == record.attempts[0].context == context
    assert record.attempts[0].text == script.answers[0]
    assert record.attempts[0].tokens == record.spent.engineer_tokens == len(str(script.answers[0]))


def test_rejected_design_is_retried_with_the_reason(view):
    incomplete_answer = answer_text(view.current).replace(',"wait_ratio":0.25', "")
    script = FakeModel(["no idea", incomplete_answer, answer_text(view.current)])
    record = run_script(script, view)
    assert record.kind == "unchanged"
    assert [attempt.kind for attempt in record.attempts] == ["rejected", "rejected", "unchanged"]
    assert "efused" not in script.calls[0][0]
    assert "no complete JSON object" in script.calls[1][0]
    assert "3.wait_ratio is missing" in script.calls[2][0]
    assert 'It was: "no idea"' in script.calls[1][0]
    assert quote(incomplete_answer, SUMMARY_LIMIT, end=True) in script.calls[2][0]
    assert "no complete JSON object" not in script.calls[2][0]
    assert [attempt.context for attempt in record.attempts] == [call[0] for call in script.calls]
    assert record.spent.engineer_tokens == sum(len(str(answer)) for answer in script.answers)


def test_run_design_counts_failed_call_as_attempt(view):
    script = FakeModel([EngineerError("model x at y: HTTP 500"), answer_text(make_easier(view))])
    record = run_script(script, view)
    assert record.kind == "retried"
    call = record.attempts[0]
    assert (call.kind, call.text, call.reason) == ("failed", None, "model x at y: HTTP 500")
    assert call.tokens is None
    assert script.calls[1][0] == script.calls[0][0]

    record = run_script(FakeModel([EngineerError("down")] * 2), view, attempts=2)
    assert (record.kind, record.reason) == ("kept", "2 answers were refused: down")


def test_run_design_uses_one_seed_per_attempt(view):
    script = FakeModel(["a", EngineerError("down"), "c"])
    attempts: list[int] = []

    def derive_seed(attempt: int) -> int:
        attempts.append(attempt)
        return 1000 + 7 * attempt

    run_design(LanguageModelEngineer(script), view, SETTINGS, seed=derive_seed)
    assert attempts == [0, 1, 2]
    assert [call[2] for call in script.calls] == [1000, 1007, 1014]


@dataclass
class RecordingEngineer:
    """Engineer that records its tasks and always returns the same proposal."""

    proposal: Proposal
    name: str = "spender"
    tasks: list[Task] = field(default_factory=list)

    def propose(self, task: Task) -> Proposal:
        self.tasks.append(task)
        return self.proposal


def test_design_task_values_match_its_prompt(view):
    engineer = RecordingEngineer(Proposal("no", seconds=0.0))
    settings = SETTINGS.model_copy(update={"blocks": ("history",), "max_context_tokens": 1500})
    run_design(engineer, view, settings, seed=lambda attempt: 40 + attempt)
    assert [(task.attempt, task.seed) for task in engineer.tasks] == [(0, 40), (1, 41), (2, 42)]
    for task in engineer.tasks:
        assert (task.view.evidence, task.view.current) == (view.evidence, view.current)
        expected_context = build_context(task.view, blocks=("history",), max_tokens=1500)
        assert task.context == expected_context
        # An engineer that changes another engineer's view rebuilds the prompt.
        assert task.build_context is not None
        assert task.build_context(task.view) == expected_context
        context_without_history = task.build_context(replace(task.view, history=()))
        assert "There was no stage before this one." in context_without_history.text
        assert "There was no stage before this one." not in expected_context.text
    assert [bool(task.view.refusal) for task in engineer.tasks] == [False, True, True]


@pytest.mark.parametrize("first_call_fails", [False, True])
def test_record_contains_the_shuffled_prompt(view, first_call_fails):
    answer = EngineerError("down") if first_call_fails else "no idea"
    script = FakeModel([answer, "no idea", answer_text(view.current)])
    # Permute twice to check that records keep the innermost engineer's view.
    inner_engineer = ShuffledEngineer(LanguageModelEngineer(script, name="script"))
    for engineer in (inner_engineer, ShuffledEngineer(inner_engineer)):
        script.calls.clear()
        record = run_design(
            engineer, view, SETTINGS.model_copy(update={"max_context_tokens": 1500})
        )
        assert [attempt.context for attempt in record.attempts] == [
            call[0] for call in script.calls
        ]
        assert record.context == script.calls[0][0]
    assert record.context != build_context(view, max_tokens=1500).text


def test_run_design_counts_failed_attempts(view):
    error = EngineerError("none was usable", Costs(engineer_tokens=30))
    record = run_script(FakeModel([error, error]), view, attempts=2)
    assert record.spent.engineer_tokens == 60
    assert record.attempts[0].tokens == 30


def test_run_design_rejects_too_small_context_limit(view):
    with pytest.raises(ContextTooLongError, match="max_tokens: got 5, "):
        run_script(FakeModel([]), view, max_context_tokens=5)


def test_retry_prompt_stays_within_the_limit(view):
    hostile_answer = json.dumps({"3": {"x" * 5_000: 1}, "y" * 5_000: 2})
    minimal_view = StageView(view.domain, view.evidence, view.current)
    min_tokens = build_context(minimal_view, blocks=()).tokens
    script = FakeModel([hostile_answer, hostile_answer, answer_text(view.current)])
    record = run_script(script, minimal_view, blocks=(), max_context_tokens=min_tokens)
    assert record.kind == "unchanged"
    cuts = ("why the last answer was refused",)
    assert [attempt.cut for attempt in record.attempts] == [(), cuts, cuts]


def test_review_rejects_infeasible_current_values(view):
    restricted_view = replace(view, domain=lake_domain(Bounds(sizes=(3, 4, 5), max_hole_ratio=0.1)))
    with pytest.raises(ValueError, match=r"3\.hole_ratio must lie in 0\.\.0\.1, got 0\.2"):
        run_design(RuleEngineer(), restricted_view, SETTINGS)


def test_run_design_reasons_before_it_decides(view):
    reasoning = "Diagnosis: waits fail."
    script = FakeModel([reasoning, answer_text(make_easier(view))])
    engineer = LanguageModelEngineer(script, reasoning_tokens=200)
    record = run_design(engineer, view, SETTINGS)
    request_1, request_2 = script.requests
    assert (request_1.form, request_1.max_tokens, request_1.thinking, request_1.reasoning) == (
        None,
        200,
        True,
        None,
    )
    assert request_2 == replace(
        request_1, form=answer_schema(view.domain.space), max_tokens=None, reasoning=reasoning
    )
    assert (record.kind, record.configuration) == ("accepted", make_easier(view))
    (attempt,) = record.attempts
    assert (attempt.reasoning, attempt.text) == (reasoning, script.answers[1])
    assert attempt.tokens == sum(len(str(answer)) for answer in script.answers)


def test_run_design_counts_reasoning_without_answer(view):
    script = FakeModel(["a thought", EngineerError("down", Costs(engineer_tokens=5))])
    engineer = LanguageModelEngineer(script, reasoning_tokens=200)
    record = run_design(engineer, view, SETTINGS.model_copy(update={"attempts": 1}))
    assert (record.kind, record.spent.engineer_tokens) == ("kept", len("a thought") + 5)


@pytest.mark.parametrize(
    ("reasoning", "suffix"),
    [
        ("<think>a", "\n</think>\n\n"),
        ("[THINK]a", "\n[/THINK]\n\n"),
        ("<think>a</think> b", "\n\n"),
        ("a", "\n\n"),
        ("", "\n\n"),
    ],
)
def test_make_reasoning_suffix_closes_a_thinking_block(reasoning, suffix):
    assert make_reasoning_suffix(reasoning) == f"{suffix}Configuration:\n"
