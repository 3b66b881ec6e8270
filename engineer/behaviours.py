"""Automatic scores for five behaviours of an engineer, from what it read and what it wrote.

The behaviours' names come from the paper; how the paper told them is not known. The definitions are
this package's own, as `docs/replay.md` says with what each of them can't see. Every score reads a
view and a proposed configuration, trains nothing, and lies in 0..1, or is None where the evidence
says nothing about it.

Changes are counted in moves (`moves`): steps of the grid, of shares half the steps, so that one
step of data that goes from one group to another is one move in all.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple

from pydantic import Field

from engineer.context.view import View
from engineer.domain import Domain
from engineer.evidence import GroupEvidence, StageHistory, Tally
from engineer.learnability import learnability_model
from engineer.rule import knobs_or_zero
from engineer.space import Configuration, Frozen, Values
from jaxlake import wilson_interval

Z = 1.96
"""Noise: a difference counts beyond so many standard errors."""
FAILING = 0.5
"""A group is failing if its valid rate is below this at the upper end of its 95% interval."""
MASTERED = 0.75
"""A group is mastered if its valid rate is above this at the lower end of its 95% interval."""

Score = Annotated[float, Field(ge=0.0, le=1.0)]

_SAME = 1e-9


class Behaviours(Frozen):
    """The five scores of one proposal; None where the evidence says nothing about one."""

    salience: Score | None = Field(description="changes fall where failures are")
    granularity: Score | None = Field(description="groups that differ are treated differently")
    causality: Score | None = Field(description="knobs move as the kinds of failure say")
    self_correction: Score | None = Field(description="harm is taken back, gains are kept")
    task_modelling: Score | None = Field(description="data lies where answers vary")


def behaviours(view: View, configuration: Configuration) -> Behaviours:
    """All five scores of a proposal."""
    return Behaviours(
        salience=salience(view, configuration),
        granularity=granularity(view, configuration),
        causality=causality(view, configuration),
        self_correction=self_correction(view, configuration),
        task_modelling=task_modelling(view, configuration),
    )


def moves(view: View, configuration: Configuration) -> Values:
    """Signed moves of each group and knob from the current configuration to a proposed one."""
    space = view.domain.space
    before = knobs_or_zero(view.current, space)
    after = knobs_or_zero(configuration, space)
    made: Values = {}
    for group in space.groups:
        made[group] = {}
        for knob in space.knobs:
            change = after[group][knob] - before[group][knob]
            unit = space.units / 2 if knob == space.share else space.units
            made[group][knob] = round(change * unit, 6) + 0.0  # no negative zero
    return made


def salience(view: View, configuration: Configuration) -> float | None:
    """Whether the changes fall on the groups that fail most.

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
    made = moves(view, configuration)
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


def granularity(view: View, configuration: Configuration) -> float | None:
    """Whether groups whose evidence differs are changed differently.

    Evidence of two groups differs if their valid rates do, or their rates of failures that point to
    one knob (`Domain.causes`), by more than noise. Over all such pairs (g, h) and all knobs k, with
    the moves m, the score is sum |m(g, k) - m(h, k)| / sum (|m(g, k)| + |m(h, k)|): 0 if all knobs
    move alike in both, 1 if none moves the same way in both.

    Returns:
        None where no two groups differ, or none of those that do is changed.
    """
    tallies = _answered(view)
    made = moves(view, configuration)
    apart, size = [], []
    for one, other in itertools.combinations(tallies, 2):
        if not _evidence_differs(tallies[one], tallies[other], view.domain):
            continue
        for knob in view.domain.space.knobs:
            here, there = made[one][knob], made[other][knob]
            apart.append(abs(here - there))
            size.append(abs(here) + abs(there))
    return _ratio(math.fsum(apart), math.fsum(size))


def causality(view: View, configuration: Configuration) -> float | None:
    """Whether knobs move in the direction that the failures point to.

    The score is sum(w * r * |m|) / sum(w * |m|) over the moves m that evidence speaks about:

    - In a failing group (`FAILING`), f(k) is the share of its answers that failed in a way that
      points to knob k (`Domain.causes`), and w = max f. A knob that goes down is as right as its
      part in the failures, r = f(k) / max f; one that goes up isn't, r = 0. Shares are left out:
      whether a hard group should get more data or less, its failures don't say.
    - In a mastered group (`MASTERED`), w is its valid rate. Harder and less are right: r = 1 for
      knobs that go up and a share that goes down, else 0.

    Returns:
        None where no knob moves that evidence speaks about.
    """
    space = view.domain.space
    made = moves(view, configuration)
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


def self_correction(view: View, configuration: Configuration) -> float | None:
    """Whether changes that were followed by a fall are taken back, and by a rise are kept.

    An event is a knob of a group that changed from a to b with a stage after which the group's
    valid rate had changed by d, more than its noise; of each knob the latest event counts. With the
    proposed value y, b is kept to the degree u = (y - a) / (b - a), cut to 0..1. After a rise the
    event scores u, after a fall 1 - u, and the score is the mean, weighted by |d|. So what was
    taken back before and stays so counts as well, and what harmed and is tried again counts as
    nothing.

    A stage's configuration is compared with that of the latest stage before it that was not rolled
    back. The stage that just ended trained on the current configuration; where it or the one before
    was rolled back (a notice, the history) it is left out, since the view then doesn't hold what it
    trained on or began from. Standard errors are those of two independent rates, each smoothed to
    (valid + 1) / (count + 2), with the group's count of the current validation: the earlier ones
    had the same instances.

    Returns:
        None without such an event.
    """
    after = knobs_or_zero(configuration, view.domain.space)
    events = {(event.group, event.knob): event for event in _events(view)}  # the latest wins
    credit, size = [], []
    for event in events.values():
        kept = (after[event.group][event.knob] - event.before) / (event.after - event.before)
        kept = min(max(kept, 0.0), 1.0)
        size.append(abs(event.difference))
        credit.append(abs(event.difference) * (kept if event.difference > 0.0 else 1.0 - kept))
    return _ratio(math.fsum(credit), math.fsum(size))


def task_modelling(view: View, configuration: Configuration) -> float | None:
    """Whether the data lies on instances that are solved sometimes.

    Expected learnability, the mean of p(1-p) over the proposal's instances with p estimated from
    the evidence, as a share of the largest within the bounds (`engineer.learnability`).

    Returns:
        None where nothing can be learned within the bounds.
    """
    model = learnability_model(view)
    return _ratio(model.expected(configuration), model.best())


class _Event(NamedTuple):
    """A knob that changed with a stage, and by how much the group's valid rate did."""

    group: str
    knob: str
    before: float
    after: float
    difference: float


def _events(view: View) -> Iterator[_Event]:
    """All events, oldest first."""
    reference: Configuration | None = None
    for past in view.history:
        if reference is not None:
            yield from _changed(
                view, reference, past.configuration, past.valid_before, past.valid_after
            )
        # What is taken back leaves the one before in force, if there is one.
        if reference is None or past.decision != "rolled_back":
            reference = past.configuration
    last = _last_kept(view)
    if last is not None:
        rates = {group: one.valid / one.count for group, one in _answered(view).items()}
        yield from _changed(view, last.configuration, view.current, last.valid_after, rates)


def _last_kept(view: View) -> StageHistory | None:
    """The stage before the one that just ended, unless either was rolled back."""
    if not view.history or view.notice or view.history[-1].decision == "rolled_back":
        return None
    return view.history[-1]


def _changed(
    view: View,
    old: Configuration,
    new: Configuration,
    rates_before: Mapping[str, float],
    rates_after: Mapping[str, float],
) -> Iterator[_Event]:
    space = view.domain.space
    before, after = knobs_or_zero(old, space), knobs_or_zero(new, space)
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


def _answered(view: View) -> dict[str, GroupEvidence]:
    """The space's groups that have validation answers."""
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
    """Failures that point to a knob."""
    return sum(count for key, count in tally.failures.items() if domain.causes.get(key) == knob)


def _evidence_differs(one: Tally, other: Tally, domain: Domain) -> bool:
    parts = [(one.valid, other.valid)] + [
        (_pointing(one, knob, domain), _pointing(other, knob, domain))
        for knob in domain.space.difficulty_knobs
    ]
    return any(_differ(here, one.count, there, other.count) for here, there in parts)


def _differ(part: int, count: int, other_part: int, other_count: int) -> bool:
    """The two-proportion z-test with a pooled rate."""
    pooled = (part + other_part) / (count + other_count)
    error = math.sqrt(pooled * (1.0 - pooled) * (1.0 / count + 1.0 / other_count))
    return abs(part / count - other_part / other_count) > Z * error


def _ratio(part: float, whole: float) -> float | None:
    """Part of a whole in 0..1, up to rounding; None of nothing."""
    return min(max(part / whole, 0.0), 1.0) if whole > 0.0 else None
