"""Estimates how much could be learned from a configuration's instances, without training.

GRPO learns from groups of rollouts whose rewards differ. An instance that is solved with
probability p contributes p(1-p) to that: most at one half, nothing at 0 and 1. What p would be
under other knobs is estimated here from the validation's slices.
"""

import bisect
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engineer.context.view import StageView
from engineer.domain import Domain, Knobs, Slices
from engineer.evidence import GroupEvidence
from engineer.space import Configuration

DROP = 0.5
"""The valid rate that a knob costs from its least to its largest value, unless slices say more."""
RIDGE = 1.0
"""Weight of the assumed slope: that of as many answers as have this variance over the knob's range,
which is 12 if they are spread evenly."""
PSEUDO_COUNT = 8.0
"""The number of answers that the straight line counts for in the rate of a level."""


class _Level(NamedTuple):
    """The answers at one value of a knob; there is at least one."""

    value: float
    answers: int
    valid: int


@dataclass(frozen=True)
class _Curve:
    """How far the valid rate deviates from the group's at some values of a knob."""

    values: tuple[float, ...]  # ascending
    deviations: tuple[float, ...]
    mixture: bool

    def parts(self, value: float) -> list[tuple[float, float]]:
        """Return the shares and deviations of the instances at a value, as at the ends beyond."""
        values, deviations = self.values, self.deviations
        if value <= values[0]:
            return [(1.0, deviations[0])]
        if value >= values[-1]:
            return [(1.0, deviations[-1])]
        right = bisect.bisect_right(values, value)
        low, high = deviations[right - 1 : right + 1]
        t = (value - values[right - 1]) / (values[right] - values[right - 1])
        return [(1.0 - t, low), (t, high)] if self.mixture else [(1.0, low + t * (high - low))]


@dataclass(frozen=True)
class LearnabilityModel:
    """Valid rates by group and knobs, as `learnability_model` estimates them."""

    domain: Domain
    rates: Mapping[str, float]  # by group, over its whole validation
    curves: Mapping[str, Mapping[str, _Curve]]  # by group and knob

    def rate(self, group: str, knobs: Knobs) -> float:
        """Return the valid rate p of a group's instances under these knobs."""
        return math.fsum(share * rate for share, rate in self._parts(group, knobs))

    def learnability(self, group: str, knobs: Knobs) -> float:
        """Return the mean of p(1-p) over a group's instances under these knobs, 0 to 0.25."""
        return math.fsum(share * rate * (1.0 - rate) for share, rate in self._parts(group, knobs))

    def expected(self, configuration: Configuration) -> float:
        """Return the mean of p(1-p) over a configuration's instances, 0 to 0.25."""
        values = self.domain.space.knobs_of(configuration)
        share = self.domain.space.share
        return math.fsum(
            knobs[share] * self.learnability(group, knobs) for group, knobs in values.items()
        )

    def best(self) -> float:
        """Return the largest `expected` of all configurations on the grid and within the bounds.

        Each group is at its best knobs; each has the least share, and the best group has the rest.
        Whether such instances can be made does not matter.
        """
        space, names = self.domain.space, self.domain.space.difficulty_knobs
        grids = [
            [space.from_units(n) for n in range(space.to_units(space.maximum(knob)) + 1)]
            for knob in names
        ]
        points = [dict(zip(names, point, strict=True)) for point in itertools.product(*grids)]
        best = [max(self.learnability(group, knobs) for knobs in points) for group in space.groups]
        spare = 1.0 - space.min_share * len(best)
        return space.min_share * math.fsum(best) + spare * max(best)

    def _parts(self, group: str, knobs: Knobs) -> list[tuple[float, float]]:
        """Return a group's instances as shares and valid rates; the knobs' deviations add up."""
        each = [curve.parts(knobs[knob]) for knob, curve in self.curves[group].items()]
        parts = []
        for combination in itertools.product(*each):
            share = math.prod(share for share, _ in combination)
            rate = self.rates[group] + math.fsum(deviation for _, deviation in combination)
            parts.append((share, min(max(rate, 0.0), 1.0)))
        return parts


def learnability_model(view: StageView) -> LearnabilityModel:
    """Estimate how a group's valid rate depends on its knobs, from the slices of its validation.

    Where `Domain.slices` says that a knob shows, a straight line through the levels' valid rates,
    shrunk to that of all groups, and levels that are believed as far as they have answers. Other
    knobs lie on the line of all groups through the current value. `docs/replay.md` has the
    formulas, and what they assume.
    """
    domain, space = view.domain, view.domain.space
    nothing = GroupEvidence(count=0, valid=0)
    tallies = {group: view.evidence.validation.get(group, nothing) for group in space.groups}
    rates = _rates(tallies)
    current = space.knobs_of(view.current)
    curves: dict[str, dict[str, _Curve]] = {group: {} for group in space.groups}
    for knob in space.difficulty_knobs:
        slices = domain.slices.get(knob)
        span = _span(slices, space.maximum(knob))
        answers = {group: _answers(tally, slices) for group, tally in tallies.items()}
        ridge = RIDGE * span**2
        pooled = _slope(list(answers.values()), -DROP / span, ridge)
        for group, levels in answers.items():
            curves[group][knob] = (
                _curve(slices, levels, rates[group], _slope([levels], pooled, ridge))
                if slices and levels
                else _line(span, pooled, current[group][knob])
            )
    return LearnabilityModel(domain, rates, curves)


def _span(slices: Slices | None, maximum: float) -> float:
    """Return how far a knob can move; for a mixture, from none to all of the other level."""
    if slices is not None and slices.mixture:
        return max(slices.levels.values()) - min(slices.levels.values()) or 1.0
    return maximum or 1.0


def _rates(tallies: Mapping[str, GroupEvidence]) -> dict[str, float]:
    valid = sum(tally.valid for tally in tallies.values())
    every = (valid + 1) / (sum(tally.count for tally in tallies.values()) + 2)
    return {
        group: (tally.valid + 1) / (tally.count + 2) if tally.count else every
        for group, tally in tallies.items()
    }


def _answers(tally: GroupEvidence, slices: Slices | None) -> list[_Level]:
    """Return what a group's slices say of a knob, without levels that have no answers."""
    parts = tally.slices.get(slices.factor, {}) if slices else {}
    return [
        _Level(value, parts[level].count, parts[level].valid)
        for level, value in (slices.levels.items() if slices else ())
        if level in parts and parts[level].count
    ]


def _means(levels: Sequence[_Level]) -> tuple[float, float]:
    """Return the mean value of the knob and the valid rate over the answers of some levels."""
    count = sum(level.answers for level in levels)
    value = math.fsum(level.answers * level.value for level in levels) / count
    return value, sum(level.valid for level in levels) / count


def _slope(groups: Sequence[Sequence[_Level]], prior: float, ridge: float) -> float:
    """Fit a slope to the levels' valid rates about each group's mean, shrunk to a prior."""
    above, below = [ridge * prior], [ridge]
    for levels in filter(None, groups):
        middle, rate = _means(levels)
        for value, count, valid in levels:
            above.append((value - middle) * (valid - count * rate))
            below.append(count * (value - middle) ** 2)
    return math.fsum(above) / math.fsum(below)


def _curve(slices: Slices, levels: Sequence[_Level], rate: float, slope: float) -> _Curve:
    """Shrink each level's rate to the line through the group's rate at its answers' mean."""
    middle, _ = _means(levels)
    known = {level.value: level for level in levels}
    values = sorted(slices.levels.values())
    deviations = []
    for value in values:
        line = rate + slope * (value - middle)
        level = known.get(value, _Level(value, 0, 0))
        found = (level.valid + PSEUDO_COUNT * line) / (level.answers + PSEUDO_COUNT)
        deviations.append(found - rate)
    return _Curve(tuple(values), tuple(deviations), slices.mixture)


def _line(span: float, slope: float, middle: float) -> _Curve:
    """Return a straight line over a knob's range, through the group's rate at the middle."""
    return _Curve((0.0, span), (-slope * middle, slope * (span - middle)), mixture=False)
