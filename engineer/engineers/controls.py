"""Experimental controls: engineers that read altered evidence."""

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
"""Make random draws here independent of draws by the inner engineer from the same seed."""

_BY_GROUP = ("valid_before", "valid_after", "failures_before")
"""The fields of `StageHistory` with values by group."""


def simulate(view: StageView, seed: int) -> StageView:
    """Replace the evidence of a view by that of a simulated run with the given seed >= 0."""
    counts = [tally.count for tally in view.evidence.validation.values() if tally.count]
    answers = (min(counts), max(counts)) if counts else (16, 256)
    rng = np.random.default_rng([seed, _SIMULATION])
    simulated = simulated_run(rng, view.domain, len(view.history) + 1, counts=answers)[-1]
    changes = {"stage": view.evidence.stage, "environment": view.evidence.environment}
    if view.evidence.training is None:
        changes["training"] = None
    history = tuple(
        past.model_copy(
            update={"summary": ""} | {field: getattr(other, field) for field in _BY_GROUP}
        )
        for past, other in zip(view.history, simulated.history, strict=True)
    )
    return replace(
        view,
        evidence=simulated.evidence.model_copy(update=changes),
        history=history,
        valid_before=simulated.valid_before if view.valid_before else {},
        taken_back={},  # a simulated run has no rolled-back weights
    )


def shuffle(view: StageView, seed: int) -> StageView:
    """Permute the evidence of a view across groups, without fixed points (if two or more)."""
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
    shown_as = {groups[source]: groups[target] for source, target in cycle}

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
    """Base class of controls that ask another engineer about altered evidence.

    The seed (>= 0) of the task's first attempt determines the alteration. Controls write no notes,
    because the inner engineer's notes would describe the true evidence.
    """

    prefix: ClassVar[str]
    inner: Engineer

    @property
    def name(self) -> str:
        """The name in a catalogue, such as `shuffled:learnability`."""
        return f"{self.prefix}:{self.inner.name}"

    @staticmethod
    def altered_view(view: StageView, seed: int) -> StageView:
        """Return the view for the inner engineer."""
        raise NotImplementedError

    def propose(self, task: Task) -> Proposal:
        """Ask about the altered view; raise `ValueError` if the task can't rebuild its prompt."""
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

    One random cycle through all groups assigns each group the evidence of another one: tallies,
    slices, environment statistics, learnability, and rates in the history. Failed cases are
    omitted, because an instance reveals its group. Configurations, totals, times of failures and
    notes do not change. An engineer that performs as well with this control does not use the
    assignment of evidence to groups.
    """

    prefix: ClassVar[str] = "shuffled"
    altered_view = staticmethod(shuffle)


@dataclass(frozen=True)
class SimulatedEngineer(AlteredEvidence):
    """Asks another engineer about the evidence of a simulated run.

    If all groups need the same changes, a permutation has no effect; this control replaces all
    evidence instead. Validation, training and the rates of the history come from a simulated run
    (`engineer.synthetic`) with the same numbers of stages and answers. Configurations, environment
    statistics and notices do not change; slices, failed cases, times of failures and notes are
    omitted. An engineer that performs as well with this control does not use the evidence.
    """

    prefix: ClassVar[str] = "simulated"
    altered_view = staticmethod(simulate)


CONTROLS: dict[str, type[AlteredEvidence]] = {
    control.prefix: control for control in (ShuffledEngineer, SimulatedEngineer)
}
"""Controls by the prefix of an engineer's name."""
CONTROL_NAMES = ", ".join(f"{prefix}:NAME" for prefix in CONTROLS)


def split_control(name: str) -> tuple[type[AlteredEvidence] | None, str]:
    """Split a name such as `shuffled:rule` into its control, or None, and the inner name."""
    prefix, colon, rest = name.partition(":")
    return (CONTROLS[prefix], rest) if colon and prefix in CONTROLS else (None, name)
