"""Controls: engineers that read something else than what happened."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from engineer.context.view import StageView
from engineer.engineers.base import ControlEngineer, Engineer, Proposal, Task

T = TypeVar("T")

_STREAM = 1
"""Keeps the permutation independent of what an engineer inside draws from the same seed."""

_BY_GROUP = ("valid_before", "valid_after", "failures_before")
"""The fields of a `StageHistory` that tell groups apart."""


@dataclass(frozen=True)
class ShuffledEngineer:
    """Asks another engineer about evidence that is permuted across groups.

    Each group gets the evidence of another one: its tallies and slices, environment statistics,
    learnability and rates in the history, all by one random cycle through all groups. The seed
    (>= 0) of the task's first attempt decides the cycle. Failed cases are left out, since an
    instance shows its group. With a single group nothing else changes. Configurations, totals over
    groups, times of failures and notes stay. An engineer that does as well like this does not use
    the evidence by group.

    It writes no notes: those of the inner engineer would be about the true evidence.
    """

    inner: Engineer

    @property
    def name(self) -> str:
        """The name in a catalogue: `shuffled:learnability`."""
        return f"shuffled:{self.inner.name}"

    def propose(self, task: Task) -> Proposal:
        """Ask about the permuted evidence; a ValueError if the task can't rebuild its prompt."""
        return self.inner.propose(self._permuted(task))

    def altered_task(self, task: Task) -> Task:
        """Return the task with its evidence permuted; raises as `propose`."""
        task = self._permuted(task)
        return self.inner.altered_task(task) if isinstance(self.inner, ControlEngineer) else task

    def _permuted(self, task: Task) -> Task:
        if task.rebuild is None:
            raise ValueError("task.rebuild: got None, a shuffled engineer needs a function")
        view = shuffle(task.view, task.first_seed)
        return replace(task, view=view, context=task.rebuild(view))


def shuffle(view: StageView, seed: int) -> StageView:
    """Permute a view's evidence across groups; of two or more groups none keeps its own."""
    evidence, training = view.evidence, view.evidence.training
    learnability = training.learnability if training else {}
    by_group: list[Mapping[str, Any]] = [evidence.validation, evidence.environment, learnability]
    by_group.append(view.valid_before)
    for field in _BY_GROUP:
        by_group += [getattr(past, field) for past in view.history]
    groups = list(dict.fromkeys(chain(view.domain.space.groups, *by_group)))
    order = np.random.default_rng([seed, _STREAM]).permutation(len(groups)).tolist()
    cycle = zip(order, order[1:] + order[:1], strict=True)
    shown_as = {groups[here]: groups[there] for here, there in cycle}

    def renamed(values: Mapping[str, T]) -> dict[str, T]:
        moved = {shown_as[group]: value for group, value in values.items()}
        return {group: moved[group] for group in groups if group in moved}

    changes = {
        "validation": renamed(evidence.validation),
        "environment": renamed(evidence.environment),
        "training": training
        and training.model_copy(update={"learnability": renamed(learnability)}),
        "failed_cases": (),
    }
    history = tuple(
        past.model_copy(update={field: renamed(getattr(past, field)) for field in _BY_GROUP})
        for past in view.history
    )
    return replace(
        view,
        evidence=evidence.model_copy(update=changes),
        history=history,
        valid_before=renamed(view.valid_before),
    )
