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
from engineer.context.symbols import make_compact_context
from engineer.engineers.controls import shuffle_evidence, simulate_evidence
from engineer.lake import Bounds, lake_domain
from tests.engineer.builders import Spy, hole_tally, make_task, random_view


def shuffle_task(task: Task) -> Task:
    spy = Spy()
    assert ShuffledEngineer(spy).propose(task).tokens == 3
    [shown_task] = spy.tasks
    return shown_task


@settings(max_examples=60)
@given(num_sizes=st.integers(2, 6), seed=st.integers(0, 2**63 - 1))
def test_shuffle_is_a_derangement_of_evidence(num_sizes, seed):
    bounds = Bounds(sizes=tuple(range(3, 3 + num_sizes)))
    view = random_view(np.random.default_rng(seed), lake_domain(bounds))
    # The counts identify the group of the evidence.
    validation = {group: hole_tally(0, count=10 + int(group)) for group in (*bounds.groups, "99")}
    evidence = view.evidence.model_copy(update={"validation": validation})
    rolled_back_tallies = {group: hole_tally(0, count=100 + int(group)) for group in bounds.groups}
    view = replace(view, evidence=evidence, rolled_back_validation=rolled_back_tallies)
    shown_view = shuffle_task(make_task(view, seed)).view
    origins = {
        group: str(tally.count - 10) for group, tally in shown_view.evidence.validation.items()
    }
    assert sorted(origins.values()) == sorted(validation)
    assert all(group != origin for group, origin in origins.items())

    def assert_permuted(
        shown_values: Mapping[str, object], true_values: Mapping[str, object]
    ) -> None:
        assert dict(shown_values) == {
            g: true_values[origin] for g, origin in origins.items() if origin in true_values
        }

    assert_permuted(shown_view.rolled_back_validation, rolled_back_tallies)
    assert_permuted(shown_view.evidence.environment, evidence.environment)
    assert (shown_view.evidence.training is None) == (evidence.training is None)
    if shown_view.evidence.training and evidence.training:
        assert_permuted(shown_view.evidence.training.learnability, evidence.training.learnability)
    assert shown_view.evidence.failed_cases == ()  # a case shows its group
    for shown_stage, true_stage in zip(shown_view.history, view.history, strict=True):
        assert_permuted(shown_stage.valid_before, true_stage.valid_before)
        assert_permuted(shown_stage.valid_after, true_stage.valid_after)
        assert_permuted(shown_stage.failures_before, true_stage.failures_before)
        assert shown_stage.configuration == true_stage.configuration
    assert (shown_view.current, shown_view.domain) == (view.current, view.domain)


def test_shuffled_prompt_shows_permuted_evidence(view):
    task = shuffle_task(replace(make_task(view, seed=1), build_context=build_context))
    assert task.context == build_context(task.view)
    assert "41 of 50 valid" in task.context.text
    assert "3x3: 41 of 50 valid" not in task.context.text


@settings(max_examples=60)
@given(num_sizes=st.integers(2, 6), seed=st.integers(0, 2**63 - 1))
def test_simulated_run_replaces_only_the_evidence(num_sizes, seed):
    bounds = Bounds(sizes=tuple(range(3, 3 + num_sizes)))
    view = random_view(np.random.default_rng(seed), lake_domain(bounds))
    spy = Spy()
    SimulatedEngineer(spy).propose(make_task(view, seed))
    [shown_view] = [task.view for task in spy.tasks]
    counts = [tally.count for tally in view.evidence.validation.values() if tally.count]
    assert set(shown_view.evidence.validation) == set(view.domain.space.groups)
    if counts:
        shown_counts = {tally.count for tally in shown_view.evidence.validation.values()}
        assert min(counts) <= min(shown_counts) <= max(shown_counts) <= max(counts)
    assert (shown_view.evidence.training is None) == (view.evidence.training is None)
    assert bool(shown_view.valid_before) == bool(view.valid_before)
    assert [entry.configuration for entry in shown_view.history] == [
        entry.configuration for entry in view.history
    ]
    assert [entry.stage for entry in shown_view.history] == [entry.stage for entry in view.history]
    assert not any(entry.summary for entry in shown_view.history)
    unchanged_fields = ("domain", "current", "trained", "designed_from", "notice", "refusal")
    assert all(getattr(shown_view, field) == getattr(view, field) for field in unchanged_fields)
    assert shown_view.evidence.stage == view.evidence.stage
    assert shown_view.evidence.environment == view.evidence.environment


def test_simulated_run_contains_no_true_evidence(view):
    """The shown evidence does not depend on the true rates."""
    blocks = ("failure_breakdown", "training_details", "history")
    changed_evidence = view.evidence.model_copy(
        update={
            "validation": {
                group: hole_tally(0, count=tally.count)
                for group, tally in view.evidence.validation.items()
            }
        }
    )
    zero_tallies = {group: hole_tally(0, count=50) for group in view.evidence.validation}
    view_1 = replace(view, valid_before=dict.fromkeys(zero_tallies, 0.9))
    view_2 = replace(view_1, evidence=changed_evidence, rolled_back_validation=zero_tallies)
    contexts = [
        make_compact_context(simulate_evidence(v, seed=3), blocks) for v in (view_1, view_2)
    ]
    assert contexts[0] == contexts[1]
    assert contexts[0] != make_compact_context(view, blocks)
    assert make_compact_context(simulate_evidence(view, seed=4), blocks) != contexts[0]


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
        shown_training = shuffle_evidence(view, seed).evidence.training
        for name, values in changes.items():
            assert sorted(map(str, getattr(shown_training, name).values())) == sorted(
                map(str, values.values())
            )
            assert all(getattr(shown_training, name).get(group) != values[group] for group in "34")
