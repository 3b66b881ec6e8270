from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer import NoteWriter, ShuffledEngineer, Task, build_context
from engineer.lake import Bounds
from tests.engineer.builders import lake, roomy, tally
from tests.engineer.engineers.tasks import Spy, task_of, view_of, views


def shown_by_shuffling(task: Task) -> Task:
    spy = Spy()
    assert ShuffledEngineer(spy).propose(task).tokens == 3
    [shown] = spy.seen
    return shown


@settings(max_examples=60)
@given(data=st.data(), sizes=st.integers(2, 6), seed=st.integers(0, 2**63 - 1))
def test_no_group_keeps_its_own_evidence_and_none_is_lost(data, sizes, seed):
    bounds = Bounds(sizes=tuple(range(3, 3 + sizes)))
    view = data.draw(views(bounds))
    # Counts tell which group the evidence was of.
    validation = {group: tally(0, count=10 + int(group)) for group in (*bounds.groups, "99")}
    evidence = view.evidence.model_copy(update={"validation": validation})
    view = replace(view, evidence=evidence)
    shown = shown_by_shuffling(task_of(view, seed)).view
    came_from = {
        group: str(answers.count - 10) for group, answers in shown.evidence.validation.items()
    }
    assert sorted(came_from.values()) == sorted(validation)
    assert all(group != origin for group, origin in came_from.items())

    def checked(now: Mapping[str, object], then: Mapping[str, object]) -> None:
        assert dict(now) == {g: then[origin] for g, origin in came_from.items() if origin in then}

    checked(shown.evidence.environment, evidence.environment)
    assert (shown.evidence.training is None) == (evidence.training is None)
    if shown.evidence.training and evidence.training:
        checked(shown.evidence.training.learnability, evidence.training.learnability)
    assert shown.evidence.failed_cases == ()  # a case shows its group
    for now, then in zip(shown.history, view.history, strict=True):
        checked(now.valid_before, then.valid_before)
        checked(now.valid_after, then.valid_after)
        checked(now.failures_before, then.failures_before)
        assert now.configuration == then.configuration
    assert (shown.current, shown.domain) == (view.current, view.domain)


def test_the_prompt_is_made_of_the_permuted_evidence(view):
    task = shown_by_shuffling(replace(task_of(view, seed=1), rebuild=build_context))
    assert task.context == build_context(task.view)
    assert "41 of 50 valid" in task.context.text
    assert "3x3: 41 of 50 valid" not in task.context.text


def test_a_retry_is_shown_the_same_permutation(view):
    first = task_of(view, seed=1)
    again = replace(first, seed=2, attempt=1)
    spy = ShuffledEngineer(Spy())
    assert spy.altered_task(first).view == spy.altered_task(again).view


def test_every_group_can_be_shown_as_every_other_one(view):
    shown = [shown_by_shuffling(task_of(view, seed)).view.evidence for seed in range(40)]
    valid = {tuple(one.validation[group].valid for group in ("3", "4", "5")) for one in shown}
    assert valid == {(25, 4, 41), (4, 41, 25)}


def test_a_single_group_has_none_to_be_permuted_with():
    view = view_of({"3": 40}, domain=roomy(Bounds(sizes=(3,))), current=lake((1, 0, 0), sizes=(3,)))
    assert shown_by_shuffling(task_of(view, 5)).view == view


def test_a_shuffled_engineer_writes_no_notes_and_needs_a_prompt_of_its_own(view):
    engineer = ShuffledEngineer(Spy())
    assert engineer.name == "shuffled:spy"
    assert not isinstance(engineer, NoteWriter)
    with pytest.raises(ValueError, match=r"task\.rebuild: got None"):
        engineer.propose(replace(task_of(view), rebuild=None))
