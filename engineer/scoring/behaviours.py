"""Scores five behaviours of an engineer from what it read and what it wrote.

The names of the behaviours come from the paper, which does not say how it measured them. The
definitions are this package's own; `docs/replay.md` says what each of them can't see. Every score
reads a view and a proposed configuration, trains nothing, and lies in 0..1, or is None where the
evidence says nothing about it.

Changes are counted in moves (`grid_moves`): grid steps for knobs and half grid steps for shares, so
that one step of data that goes from one group to another is one move in all.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple

from pydantic import Field

from engineer.context.view import StageView
from engineer.domain import Domain
from engineer.evidence import GroupEvidence, StageHistory, Tally
from engineer.scoring.learnability import learnability_model
from engineer.space import Configuration, FrozenModel, KnobValues
from jaxlake import wilson_interval

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
    """Return each knob's signed move from the current configuration to a proposed one."""
    space = view.domain.space
    before = space.knobs_of(view.current)
    after = space.knobs_of(configuration)
    made: KnobValues = {}
    for group in space.groups:
        made[group] = {}
        for knob in space.knobs:
            change = after[group][knob] - before[group][knob]
            unit = space.units / 2 if knob == space.share else space.units
            made[group][knob] = round(change * unit, 6) + 0.0  # no negative zero
    return made


def salience(view: StageView, configuration: Configuration) -> float | None:
    """Score whether the groups that fail most are changed most.

    A group's salience s is the lower end of the 95% interval (Wilson) of its failure rate: many
    failures, and enough answers to be sure of them. With c the groups' shares of all moves and
    a = sum(c * s), the score is 1/2 at a = mean(s), as if the groups were changed alike, 1 at
    a = max(s), 0 at a = min(s), and linear in between. Groups without answers are left out.

    Returns:
        None where nothing changes, or the most and the least salient group don't differ by more
        than noise.
    """
    tallies = _answered(view)
    sure = {group: _interval(one.count - one.valid, one.count)[0] for group, one in tallies.items()}
    made = grid_moves(view, configuration)
    size = {group: math.fsum(map(abs, made[group].values())) for group in sure}
    total = math.fsum(size.values())
    if total == 0.0:
        return None
    least, most = min(sure, key=sure.__getitem__), max(sure, key=sure.__getitem__)
    if not _differ(tallies[least].valid, tallies[least].count, *_valid(tallies[most])):
        return None
    low, high = sure[least], sure[most]
    mean = math.fsum(sure.values()) / len(sure)
    found = math.fsum(size[group] * sure[group] for group in sure) / total
    if found >= mean:
        return _ratio(1.0 + (found - mean) / (high - mean), 2.0)
    return _ratio((found - low) / (mean - low), 2.0)


def granularity(view: StageView, configuration: Configuration) -> float | None:
    """Score whether groups whose evidence differs are changed differently.

    Evidence of two groups differs if their valid rates do, or their rates of failures that point to
    one knob (`Domain.causes`), by more than noise. Over all such pairs (g, h) and all knobs k, with
    the moves m, the score is sum |m(g, k) - m(h, k)| / sum (|m(g, k)| + |m(h, k)|): 0 if all knobs
    move alike in both, 1 if none moves the same way in both.

    Returns:
        None where no two groups differ, or none of those that do is changed.
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
    """Score whether knobs move in the direction that the failures point to.

    The score is sum(w * r * |m|) / sum(w * |m|) over the moves m for which there is evidence:

    - In a failing group (`FAILING`), f(k) is the share of its answers that failed in a way that
      points to knob k (`Domain.causes`), and w = max f. A knob that goes down is as right as its
      part in the failures, r = f(k) / max f; a knob that goes up is wrong, r = 0. Shares are left
      out, since failures don't say whether a hard group should get more data or less.
    - In a mastered group (`MASTERED`), w is its valid rate. Harder and less are right: r = 1 for
      knobs that go up and a share that goes down, else 0.

    Returns:
        None where no such knob moves.
    """
    space = view.domain.space
    made = grid_moves(view, configuration)
    right, size = [], []
    for group, tally in _answered(view).items():
        low, high = _interval(*_valid(tally))
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

    An event is a knob of a group that changed from a to b with a stage over which the group's valid
    rate changed by d, more than its noise. The latest event of each knob counts. With the proposed
    value y, b is kept to the degree u = (y - a) / (b - a), cut to 0..1. After a rise the event
    scores u, after a fall 1 - u, and the score is the mean, weighted by |d|. So a harmful change
    that was undone before scores 1 as long as it stays undone, and 0 if it is tried again.

    A stage's configuration is compared with that of the latest stage before it that was not rolled
    back. The stage that just ended trained on the current configuration. If it or the stage before
    was rolled back (a notice, the history) it is left out, because the view then doesn't hold what
    it trained on or began from. Standard errors are those of two independent rates, each smoothed
    to (valid + 1) / (count + 2), with the group's count in the current validation, since earlier
    validations had the same instances.

    Returns:
        None without such an event.
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

    Expected learnability, the mean of p(1-p) over the proposal's instances with p estimated from
    the evidence, as a share of the largest within the bounds (`engineer.scoring.learnability`).

    Returns:
        None where nothing can be learned within the bounds.
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
    """Yield all events, oldest first."""
    reference: Configuration | None = None
    for past in view.history:
        if reference is not None:
            yield from _changed(
                view, reference, past.configuration, past.valid_before, past.valid_after
            )
        # A rollback leaves the configuration before in force, if there is one.
        if reference is None or past.decision != "rolled_back":
            reference = past.configuration
    last = _last_kept(view)
    if last is not None:
        rates = {group: one.valid / one.count for group, one in _answered(view).items()}
        yield from _changed(view, last.configuration, view.current, last.valid_after, rates)


def _last_kept(view: StageView) -> StageHistory | None:
    """Return the stage before the one that just ended, unless either was rolled back."""
    if not view.history or view.notice or view.history[-1].decision == "rolled_back":
        return None
    return view.history[-1]


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
        difference = rates_after[group] - rates_before[group]
        error = math.hypot(
            _standard_error(rates_before[group], tally.count),
            _standard_error(rates_after[group], tally.count),
        )
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


def _valid(tally: Tally) -> tuple[int, int]:
    return tally.valid, tally.count


def _interval(part: int, count: int) -> tuple[float, float]:
    low, high = wilson_interval(part, count)
    return float(low), float(high)


def _pointing(tally: Tally, knob: str, domain: Domain) -> int:
    """Count the failures that point to a knob."""
    return sum(count for key, count in tally.failures.items() if domain.causes.get(key) == knob)


def _evidence_differs(one: Tally, other: Tally, domain: Domain) -> bool:
    parts = [(one.valid, other.valid)] + [
        (_pointing(one, knob, domain), _pointing(other, knob, domain))
        for knob in domain.space.difficulty_knobs
    ]
    return any(_differ(here, one.count, there, other.count) for here, there in parts)


def _differ(part: int, count: int, other_part: int, other_count: int) -> bool:
    """Say whether two rates differ by the two-proportion z-test with a pooled rate."""
    pooled = (part + other_part) / (count + other_count)
    error = math.sqrt(pooled * (1.0 - pooled) * (1.0 / count + 1.0 / other_count))
    return abs(part / count - other_part / other_count) > Z * error


def _ratio(part: float, whole: float) -> float | None:
    """Return a part of a whole, cut to 0..1 against rounding errors; None if there is no whole."""
    return min(max(part / whole, 0.0), 1.0) if whole > 0.0 else None
