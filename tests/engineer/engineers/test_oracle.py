from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from pydantic import ValidationError

from engineer import (
    Budget,
    Configuration,
    Engineer,
    EngineerError,
    Guard,
    OracleEngineer,
    ProbeResult,
    Proposal,
    ShuffledEngineer,
    Task,
    answer_text,
    build_context,
)
from engineer.engineers.plans import CopyPreviousEngineer, FixedEngineer
from engineer.lake import LakeConfiguration
from tests.engineer.builders import lake
from tests.engineer.engineers.tasks import Spy, task_of, view_of


def at_holes(ratio: float) -> LakeConfiguration:
    return lake((0.4, ratio, 0.0), (0.3, ratio, 0.0), (0.3, ratio, 0.0))


@dataclass
class Probing:
    """Scores by the hole ratio of size 3, and what was asked of it."""

    scores: Mapping[float, float]
    seen: list[float] = field(default_factory=list)

    def __call__(self, configuration: Configuration) -> ProbeResult:
        ratio = configuration.values()["3"]["hole_ratio"]
        self.seen.append(ratio)
        return ProbeResult(score=self.scores[ratio], instances=10, rollouts=40)


@dataclass(frozen=True)
class Says:
    """Answers with a text and its cost, or fails."""

    text: str | None
    tokens: int | None = 0
    name: str = "says"

    def propose(self, task: Task) -> Proposal:
        if self.text is None:
            raise EngineerError("no answer")
        return Proposal(self.text, 0.0, self.tokens)


def fixed(*ratios: float) -> tuple[Engineer, ...]:
    return tuple(FixedEngineer(at_holes(ratio)) for ratio in ratios)


@pytest.mark.parametrize("last", [0.4, 0.5])
def test_the_oracle_answers_with_the_first_of_what_scored_best_and_reports_its_cost(last):
    probe = Probing({0.1: 0.3, 0.2: 0.5, 0.3: last})
    view = view_of({"3": 50})
    proposal = OracleEngineer(fixed(0.1, 0.2, 0.3), probe).propose(task_of(view))
    assert proposal.text == answer_text(at_holes(0.2))
    assert probe.seen == [0.1, 0.2, 0.3]
    assert (proposal.probe_instances, proposal.probe_rollouts) == (30, 120)


@pytest.mark.parametrize(("max_probes", "best"), [(2, 0.2), (3, 0.3), (4, 0.4), (9, 0.4)])
def test_the_oracle_probes_distinct_configurations_up_to_its_bound(max_probes, best):
    probe = Probing({0.1: 0.1, 0.2: 0.2, 0.3: 0.3, 0.4: 0.4})
    candidates = fixed(0.1, 0.1, 0.2, 0.1, 0.3, 0.2, 0.4)
    engineer = OracleEngineer(candidates, probe, max_probes=max_probes)
    proposal = engineer.propose(task_of(view_of({"3": 50})))
    assert proposal.text == answer_text(at_holes(best))
    assert probe.seen == [0.1, 0.2, 0.3, 0.4][:max_probes]


def test_a_single_configuration_needs_no_probe_and_nobody_is_asked_beyond_the_bound():
    probe, spy = Probing({}), Spy()
    view = view_of({"3": 50}, current=at_holes(0.1))
    proposal = OracleEngineer((*fixed(0.1, 0.1), spy), probe).propose(task_of(view))
    assert proposal.text == answer_text(at_holes(0.1))
    assert (proposal.probe_instances, proposal.tokens, len(spy.seen)) == (0, 3, 1)
    OracleEngineer((*fixed(0.1), spy), probe, max_probes=1).propose(task_of(view))
    assert (len(spy.seen), probe.seen) == (1, [])


def test_candidates_that_fail_or_are_rejected_are_passed_over():
    probe = Probing({0.1: 0.1, 0.2: 0.2})
    candidates = (Says(None), *fixed(0.1), Says("I would rather not", 7), *fixed(0.2))
    proposal = OracleEngineer(candidates, probe).propose(task_of(view_of({"3": 50})))
    assert proposal.text == answer_text(at_holes(0.2))
    assert (probe.seen, proposal.tokens) == ([0.1, 0.2], 7)


def test_the_tokens_of_all_candidates_are_summed_as_far_as_they_are_known():
    text, probe = answer_text(at_holes(0.1)), Probing({})
    task = task_of(view_of({"3": 50}))
    three = (Says(text, 5), Says(text, None), Says(text, 6))
    assert OracleEngineer(three, probe).propose(task).tokens == 11
    assert OracleEngineer((Says(text, None),), probe).propose(task).tokens is None


def test_what_each_candidate_saw_and_said_is_kept(view):
    raw = f"thinking aloud {answer_text(at_holes(0.2))}"
    shuffled = ShuffledEngineer(Says("neither", name="b"))
    engineer = OracleEngineer(
        (Says(raw, 5, name="a"), shuffled, Says(None, name="c"), *fixed(0.1)),
        Probing({0.1: 0.3, 0.2: 0.4}),
    )
    task = replace(task_of(view, seed=1), rebuild=build_context)
    first, second, third, last = engineer.propose(task).candidates
    assert (first.engineer, first.text, first.kind, first.tokens) == ("a", raw, "accepted", 5)
    assert (first.score, second.score, third.score, last.score) == (0.4, None, None, 0.3)
    assert first.context == third.context == task.context.text
    assert second.engineer == "shuffled:b"
    assert "50 valid" in second.context
    assert second.context != build_context(view).text
    assert (second.kind, third.kind) == ("rejected", "failed")
    assert (third.text, third.reason) == (None, "no answer")


@pytest.mark.parametrize(("rollouts", "probed"), [(39, 0), (40, 1), (119, 2), (120, 3), (None, 3)])
def test_the_oracle_keeps_within_its_budget_of_rollouts(rollouts, probed):
    probe = Probing({0.1: 0.1, 0.2: 0.2, 0.3: 0.3})
    engineer = OracleEngineer(fixed(0.1, 0.2, 0.3), probe, probe_rollouts=40)
    task = replace(task_of(view_of({"3": 50})), budget=Budget(probe_rollouts=rollouts))
    proposal = engineer.propose(task)
    assert probe.seen == [0.1, 0.2, 0.3][:probed]
    assert proposal.text == answer_text(at_holes(max(probe.seen, default=0.1)))


def test_candidates_share_the_oracles_budget_of_tokens():
    spy = Spy()  # three tokens an answer
    engineer = OracleEngineer((spy, spy, spy, spy), Probing({}))
    view = view_of({"3": 50}, current=at_holes(0.1))
    engineer.propose(replace(task_of(view), budget=Budget(engineer_tokens=7)))
    assert [task.budget.engineer_tokens for task in spy.seen] == [7, 4, 1]


def test_where_no_candidate_is_usable_the_oracle_says_why():
    candidates = (Says(None, name="first"), Says("no JSON here", name="second"))
    engineer = OracleEngineer(candidates, Probing({}))
    with pytest.raises(EngineerError, match=r"first: no answer; second: the answer holds no"):
        engineer.propose(task_of(view_of({"3": 50})))


def test_what_is_probed_is_what_the_guard_would_let_pass():
    probe = Probing({0.1: 0.1, 0.3: 0.3})
    view = view_of({"3": 50}, current=at_holes(0.2))
    engineer = OracleEngineer(fixed(0.5, 0.0), probe, guard=Guard(max_step=0.1))
    assert engineer.propose(task_of(view)).text == answer_text(at_holes(0.3))
    assert probe.seen == [0.3, 0.1]


def test_each_place_among_the_candidates_draws_for_itself():
    spy = Spy()
    view = view_of({"3": 50}, current=at_holes(0.1))
    engineer = OracleEngineer((spy, spy, spy), Probing({}))
    for seed in (0, 0, 1):
        engineer.propose(task_of(view, seed))
    seeds = [task.seed for task in spy.seen]
    assert seeds[:3] == seeds[3:6]
    assert len(set(seeds)) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_probes_of_an_oracle_among_the_candidates_are_counted_too():
    inner = OracleEngineer(fixed(0.1, 0.2), Probing({0.1: 0.1, 0.2: 0.2}), name="inner")
    outer = OracleEngineer((inner, *fixed(0.3)), Probing({0.2: 0.2, 0.3: 0.1}))
    proposal = outer.propose(task_of(view_of({"3": 50})))
    assert proposal.text == answer_text(at_holes(0.2))
    assert (proposal.probe_instances, proposal.probe_rollouts) == (40, 160)


def test_what_candidates_spent_in_vain_is_counted():
    """Rejected answers, and those that an oracle inside failed with."""
    view = view_of({"3": 50, "4": 50, "5": 50})
    inner = OracleEngineer((Says("no", tokens=5, name="a"),), Probing({}))
    failing = OracleEngineer((inner, Says("neither", tokens=7, name="b")), Probing({}))
    with pytest.raises(EngineerError) as caught:
        failing.propose(task_of(view))
    assert caught.value.spent.engineer_tokens == 12
    good = OracleEngineer((failing, CopyPreviousEngineer()), Probing({}))
    assert good.propose(task_of(view)).tokens == 12


def test_an_oracle_without_candidates_or_probes_is_refused():
    with pytest.raises(ValueError, match="candidates: got none"):
        OracleEngineer((), Probing({}))
    with pytest.raises(ValueError, match="max_probes must be at least 1, got 0"):
        OracleEngineer(fixed(0.1), Probing({}), max_probes=0)


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_that_cannot_be_compared_is_refused(score):
    with pytest.raises(ValidationError, match="score"):
        ProbeResult(score=score)
