"""Experimental controls: engineers that read altered evidence."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar, TypeVar

import numpy as np

from engineer.context.view import StageView
from engineer.engineers.base import ControlEngineer, Engineer, Proposal, Task
from engineer.synthetic.simulated_run import simulate_run

T = TypeVar("T")

_SHUFFLE_STREAM, _SIMULATION_STREAM = 1, 2
"""Numbers of random streams that are independent of the draws of the inner engineer."""

_GROUP_FIELDS = ("valid_before", "valid_after", "failures_before")
"""The fields of `StageHistory` with values by group."""


def simulate_evidence(view: StageView, seed: int) -> StageView:
    """Return the view with the evidence of a simulated run; `seed` must not be negative."""
    counts = [tally.count for tally in view.evidence.validation.values() if tally.count]
    count_range = (min(counts), max(counts)) if counts else (16, 256)
    rng = np.random.default_rng([seed, _SIMULATION_STREAM])
    simulated_view = simulate_run(rng, view.domain, len(view.history) + 1, counts=count_range)[-1]
    changes = {"stage": view.evidence.stage, "environment": view.evidence.environment}
    if view.evidence.training is None:
        changes["training"] = None
    history = tuple(
        stage.model_copy(
            update={"summary": ""} | {field: getattr(source, field) for field in _GROUP_FIELDS}
        )
        for stage, source in zip(view.history, simulated_view.history, strict=True)
    )
    return replace(
        view,
        evidence=simulated_view.evidence.model_copy(update=changes),
        history=history,
        valid_before=simulated_view.valid_before if view.valid_before else {},
        rolled_back_validation={},  # a simulated run has no rolled-back weights
    )


def shuffle_evidence(view: StageView, seed: int) -> StageView:
    """Assign to each group of a view the evidence of another group, by a random cycle."""
    evidence, training = view.evidence, view.evidence.training
    learnability = training.learnability if training else {}
    rollouts = training.rollouts if training else {}
    statistics = training.answer_statistics if training else {}
    mappings: list[Mapping[str, Any]] = [evidence.validation, evidence.environment, learnability]
    mappings += [rollouts, statistics, view.valid_before, view.rolled_back_validation]
    for field in _GROUP_FIELDS:
        mappings += [getattr(stage, field) for stage in view.history]
    groups = list(dict.fromkeys(chain(view.domain.space.groups, *mappings)))
    cycle_order = np.random.default_rng([seed, _SHUFFLE_STREAM]).permutation(len(groups)).tolist()
    cycle = zip(cycle_order, cycle_order[1:] + cycle_order[:1], strict=True)
    new_groups = {groups[source]: groups[target] for source, target in cycle}

    def permute(values: Mapping[str, T]) -> dict[str, T]:
        permuted_values = {new_groups[group]: value for group, value in values.items()}
        return {group: permuted_values[group] for group in groups if group in permuted_values}

    changes = {
        "validation": permute(evidence.validation),
        "environment": permute(evidence.environment),
        "training": training
        and training.model_copy(
            update={
                "learnability": permute(learnability),
                "rollouts": permute(rollouts),
                "answer_statistics": permute(statistics),
            }
        ),
        "failed_cases": (),
    }
    history = tuple(
        stage.model_copy(update={field: permute(getattr(stage, field)) for field in _GROUP_FIELDS})
        for stage in view.history
    )
    return replace(
        view,
        evidence=evidence.model_copy(update=changes),
        history=history,
        valid_before=permute(view.valid_before),
        rolled_back_validation=permute(view.rolled_back_validation),
    )


@dataclass(frozen=True)
class AlteredEvidence:
    """Base class of controls that ask another engineer about altered evidence.

    The seed (>= 0) of the task's first attempt determines the alteration. Controls write no notes,
    because notes of the inner engineer would describe the true evidence.
    """

    prefix: ClassVar[str]
    inner: Engineer

    @property
    def name(self) -> str:
        """The name in a catalogue, such as `shuffled:learnability`."""
        return f"{self.prefix}:{self.inner.name}"

    @staticmethod
    def alter_view(view: StageView, seed: int) -> StageView:
        """Return the view for the inner engineer."""
        raise NotImplementedError

    def propose(self, task: Task) -> Proposal:
        """Ask about the altered view; raise `ValueError` if `task.build_context` is None."""
        return self.inner.propose(self._replace_evidence(task))

    def alter_task(self, task: Task) -> Task:
        """Return the task that the inner engineer answers; raise `ValueError` like `propose`."""
        task = self._replace_evidence(task)
        return self.inner.alter_task(task) if isinstance(self.inner, ControlEngineer) else task

    def _replace_evidence(self, task: Task) -> Task:
        if task.build_context is None:
            raise ValueError(f"task.build_context must be a function for {self.name}, got None")
        view = self.alter_view(task.view, task.first_seed)
        return replace(task, view=view, context=task.build_context(view))


@dataclass(frozen=True)
class ShuffledEngineer(AlteredEvidence):
    """Asks another engineer about evidence that is permuted across groups.

    A random cycle through all groups assigns to each group the evidence of another group: tallies,
    slices, environment statistics, learnability, and rates in the history. Failed cases are
    omitted, because an instance reveals its group. Configurations, totals and notes do not change.
    An engineer that performs equally well with this evidence does not use the evidence by group.
    """

    prefix: ClassVar[str] = "shuffled"
    alter_view = staticmethod(shuffle_evidence)


@dataclass(frozen=True)
class SimulatedEngineer(AlteredEvidence):
    """Asks another engineer about the evidence of a simulated run.

    A permutation has no effect if all groups need the same changes. This control therefore replaces
    validation, training and the rates of the history by those of a simulated run
    (`engineer.synthetic`) with the same number of stages and similar numbers of answers.
    Configurations, environment statistics and notices do not change. Slices, failed cases and notes
    are omitted. An engineer that performs equally well with simulated evidence does not use the
    evidence.
    """

    prefix: ClassVar[str] = "simulated"
    alter_view = staticmethod(simulate_evidence)


CONTROLS: dict[str, type[AlteredEvidence]] = {
    control.prefix: control for control in (ShuffledEngineer, SimulatedEngineer)
}
"""Maps prefixes of engineers' names to controls."""
CONTROL_NAMES = ", ".join(f"{prefix}:NAME" for prefix in CONTROLS)


def split_control_name(name: str) -> tuple[type[AlteredEvidence] | None, str]:
    """Split a name such as `shuffled:rule` into its control, or None, and the inner name."""
    prefix, colon, inner_name = name.partition(":")
    return (CONTROLS[prefix], inner_name) if colon and prefix in CONTROLS else (None, name)
