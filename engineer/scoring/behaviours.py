"""Scores five behaviours of an engineer from what it read and what it wrote.

The names of the behaviours come from the paper, which does not say how it measured them. The
definitions are this package's own: `docs/replay.md` gives each with what it can't see. Every score
reads a view and a proposed configuration, trains nothing, and lies in 0..1, or is None where the
evidence says nothing about it. Changes are counted in moves (`grid_moves`).
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple

from pydantic import Field

from engineer.context.view import StageView
from engineer.domain import Domain
from engineer.evidence import GroupEvidence, Tally
from engineer.scoring.learnability import learnability_model
from engineer.space import Configuration, FrozenModel, KnobValues
from jaxlake.statistics.intervals import wilson_interval

Z = 1.96
"""A difference of more than so many standard errors is more than noise."""
FAILING = 0.5
"""A group is failing if its valid rate is below this at the upper end of its 95% interval."""
MASTERED = 0.75
"""A group is mastered if its valid rate is above this at the lower end of its 95% interval."""

Score = Annotated[float, Field(ge=0.0, le=1.0)]

_SAME = 1e-9


class Behaviours(FrozenModel):
    """The five scores of one proposal; None where the evidence says nothing."""

    salience: Score | None = Field(description="changes are made where failures are")
    granularity: Score | None = Field(description="groups that differ are treated differently")
    causality: Score | None = Field(description="knobs move as the kinds of failure say")
    self_correction: Score | None = Field(
        description="harmful changes are undone, helpful ones kept"
    )
    task_modelling: Score | None = Field(description="data goes where answers vary")


def score_behaviours(view: StageView, configuration: Configuration) -> Behaviours:
    """Return all five scores of a proposal."""
    return Behaviours(
        salience=salience(view, configuration),
        granularity=granularity(view, configuration),
        causality=causality(view, configuration),
        self_correction=self_correction(view, configuration),
        task_modelling=task_modelling(view, configuration),
    )


def grid_moves(view: StageView, configuration: Configuration) -> KnobValues:
    """Return each knob's signed move from the current configuration to a proposed one.

    It is in grid steps for knobs and half grid steps for shares, so that one step of data that goes
    from one group to another is one move in all.
    """
    space = view.domain.space
    before = space.knobs_of(view.current)
    after = space.knobs_of(configuration)
    unit = dict.fromkeys(space.knobs, float(space.units)) | {space.share: space.units / 2}
    return {
        group: {
            knob: round((after[group][knob] - before[group][knob]) * unit[knob], 6) + 0.0
            for knob in space.knobs
        }
        for group in space.groups
    }  # adding zero turns a negative zero into zero


def salience(view: StageView, configuration: Configuration) -> float | None:
    """Score whether the groups that fail most are changed most.

    A group's salience is the lower end of the 95% interval (Wilson) of its failure rate. The score
    is 1/2 where the moves' mean salience is that of all groups, 1 and 0 at its extremes.
    """
    tallies = _answered(view)
    sure = {group: _interval(one.count - one.valid, one.count)[0] for group, one in tallies.items()}
    made = grid_moves(view, configuration)
    size = {group: math.fsum(map(abs, made[group].values())) for group in sure}
    total = math.fsum(size.values())
    if total == 0.0:
        return None
    least, most = min(sure, key=sure.__getitem__), max(sure, key=sure.__getitem__)
    if not _differ(tallies[least], tallies[least].valid, tallies[most], tallies[most].valid):
        return None
    low, high = sure[least], sure[most]
    mean = math.fsum(sure.values()) / len(sure)
    found = math.fsum(size[group] * sure[group] for group in sure) / total
    if found >= mean:
        return _ratio(1.0 + (found - mean) / (high - mean), 2.0)
    return _ratio((found - low) / (mean - low), 2.0)


def granularity(view: StageView, configuration: Configuration) -> float | None:
    """Score whether groups whose evidence differs beyond noise are changed differently.

    sum |m(g, k) - m(h, k)| / sum (|m(g, k)| + |m(h, k)|) over the moves of such pairs (g, h).
    """
    tallies = _answered(view)
    made = grid_moves(view, configuration)
    apart, size = [], []
    for one, other in itertools.combinations(tallies, 2):
        if not _evidence_differs(tallies[one], tallies[other], view.domain):
            continue
        for knob in view.domain.space.knobs:
            here, there = made[one][knob], made[other][knob]
            apart.append(abs(here - there))
            size.append(abs(here) + abs(there))
    return _ratio(math.fsum(apart), math.fsum(size))


def causality(view: StageView, configuration: Configuration) -> float | None:
    """Score whether knobs move in the direction that the failures point to (`Domain.causes`).

    sum(w * r * |m|) / sum(w * |m|) over the moves m in groups that are failing (`FAILING`: knobs go
    down, as far as the failures point to them) or mastered (`MASTERED`: harder and less data).
    """
    space = view.domain.space
    made = grid_moves(view, configuration)
    right, size = [], []
    for group, tally in _answered(view).items():
        low, high = _interval(tally.valid, tally.count)
        if high < FAILING:
            pointing = {
                knob: _pointing(tally, knob, view.domain) / tally.count
                for knob in space.difficulty_knobs
            }
            for knob, rate in pointing.items():
                move = made[group][knob]
                size.append(max(pointing.values()) * abs(move))
                right.append(rate * max(-move, 0.0))
        elif low > MASTERED:
            weight = tally.valid / tally.count
            for knob in space.knobs:
                move = made[group][knob]
                size.append(weight * abs(move))
                right.append(weight * max(-move if knob == space.share else move, 0.0))
    return _ratio(math.fsum(right), math.fsum(size))


def self_correction(view: StageView, configuration: Configuration) -> float | None:
    """Score whether changes before a fall are undone and changes before a rise are kept.

    Of each knob the latest event counts: it changed from a to b with a stage over which the group's
    valid rate changed by d beyond noise. With the proposed y and u = (y - a) / (b - a), cut to
    0..1, the score is the mean of u (d > 0) or 1 - u, weighted by |d|.
    """
    after = view.domain.space.knobs_of(configuration)
    events = {(event.group, event.knob): event for event in _events(view)}  # the latest wins
    credit, size = [], []
    for event in events.values():
        kept = (after[event.group][event.knob] - event.before) / (event.after - event.before)
        kept = min(max(kept, 0.0), 1.0)
        size.append(abs(event.difference))
        credit.append(abs(event.difference) * (kept if event.difference > 0.0 else 1.0 - kept))
    return _ratio(math.fsum(credit), math.fsum(size))


def task_modelling(view: StageView, configuration: Configuration) -> float | None:
    """Score whether the data goes to instances that are sometimes solved.

    Expected learnability as a share of the largest within the bounds.
    """
    model = learnability_model(view)
    return _ratio(model.expected(configuration), model.best())


class _Event(NamedTuple):
    """A knob that changed with a stage, and the change of the group's valid rate."""

    group: str
    knob: str
    before: float
    after: float
    difference: float


def _events(view: StageView) -> Iterator[_Event]:
    """Yield all events, oldest first.

    A stage's configuration is compared with that of the latest stage before it that was not rolled
    back. So is what the stage that just ended trained on, by what the weights that it made
    answered, whether it was taken back or not. A view that doesn't say so (made by hand) has no
    event of a stage that was rolled back or follows one.
    """
    reference: Configuration | None = None
    for past in view.history:
        if reference is not None:
            rates = past.valid_before, past.valid_after
            yield from _changed(view, reference, past.configuration, *rates)
        # A rollback leaves the configuration before in force, if there is one.
        if reference is None or past.decision != "rolled_back":
            reference = past.configuration
    now = view.evidence.valid_rates()
    if view.trained and view.designed_from and view.valid_before:
        made = {group: one.valid / one.count for group, one in view.taken_back.items() if one.count}
        yield from _changed(view, view.designed_from, view.trained, view.valid_before, made or now)
    elif view.history and not view.notice and view.history[-1].decision != "rolled_back":
        last = view.history[-1]
        yield from _changed(view, last.configuration, view.current, last.valid_after, now)


def _changed(
    view: StageView,
    old: Configuration,
    new: Configuration,
    rates_before: Mapping[str, float],
    rates_after: Mapping[str, float],
) -> Iterator[_Event]:
    space = view.domain.space
    before, after = space.knobs_of(old), space.knobs_of(new)
    for group, tally in _answered(view).items():
        if group not in rates_before or group not in rates_after:
            continue
        rates = rates_before[group], rates_after[group]
        difference = rates[1] - rates[0]
        # Earlier validations had the same instances.
        error = math.hypot(*(_standard_error(rate, tally.count) for rate in rates))
        if abs(difference) <= Z * error:
            continue
        for knob in space.knobs:
            if abs(after[group][knob] - before[group][knob]) > _SAME:
                yield _Event(group, knob, before[group][knob], after[group][knob], difference)


def _standard_error(rate: float, count: int) -> float:
    smooth = (rate * count + 1.0) / (count + 2.0)
    return math.sqrt(smooth * (1.0 - smooth) / count)


def _answered(view: StageView) -> dict[str, GroupEvidence]:
    """Return the tallies of the space's groups that have validation answers."""
    validation = view.evidence.validation
    return {
        group: validation[group]
        for group in view.domain.space.groups
        if group in validation and validation[group].count
    }


def _interval(part: int, count: int) -> tuple[float, float]:
    low, high = wilson_interval(part, count)
    return float(low), float(high)


def _pointing(tally: Tally, knob: str, domain: Domain) -> int:
    """Count the failures that point to a knob."""
    return sum(count for key, count in tally.failures.items() if domain.causes.get(key) == knob)


def _evidence_differs(one: Tally, other: Tally, domain: Domain) -> bool:
    return _differ(one, one.valid, other, other.valid) or any(
        _differ(one, _pointing(one, knob, domain), other, _pointing(other, knob, domain))
        for knob in domain.space.difficulty_knobs
    )


def _differ(one: Tally, part: int, other: Tally, other_part: int) -> bool:
    """Say whether two rates differ by the two-proportion z-test with a pooled rate."""
    pooled = (part + other_part) / (one.count + other.count)
    error = math.sqrt(pooled * (1.0 - pooled) * (1.0 / one.count + 1.0 / other.count))
    return abs(part / one.count - other_part / other.count) > Z * error


def _ratio(part: float, whole: float) -> float | None:
    """Return a part of a whole, cut to 0..1 against rounding errors; None if there is no whole."""
    return min(max(part / whole, 0.0), 1.0) if whole > 0.0 else None
