"""Controls: engineers that read something else than what happened."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar, TypeVar

import numpy as np

from engineer.context.view import StageView
from engineer.engineers.base import ControlEngineer, Engineer, Proposal, Task
from engineer.synthetic.simulated_run import simulated_run

T = TypeVar("T")

_SHUFFLING, _SIMULATION = 1, 2
"""Keep what is drawn here independent of what an engineer inside draws from the same seed."""

_BY_GROUP = ("valid_before", "valid_after", "failures_before")
"""The fields of a `StageHistory` that tell groups apart."""


def simulate(view: StageView, seed: int) -> StageView:
    """Replace what a view says was seen by a simulated run's; the seed (>= 0) decides which."""
    counts = [tally.count for tally in view.evidence.validation.values() if tally.count]
    answers = (min(counts), max(counts)) if counts else (16, 256)
    rng = np.random.default_rng([seed, _SIMULATION])
    seen = simulated_run(rng, view.domain, len(view.history) + 1, counts=answers)[-1]
    changes = {"stage": view.evidence.stage, "environment": view.evidence.environment}
    if view.evidence.training is None:
        changes["training"] = None
    history = tuple(
        past.model_copy(
            update={"summary": ""} | {field: getattr(other, field) for field in _BY_GROUP}
        )
        for past, other in zip(view.history, seen.history, strict=True)
    )
    return replace(
        view,
        evidence=seen.evidence.model_copy(update=changes),
        history=history,
        valid_before=seen.valid_before if view.valid_before else {},
        taken_back={},  # the simulated run's answers are those of its own weights
    )


def shuffle(view: StageView, seed: int) -> StageView:
    """Permute a view's evidence across groups; of two or more groups none keeps its own."""
    evidence, training = view.evidence, view.evidence.training
    learnability = training.learnability if training else {}
    rollouts = training.rollouts if training else {}
    signals = training.signals if training else {}
    by_group: list[Mapping[str, Any]] = [evidence.validation, evidence.environment, learnability]
    by_group += [rollouts, signals, view.valid_before, view.taken_back]
    for field in _BY_GROUP:
        by_group += [getattr(past, field) for past in view.history]
    groups = list(dict.fromkeys(chain(view.domain.space.groups, *by_group)))
    order = np.random.default_rng([seed, _SHUFFLING]).permutation(len(groups)).tolist()
    cycle = zip(order, order[1:] + order[:1], strict=True)
    shown_as = {groups[here]: groups[there] for here, there in cycle}

    def renamed(values: Mapping[str, T]) -> dict[str, T]:
        moved = {shown_as[group]: value for group, value in values.items()}
        return {group: moved[group] for group in groups if group in moved}

    changes = {
        "validation": renamed(evidence.validation),
        "environment": renamed(evidence.environment),
        "training": training
        and training.model_copy(
            update={
                "learnability": renamed(learnability),
                "rollouts": renamed(rollouts),
                "signals": renamed(signals),
            }
        ),
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
        taken_back=renamed(view.taken_back),
    )


@dataclass(frozen=True)
class AlteredEvidence:
    """Asks another engineer about evidence that is not the true one.

    The seed (>= 0) of the task's first attempt decides what it is shown. It writes no notes: those
    of the inner engineer would be about the true evidence.
    """

    prefix: ClassVar[str]
    inner: Engineer

    @property
    def name(self) -> str:
        """The name in a catalogue, such as `shuffled:learnability`."""
        return f"{self.prefix}:{self.inner.name}"

    @staticmethod
    def altered_view(view: StageView, seed: int) -> StageView:
        """Return what the inner engineer is told."""
        raise NotImplementedError

    def propose(self, task: Task) -> Proposal:
        """Ask about the altered view; a ValueError if the task can't rebuild its prompt."""
        return self.inner.propose(self._altered(task))

    def altered_task(self, task: Task) -> Task:
        """Return the task with its evidence altered; raises as `propose`."""
        task = self._altered(task)
        return self.inner.altered_task(task) if isinstance(self.inner, ControlEngineer) else task

    def _altered(self, task: Task) -> Task:
        if task.rebuild is None:
            raise ValueError(f"task.rebuild: got None, a {self.prefix} engineer needs a function")
        view = self.altered_view(task.view, task.first_seed)
        return replace(task, view=view, context=task.rebuild(view))


@dataclass(frozen=True)
class ShuffledEngineer(AlteredEvidence):
    """Asks another engineer about evidence that is permuted across groups.

    Each group gets the evidence of another one: its tallies and slices, environment statistics,
    learnability and rates in the history, all by one random cycle through all groups. Failed
    cases are left out, since an instance shows its group. With a single group nothing else changes.
    Configurations, totals over groups, times of failures and notes stay. An engineer that does as
    well like this does not use which group the evidence is of.
    """

    prefix: ClassVar[str] = "shuffled"
    altered_view = staticmethod(shuffle)


@dataclass(frozen=True)
class SimulatedEngineer(AlteredEvidence):
    """Asks another engineer about the evidence of a run that never was.

    Where all groups need the same, permuting them changes nothing: this control replaces all that
    was seen. Validation, training and the rates of the history come from a simulated run
    (`engineer.synthetic`) of as many stages and as many answers. Configurations, statistics of the
    environment and notices stay; slices, failed cases, times of failures and notes are left out. An
    engineer that does as well like this does not use what was seen.
    """

    prefix: ClassVar[str] = "simulated"
    altered_view = staticmethod(simulate)


CONTROLS: dict[str, type[AlteredEvidence]] = {
    control.prefix: control for control in (ShuffledEngineer, SimulatedEngineer)
}
"""By the prefix of an engineer's name."""
CONTROL_NAMES = ", ".join(f"{prefix}:NAME" for prefix in CONTROLS)


def split_control(name: str) -> tuple[type[AlteredEvidence] | None, str]:
    """Return the control that a name such as `shuffled:rule` asks for, if any, and the rest."""
    prefix, colon, rest = name.partition(":")
    return (CONTROLS[prefix], rest) if colon and prefix in CONTROLS else (None, name)
