import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from engineer import (
    Budget,
    DesignRecord,
    DesignSettings,
    EngineerError,
    GeneratedText,
    Guard,
    LanguageModelEngineer,
    Proposal,
    RuleEngineer,
    ShuffledEngineer,
    Spent,
    StageView,
    Task,
    build_context,
    run_design,
)
from engineer.context import STYLES, ContextTooLongError
from engineer.edits import edits_pattern
from engineer.lake import Bounds, LakeConfiguration, lake_domain
from engineer.space import AnswerForm, answer_schema, answer_text
from tests.engineer.builders import lake

SETTINGS = DesignSettings(attempts=3)


class Script:
    """Answers in turn; remembers what it was asked."""

    def __init__(self, answers: Sequence[str | Exception]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, AnswerForm | None, int]] = []

    def __call__(
        self, context: str, form: AnswerForm | None, seed: int, most: int | None
    ) -> GeneratedText:
        self.asked.append((context, form, seed))
        answer = self.answers[len(self.asked) - 1]
        if isinstance(answer, Exception):
            raise answer
        return GeneratedText(answer, len(answer))


def run(script: Script, view: StageView, **options: Any) -> DesignRecord:
    engineer = LanguageModelEngineer(script, name="script")
    return run_design(engineer, view, SETTINGS.model_copy(update=options))


@pytest.mark.parametrize("style", STYLES)
def test_a_good_answer_is_taken_and_all_is_recorded(view, style):
    script = Script([f"Keep it. {answer_text(view.current)}"])
    record = run(script, view, style=style)
    assert (record.kind, record.configuration, record.diff) == ("accepted", view.current, ())
    context = build_context(view, style=style).text
    form = answer_schema(view.domain.space) if style == "full" else edits_pattern(view.domain)
    assert script.asked == [(context, form, 0)]
    assert record.context == record.attempts[0].context == context
    assert record.attempts[0].text == script.answers[0]
    assert record.attempts[0].tokens == record.spent.engineer_tokens == len(str(script.answers[0]))


@pytest.mark.parametrize("style", STYLES)
def test_edits_are_taken_as_the_knobs_that_they_lead_to(view, style):
    script = Script(["n3 - = +\nn4 + - =\nn5 = + -"])
    record = run(script, view, style=style)
    rows = (0.45, 0.2, 0.3), (0.35, 0.05, 0.5), (0.2, 0.05, 0.95)
    assert (record.kind, record.configuration) == ("accepted", lake(*rows))
    assert record.attempts[0].text == script.answers[0]


def test_a_compact_prompt_says_that_the_last_answer_was_refused_and_not_why(view):
    script = Script(["n3 = = =", answer_text(view.current)])
    record = run(script, view, style="compact")
    assert [attempt.kind for attempt in record.attempts] == ["rejected", "accepted"]
    assert record.attempts[0].reason == "map size 4, 5 are missing"
    first, again = (asked[0] for asked in script.asked)
    assert again == first.replace("stage first\n", "stage first refused\n") != first


@pytest.mark.parametrize(("before", "kind"), [([], "repaired"), (["no idea"], "retried")])
def test_repairs_stand_in_the_record_of_whatever_answer_they_are(view, before, kind):
    text = answer_text(view.current).replace('"hole_ratio":0.2', '"hole_ratio":0.9')
    record = run(Script([*before, text]), view)
    assert (record.kind, record.attempts[-1].kind) == (kind, "repaired")
    assert [(r.name, r.field, r.old, r.new) for r in record.repairs] == [
        ("clamp", "3.hole_ratio", 0.9, 0.5)
    ]
    assert record.repairs == record.attempts[-1].repairs
    assert [change.field for change in record.diff] == ["3.hole_ratio"]


def test_the_guard_of_the_settings_holds(view):
    text = answer_text(view.current).replace('"hole_ratio":0.20', '"hole_ratio":0.50')
    record = run(Script([text]), view, guard=Guard(max_step=0.05))
    assert record.kind == "repaired"
    assert isinstance(record.configuration, LakeConfiguration)
    assert record.configuration.sizes[3].hole_ratio == 0.25


def test_a_refused_engineer_is_told_why_and_asked_again(view):
    missing = answer_text(view.current).replace(',"wait_ratio":0.25', "")
    script = Script(["no idea", missing, answer_text(view.current)])
    record = run(script, view)
    assert record.kind == "retried"
    assert [attempt.kind for attempt in record.attempts] == ["rejected", "rejected", "accepted"]
    assert "efused" not in script.asked[0][0]
    assert "no complete JSON object" in script.asked[1][0]
    assert "3.wait_ratio is missing" in script.asked[2][0]
    assert "no complete JSON object" not in script.asked[2][0]
    assert [attempt.context for attempt in record.attempts] == [asked[0] for asked in script.asked]
    assert record.spent.engineer_tokens == sum(len(str(answer)) for answer in script.answers)


def test_after_the_last_attempt_the_configuration_is_kept_and_it_is_said(view):
    script = Script(["a", "b", "c", answer_text(view.current)])
    record = run(script, view)
    assert len(script.asked) == 3
    assert (record.kind, record.configuration, record.diff) == ("kept", view.current, ())
    assert record.reason.startswith("kept after 3 attempts, the last: the answer holds no")
    assert [attempt.text for attempt in record.attempts] == ["a", "b", "c"]


def test_an_engineer_that_fails_costs_an_attempt(view):
    script = Script([EngineerError("model x at y: HTTP 500"), answer_text(view.current)])
    record = run(script, view)
    assert record.kind == "retried"
    failed = record.attempts[0]
    assert (failed.kind, failed.text, failed.reason) == ("failed", None, "model x at y: HTTP 500")
    assert failed.tokens is None
    assert script.asked[1][0] == script.asked[0][0]

    record = run(Script([EngineerError("down")] * 2), view, attempts=2)
    assert (record.kind, record.reason) == ("kept", "kept after 2 attempts, the last: down")


def test_a_failure_does_not_make_an_engineer_forget_why_it_was_refused(view):
    script = Script(["no idea", EngineerError("down"), answer_text(view.current)])
    run(script, view)
    assert "no complete JSON object" in script.asked[1][0]
    assert script.asked[2][0] == script.asked[1][0]


def test_a_bug_in_the_engineer_is_not_swallowed(view):
    with pytest.raises(ZeroDivisionError):
        run(Script([ZeroDivisionError()]), view)


def test_each_attempt_has_a_seed_of_its_own(view):
    script = Script(["a", EngineerError("down"), "c"])
    called: list[int] = []

    def seed(attempt: int) -> int:
        called.append(attempt)
        return 1000 + 7 * attempt

    run_design(LanguageModelEngineer(script), view, SETTINGS, seed=seed)
    assert called == [0, 1, 2]
    assert [asked[2] for asked in script.asked] == [1000, 1007, 1014]


@dataclass
class Spender:
    """Answers the same each time, at a cost."""

    proposal: Proposal
    name: str = "spender"
    tasks: list[Task] = field(default_factory=list)

    def propose(self, task: Task) -> Proposal:
        self.tasks.append(task)
        return self.proposal


@pytest.mark.parametrize(
    ("budget", "asked", "reason"),
    [
        (Budget(), 6, "last: the answer holds no complete"),
        (Budget(engineer_tokens=25), 3, "budget is spent, engineer_tokens: 30 of 25 are spent"),
        (Budget(engineer_tokens=20), 2, "budget is spent, engineer_tokens"),
        (Budget(engineer_tokens=0), 0, "budget is spent, engineer_tokens"),
        (Budget(probe_rollouts=7), 2, "budget is spent, probe_rollouts: 8 of 7 are spent"),
        (Budget(seconds=100.0), 2, "budget is spent, seconds: 100.0 of 100.0 are spent"),
        (Budget(engineer_tokens=60, probe_rollouts=24, seconds=300.0), 6, ""),
    ],
)
def test_nothing_more_is_asked_once_the_budget_is_spent(view, budget, asked, reason):
    proposal = Proposal("no", seconds=50.0, tokens=10, probe_rollouts=4, probe_instances=32)
    engineer = Spender(proposal)
    record = run_design(engineer, view, DesignSettings(attempts=6, budget=budget))
    assert len(engineer.tasks) == len(record.attempts) == asked
    assert (record.kind, record.configuration, record.diff) == ("kept", view.current, ())
    assert record.reason.startswith(f"kept after {asked} attempts, the {reason}")
    assert record.spent.engineer_tokens == 10 * asked
    assert record.spent.probe_rollouts == 4 * asked
    assert record.spent.probe_instances == 32 * asked
    # What the record says is the time of the phase itself.
    assert record.spent.seconds < 10.0
    assert (record.context == "") == (asked == 0)


def test_an_answer_within_the_budget_is_used_though_it_spends_the_rest(view):
    engineer = Spender(Proposal(answer_text(view.current), seconds=1.0, tokens=1_000))
    record = run_design(engineer, view, DesignSettings(budget=Budget(engineer_tokens=1)))
    assert record.kind == "accepted"
    assert record.spent.engineer_tokens == 1_000


def test_each_attempt_may_spend_what_is_left(view):
    engineer = Spender(Proposal("no", seconds=1.0, tokens=10, probe_rollouts=4))
    budget = Budget(engineer_tokens=25, probe_rollouts=100)
    run_design(engineer, view, DesignSettings(attempts=6, budget=budget))
    assert [one.budget.engineer_tokens for one in engineer.tasks] == [25, 15, 5]
    assert [one.budget.probe_rollouts for one in engineer.tasks] == [100, 96, 92]
    assert engineer.tasks[0].budget.seconds is None


def test_unknown_tokens_count_as_none(view):
    engineer = Spender(Proposal("no", seconds=0.0, tokens=None))
    settings = DesignSettings(attempts=2, budget=Budget(engineer_tokens=1))
    record = run_design(engineer, view, settings)
    assert len(record.attempts) == 2
    assert record.spent.engineer_tokens == 0
    assert record.attempts[0].tokens is None


def test_a_task_says_in_values_what_its_prompt_says_in_words(view):
    engineer = Spender(Proposal("no", seconds=0.0))
    settings = SETTINGS.model_copy(update={"blocks": ("history",), "max_context_tokens": 900})
    run_design(engineer, view, settings, seed=lambda attempt: 40 + attempt)
    assert [(task.attempt, task.seed) for task in engineer.tasks] == [(0, 40), (1, 41), (2, 42)]
    for task in engineer.tasks:
        assert (task.view.evidence, task.view.current) == (view.evidence, view.current)
        expected = build_context(task.view, blocks=("history",), max_tokens=900)
        assert task.context == expected
        # An engineer that changes what another one sees asks for the prompt of its own view.
        assert task.rebuild is not None
        assert task.rebuild(task.view) == expected
        forgetful = task.rebuild(replace(task.view, history=()))
        assert "There was no stage before this one." in forgetful.text
        assert "There was no stage before this one." not in expected.text
    assert [bool(task.view.refusal) for task in engineer.tasks] == [False, True, True]


def test_what_was_cut_from_a_prompt_stands_in_the_record(view):
    whole = build_context(view, style="full")
    options = {"style": "full", "max_context_tokens": whole.tokens - 1}
    record = run(Script([answer_text(view.current)]), view, **options)
    assert record.attempts[0].cut == ("failed cases, one at a time",)
    assert len(record.context) < len(whole.text)
    settings = DesignSettings(max_context_tokens=len(whole.text))
    exact = run_design(RuleEngineer(), view, settings, count_tokens=len)
    assert exact.attempts[0].cut == ()


@pytest.mark.parametrize("fails", [False, True])
def test_the_record_keeps_what_a_shuffled_engineer_really_saw(view, fails):
    answer = EngineerError("down") if fails else "no idea"
    script = Script([answer, "no idea", answer_text(view.current)])
    # Twice permuted, to see that records keep what the innermost one saw.
    inner = ShuffledEngineer(LanguageModelEngineer(script, name="script"))
    for engineer in (inner, ShuffledEngineer(inner)):
        script.asked.clear()
        record = run_design(engineer, view, SETTINGS.model_copy(update={"max_context_tokens": 900}))
        assert [one.context for one in record.attempts] == [asked[0] for asked in script.asked]
        assert record.context == script.asked[0][0]
    assert record.context != build_context(view, max_tokens=900).text


def test_what_an_engineer_spent_in_vain_is_counted(view):
    error = EngineerError("none was usable", Spent(engineer_tokens=30, probe_rollouts=8))
    record = run(Script([error, error]), view, budget=Budget(engineer_tokens=50))
    assert (record.spent.engineer_tokens, record.spent.probe_rollouts) == (60, 16)
    assert record.attempts[0].tokens == 30
    assert record.reason.startswith("kept after 2 attempts, the budget is spent, engineer_tokens")


def test_a_prompt_that_cannot_be_cut_to_fit_is_an_error_of_the_settings(view):
    with pytest.raises(ContextTooLongError, match="max_tokens: got 5, "):
        run(Script([]), view, max_context_tokens=5)


def test_no_answer_makes_the_next_prompt_too_long(view):
    hostile = json.dumps({"3": {"x" * 5_000: 1}, "y" * 5_000: 2})
    bare = StageView(view.domain, view.evidence, view.current)
    tokens = build_context(bare, blocks=()).tokens
    script = Script([hostile, hostile, answer_text(view.current)])
    record = run(script, bare, blocks=(), max_context_tokens=tokens)
    assert record.kind == "retried"
    refusal = ("why the last answer was refused",)
    assert [attempt.cut for attempt in record.attempts] == [(), refusal, refusal]


@pytest.mark.parametrize("text", ["\ud800", "\x00" * 10, "x" * 50_000, "[" * 100_000])
def test_any_raw_text_can_be_written_and_read_back(view, text):
    record = run(Script([text] * 3), view)
    read = json.loads(record.model_dump_json().encode("utf-8"))
    assert LakeConfiguration.model_validate(read["configuration"]) == view.current
    assert Spent.model_validate(read["spent"]) == record.spent
    raw = text.encode("utf-8", "backslashreplace").decode("utf-8")
    assert [attempt["text"] for attempt in read["attempts"]] == [raw] * 3
    assert read["kind"] == "kept"


def test_the_reason_of_a_failure_can_be_written_too(view):
    record = run(Script([EngineerError("HTTP 500 \ud800")] * 3), view)
    assert "HTTP 500 \\ud800" in record.model_dump_json().replace("\\\\", "\\")


def test_a_current_configuration_that_could_not_be_kept_is_refused(view):
    tight = replace(view, domain=lake_domain(Bounds(sizes=(3, 4, 5), max_hole_ratio=0.1)))
    with pytest.raises(ValueError, match=r"3\.hole_ratio must lie in 0\.\.0\.1, got 0\.2"):
        run_design(RuleEngineer(), tight, SETTINGS)
