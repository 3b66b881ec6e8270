"""Use the engineer in another trainer, which passes counts and gets a configuration.

    domain = knob_domain(("sums", "products"), {"digits": "digits of each number, 1 to 11"})
    designer = Designer(domain, LearnabilityEngineer())
    record = designer.design({"sums": (57, 64), "products": (12, 64)})
    designer.configuration["sums"]["digits"]  # 0..1

`docs/how_to/plug_in.md` shows examples for three libraries.
"""

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from engineer.context.build import BlockName
from engineer.context.view import StageView
from engineer.design import DesignRecord, DesignSettings, run_design
from engineer.domain import Domain, Label
from engineer.engineers.base import Engineer
from engineer.evidence import DecisionKind, GroupEvidence, StageEvidence, StageHistory
from engineer.space import Configuration, FrozenModel, KnobSpace, KnobValues, Ratio, apportion

SHARE = "data_ratio"
"""Name of the knob with a group's share of the training instances."""
_EDIT_SIZE = 0.1
"""Approximate change of a knob by one relative edit."""
_FAILURE = Label("invalid", "invalid answer", "invalid")
_BLOCKS: tuple[BlockName, ...] = ("failure_breakdown", "history", "guideline")
"""The blocks of the prompt that need only counts."""
_WINDOW = 0.1
"""Half-width of the window from which `RowPool` draws, as a fraction of a group's rows."""

Counts = Mapping[str, tuple[int, int]]
"""Numbers of valid answers and of all answers, by group."""


def knob_domain(
    groups: Sequence[str],
    knobs: Mapping[str, str],
    *,
    step: float = 0.05,
    min_share: float = 0.05,
) -> Domain:
    """Return the domain of an environment with the given groups and knobs.

    Every group has all knobs and the knob `data_ratio`. Knobs are ratios from 0 (easiest instances)
    to 1 (hardest); the trainer maps them to its own parameters.

    Args:
        groups: Names of the kinds of instances, from easiest to hardest if they have an order.
        knobs: A short description of each knob, for language models; may be empty.
        step: Grid of all ratios, a whole number of percent that divides 1.
        min_share: Minimum share of each group, a multiple of `step`.

    Returns:
        A domain in which one relative edit moves a knob by about 0.1.

    Raises:
        ValueError: A name is empty, contains blanks or is given twice, or `step` or `min_share` is
            invalid.
    """
    knob_names = (SHARE, *knobs)
    for field, names in (("groups", tuple(groups)), ("knobs", knob_names)):
        if invalid_names := [name for name in names if not name or name.split() != [name]]:
            raise ValueError(f"{field} must be names without blanks, got {invalid_names[0]!r}")
        if len(set(names)) < len(names) or not names:
            raise ValueError(
                f"{field} must be one or more different names, got {', '.join(names) or 'none'}"
            )

    class Space(KnobSpace):
        group_label: ClassVar[str] = "group"
        knobs: ClassVar[tuple[str, ...]] = knob_names

        @property
        def groups(self) -> tuple[str, ...]:
            return tuple(groups)

        def maximum(self, knob: str) -> float:
            return 1.0

    meanings = "".join(f", {knob} ({meaning})" for knob, meaning in knobs.items())
    return Domain(
        name="plug_in",
        space=Space(min_share=min_share, step=step, edit_steps=max(1, round(_EDIT_SIZE / step))),
        opening="You are the environment engineer of a model that learns in stages. You read the"
        " results of the last stage and write the configuration of the next one: for each group"
        f" {SHARE} (its share of the training instances){meanings}. Each number is a ratio from 0"
        " to 1, and instances get harder as a knob grows.",
        guideline=(
            "Learning comes from instances that are sometimes solved and sometimes not. Give most"
            " data to groups with a valid rate between 20% and 80%, but keep some of each.",
        ),
        failures=(_FAILURE,),
    )


def start_configuration(domain: Domain, level: float = 0.0) -> Configuration:
    """Return a configuration with equal shares and all knobs at a level, rounded to the grid.

    Args:
        domain: The environment.
        level: Level of the knobs as a fraction of their maxima, 0 to 1.

    Returns:
        The configuration, within the bounds of `domain.space`.
    """
    space = domain.space
    shares = apportion([1.0] * len(space.groups), space.units, space.to_units(space.min_share))
    knobs = {
        knob: space.from_units(space.to_units(level * space.maximum(knob)))
        for knob in space.difficulty_knobs
    }
    return space.make(
        {
            group: {space.share: space.from_units(share), **knobs}
            for group, share in zip(space.groups, shares, strict=True)
        }
    )


class _Stage(FrozenModel):
    """The configuration of a stage, the decision that led to it, and the counts of its answers."""

    configuration: dict[str, dict[str, Ratio]]
    decision: DecisionKind
    counts: dict[str, tuple[int, int]]


class Designer:
    """Asks an engineer for a new configuration after each stage, and keeps the history.

    Args:
        domain: The environment, from `knob_domain` or your own.
        engineer: The engineer, such as `RuleEngineer()`.
        start: The configuration of the first stage; None: equal shares and the easiest instances.
        settings: The design settings; `step_limit` limits the changes per stage.
        seed: Seed of all random decisions, at least 0.

    Raises:
        ValueError: `start` is outside the bounds of the domain.
    """

    def __init__(
        self,
        domain: Domain,
        engineer: Engineer,
        start: Configuration | None = None,
        *,
        settings: DesignSettings | None = None,
        seed: int = 0,
    ) -> None:
        self.domain, self.engineer, self.seed = domain, engineer, seed
        self.settings = settings or DesignSettings(blocks=_BLOCKS)
        self._stages: list[_Stage] = []
        self._set_current(start or start_configuration(domain), "initial")

    @property
    def configuration(self) -> KnobValues:
        """The knobs of the current stage, by group."""
        return {group: dict(knobs) for group, knobs in self._current.values().items()}

    def design(self, counts: Counts) -> DesignRecord[Configuration]:
        """Design the next stage from the results of the current one.

        Args:
            counts: The numbers of valid answers and of all answers by group, preferably on a fixed
                validation set. Groups may be missing.

        Returns:
            The decision, with `configuration`, `diff`, `repairs`, `kind` and `reason`. If no
            answer of the engineer is usable, the configuration is kept.

        Raises:
            ValueError: `counts` names an unknown group, has no answers, or does not add up.
        """
        stage = _Stage(
            configuration=self.configuration,
            decision=self._decision,
            counts=_check_counts(counts, self.domain.space.groups),
        )
        view = self._make_view([*self._stages, stage])
        record = run_design(self.engineer, view, self.settings, seed=self._attempt_seed)
        self._stages.append(stage)
        self._set_current(record.configuration, record.kind)
        return record

    def state_dict(self) -> dict[str, Any]:
        """Return the history as JSON-serialisable values, for checkpoints."""
        return {
            "stages": [stage.model_dump(mode="json") for stage in self._stages],
            "configuration": self.configuration,
            "decision": self._decision,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the history from the output of `state_dict`.

        Raises:
            ValueError: The configuration is outside the bounds of the domain.
        """
        self._set_current(self.domain.space.make(state["configuration"]), state["decision"])
        self._stages = [_Stage.model_validate(stage) for stage in state["stages"]]

    def _set_current(self, configuration: Configuration, decision: DecisionKind) -> None:
        if violation := self.domain.space.violation(configuration):
            raise ValueError(f"configuration: {violation}")
        self._current, self._decision = configuration, decision

    def _attempt_seed(self, attempt: int) -> int:
        entropy = [self.seed, len(self._stages), attempt]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    def _make_view(self, stages: Sequence[_Stage]) -> StageView:
        make_configuration = self.domain.space.make
        initial_counts = dict.fromkeys(self.domain.space.groups, (0, 0))
        counts_by_stage = [initial_counts, *(stage.counts for stage in stages)]
        evidence = [_make_evidence(stage, counts) for stage, counts in enumerate(counts_by_stage)]
        history = tuple(
            StageHistory.from_evidence(
                before, after, make_configuration(stage.configuration), stage.decision
            )
            for before, after, stage in zip(evidence, evidence[1:-1], stages, strict=False)
        )
        return StageView(
            self.domain,
            evidence[-1],
            self._current,
            history,
            designed_from=make_configuration(stages[-2].configuration) if len(stages) > 1 else None,
            valid_before=evidence[-2].valid_rates(),
        )


class RowPool:
    """Draws rows of a finite data set according to a configuration.

    A draw picks a group by its share and then a row of the group. The difficulty knob is a quantile
    of the difficulties of the group's rows. The row is uniform over a window around this quantile,
    which extends over 10% of the rows on either side.

    Args:
        groups: The group of each row.
        difficulties: The difficulty of each row, in any unit.

    Raises:
        ValueError: No rows are given, or the two lengths differ.
    """

    def __init__(self, groups: Sequence[str], difficulties: Sequence[float]) -> None:
        if not groups or len(groups) != len(difficulties):
            raise ValueError(
                "groups and difficulties must have one entry for each row, got"
                f" {len(groups)} and {len(difficulties)}"
            )
        self._rows: dict[str, list[int]] = {}
        for row in sorted(range(len(groups)), key=difficulties.__getitem__):
            self._rows.setdefault(groups[row], []).append(row)

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups, ordered by their easiest rows."""
        return tuple(self._rows)

    def draw(
        self, configuration: KnobValues, rng: np.random.Generator, knob: str = "difficulty"
    ) -> int:
        """Return the index of a random row.

        Args:
            configuration: The knobs by group, such as `Designer.configuration`.
            rng: The random generator.
            knob: The name of the difficulty knob.
        """
        shares = np.array([configuration[group][SHARE] for group in self._rows])
        group = self.groups[rng.choice(len(shares), p=shares / shares.sum())]
        rows = self._rows[group]
        centre, half_width = configuration[group][knob] * (len(rows) - 1), _WINDOW * len(rows)
        first = max(0, math.ceil(centre - half_width))
        last = min(len(rows) - 1, math.floor(centre + half_width))
        return rows[rng.integers(first, last + 1)]


def _make_evidence(stage: int, counts: Counts) -> StageEvidence:
    validation = {}
    for group, (valid, count) in counts.items():
        failures = {_FAILURE.key: count - valid} if count > valid else {}
        validation[group] = GroupEvidence(count=count, valid=valid, failures=failures)
    return StageEvidence(stage=stage, validation=validation)


def _check_counts(counts: Counts, groups: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return counts as Python integers, in the order of the groups; raise if invalid."""
    if unknown_groups := [group for group in counts if group not in groups]:
        raise ValueError(f"groups of counts must be {', '.join(groups)}, got {unknown_groups[0]!r}")
    checked_counts = {}
    for group in groups:
        valid, count = map(operator.index, counts.get(group, (0, 0)))
        if not 0 <= valid <= count:
            raise ValueError(f"counts of {group} must be 0 <= valid <= all, got {valid}, {count}")
        checked_counts[group] = valid, count
    if not any(count for _, count in checked_counts.values()):
        raise ValueError("counts must contain at least one answer, got none")
    return checked_counts
