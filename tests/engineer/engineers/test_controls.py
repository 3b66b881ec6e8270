"""Shuffled and simulated engineers see other evidence than the true one."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer import (
    AnswerStatistics,
    ShuffledEngineer,
    SimulatedEngineer,
    Tally,
    Task,
    build_context,
)
from engineer.context.symbols import read_out
from engineer.engineers.controls import shuffle_evidence, simulate_evidence
from engineer.lake import Bounds, lake_domain
from tests.engineer.builders import Spy, make_task, random_view, tally


def shuffle_task(task: Task) -> Task:
    spy = Spy()
    assert ShuffledEngineer(spy).propose(task).tokens == 3
    [shown] = spy.tasks
    return shown


@settings(max_examples=60)
@given(sizes=st.integers(2, 6), seed=st.integers(0, 2**63 - 1))
def test_shuffle_is_a_derangement_of_evidence(sizes, seed):
    bounds = Bounds(sizes=tuple(range(3, 3 + sizes)))
    view = random_view(np.random.default_rng(seed), lake_domain(bounds))
    # The counts identify the group of the evidence.
    validation = {group: tally(0, count=10 + int(group)) for group in (*bounds.groups, "99")}
    evidence = view.evidence.model_copy(update={"validation": validation})
    rolled_back = {group: tally(0, count=100 + int(group)) for group in bounds.groups}
    view = replace(view, evidence=evidence, rolled_back_validation=rolled_back)
    shuffled = shuffle_task(make_task(view, seed)).view
    origins = {
        group: str(answers.count - 10) for group, answers in shuffled.evidence.validation.items()
    }
    assert sorted(origins.values()) == sorted(validation)
    assert all(group != origin for group, origin in origins.items())

    def require_permuted(
        shown_values: Mapping[str, object], true_values: Mapping[str, object]
    ) -> None:
        assert dict(shown_values) == {
            g: true_values[origin] for g, origin in origins.items() if origin in true_values
        }

    require_permuted(shuffled.rolled_back_validation, rolled_back)
    require_permuted(shuffled.evidence.environment, evidence.environment)
    assert (shuffled.evidence.training is None) == (evidence.training is None)
    if shuffled.evidence.training and evidence.training:
        require_permuted(shuffled.evidence.training.learnability, evidence.training.learnability)
    assert shuffled.evidence.failed_cases == ()  # a case shows its group
    for shown_values, true_values in zip(shuffled.history, view.history, strict=True):
        require_permuted(shown_values.valid_before, true_values.valid_before)
        require_permuted(shown_values.valid_after, true_values.valid_after)
        require_permuted(shown_values.failures_before, true_values.failures_before)
        assert shown_values.configuration == true_values.configuration
    assert (shuffled.current, shuffled.domain) == (view.current, view.domain)


def test_shuffled_prompt_shows_permuted_evidence(view):
    task = shuffle_task(replace(make_task(view, seed=1), build_context=build_context))
    assert task.context == build_context(task.view)
    assert "41 of 50 valid" in task.context.text
    assert "3x3: 41 of 50 valid" not in task.context.text


@settings(max_examples=60)
@given(sizes=st.integers(2, 6), seed=st.integers(0, 2**63 - 1))
def test_simulated_run_replaces_only_the_evidence(sizes, seed):
    bounds = Bounds(sizes=tuple(range(3, 3 + sizes)))
    view = random_view(np.random.default_rng(seed), lake_domain(bounds))
    spy = Spy()
    SimulatedEngineer(spy).propose(make_task(view, seed))
    [simulated] = [task.view for task in spy.tasks]
    counts = [tally.count for tally in view.evidence.validation.values() if tally.count]
    assert set(simulated.evidence.validation) == set(view.domain.space.groups)
    if counts:
        shown_counts = {tally.count for tally in simulated.evidence.validation.values()}
        assert min(counts) <= min(shown_counts) <= max(shown_counts) <= max(counts)
    assert (simulated.evidence.training is None) == (view.evidence.training is None)
    assert bool(simulated.valid_before) == bool(view.valid_before)
    assert [past.configuration for past in simulated.history] == [
        past.configuration for past in view.history
    ]
    assert [past.stage for past in simulated.history] == [past.stage for past in view.history]
    assert not any(past.summary for past in simulated.history)
    unchanged = ("domain", "current", "trained", "designed_from", "notice", "refusal")
    assert all(getattr(simulated, field) == getattr(view, field) for field in unchanged)
    assert simulated.evidence.stage == view.evidence.stage
    assert simulated.evidence.environment == view.evidence.environment


def test_simulated_run_contains_no_true_evidence(view):
    """The shown evidence does not depend on the true rates."""
    blocks = ("failure_breakdown", "training_details", "history")
    changed_evidence = view.evidence.model_copy(
        update={
            "validation": {
                group: tally(0, count=tallied.count)
                for group, tallied in view.evidence.validation.items()
            }
        }
    )
    fallen = {group: tally(0, count=50) for group in view.evidence.validation}
    first = replace(view, valid_before=dict.fromkeys(fallen, 0.9))
    second = replace(first, evidence=changed_evidence, rolled_back_validation=fallen)
    readouts = [read_out(simulate_evidence(view, seed=3), blocks) for view in (first, second)]
    assert readouts[0] == readouts[1]
    assert readouts[0] != read_out(view, blocks)
    assert read_out(simulate_evidence(view, seed=4), blocks) != readouts[0]


def test_shuffle_permutes_training_evidence(view):
    rollouts = {
        "3": Tally(count=40, valid=31, failures={"hole": 9}),
        "4": Tally(count=24, valid=6, failures={"hole": 18}),
    }
    answer_statistics = {
        group: AnswerStatistics(readable=1.0, truncated=0.0, tokens=tokens)
        for group, tokens in (("3", 30), ("4", 40))
    }
    changes = {"rollouts": rollouts, "answer_statistics": answer_statistics}
    training = view.evidence.training.model_copy(update=changes)
    view = replace(view, evidence=view.evidence.model_copy(update={"training": training}))
    for seed in range(20):
        moved = shuffle_evidence(view, seed).evidence.training
        for name, values in changes.items():
            assert sorted(map(str, getattr(moved, name).values())) == sorted(
                map(str, values.values())
            )
            assert all(getattr(moved, name).get(group) != values[group] for group in "34")
