"""All configurations that an atlas can score, and which of them may be the best."""

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from engineer.domain import Domain, InfeasibleError, Knobs
from engineer.space import KnobSpace

if TYPE_CHECKING:
    from engineer.scoring.atlas import DesignAtlas

KEPT = 0.99
"""Confidence that the best configuration is not left out."""


@dataclass(frozen=True)
class Choice:
    """What a configuration may be: the points of each group, and their shares."""

    groups: tuple[str, ...]  # those with points
    points: tuple[list[dict[str, float]], ...]  # by group: knobs of which instances can be made
    weights: tuple[np.ndarray, ...]  # by group: float (points, cells)
    cells: tuple[np.ndarray, ...]  # by group: bool (cells,), whether a cell is one of it
    least: float  # the share of every group
    spare: float  # the share that one of them has besides
    may_lead: tuple[bool, ...]  # whether a group may be that one

    @classmethod
    def of(cls, atlas: "DesignAtlas", domain: Domain) -> "Choice":
        """Look at all knobs on the grid; raises as `DesignAtlas.best`."""
        space = domain.space
        least, largest = space.limits(space.share)
        measured: dict[str, list[tuple[dict[str, float], np.ndarray]]] = {}
        for group in space.groups:
            found = [
                (knobs, weights)
                for knobs in _knobs_on_grid(space)
                if _can_be_made(domain, group, knobs)
                and (weights := atlas.weights(group, knobs)) is not None
            ]
            if found:
                measured[group] = found
            elif least > 0.0:
                raise ValueError(
                    f"{space.group_label} {group}: no instances were measured, but min_share "
                    f"{least:g} asks for some"
                )
        if not measured:
            raise ValueError(f"no instances of any {space.group_label} were measured")
        return cls(
            tuple(measured),
            tuple([knobs for knobs, _ in found] for found in measured.values()),
            tuple(np.array([weights for _, weights in found]) for found in measured.values()),
            tuple(np.array([cell.group == group for cell in atlas.cells]) for group in measured),
            least,
            largest - least,
            (True,) * len(measured),
        )

    def largest(self, cells: np.ndarray) -> np.ndarray:
        """Return the largest sum over any configuration, (...), for values (cells, ...)."""
        tops = np.array([(own @ cells).max(axis=0) for own in self.weights])
        most: np.ndarray = self.least * tops.sum(axis=0)
        return most + self.spare * tops[list(self.may_lead)].max(axis=0)

    def largest_error(self, asked: np.ndarray, errors: np.ndarray) -> float:
        """Return the largest standard error of a configuration less the one asked for.

        Both arguments are float (cells,): how much each cell counts, and the cells' errors. Groups
        share no cell, so that their variances add up.
        """
        squares = errors**2
        elsewhere = np.ones(len(asked), bool)
        variances = []  # by group: with the least share, and with the largest
        for points, own in zip(self.weights, self.cells, strict=True):
            elsewhere &= ~own
            variances.append(
                [
                    float(((share * points - asked * own) ** 2 @ squares).max())
                    for share in (self.least, self.least + self.spare)
                ]
            )
        least = sum(one for one, _ in variances) + float((asked * elsewhere) ** 2 @ squares)
        gains = [most - one for one, most in variances]
        return math.sqrt(least + max(itertools.compress(gains, self.may_lead)))

    def leading(self, cells: np.ndarray) -> tuple[str, dict[str, dict[str, float]]]:
        """Return the group that gets what is left, and the best knobs of each group."""
        # Rounded, so that what is equal but for the order of a sum is a tie.
        values = [np.round(own @ cells, 12) for own in self.weights]
        knobs = {
            group: points[int(np.argmax(own))]
            for group, points, own in zip(self.groups, self.points, values, strict=True)
        }
        return self.groups[int(np.argmax([own.max() for own in values]))], knobs

    def kept(self, cells: np.ndarray, noise: np.ndarray) -> "Choice":
        """Leave out the points and the leading groups that are too bad to be the best.

        `noise` is float (cells, draws). No value is off by more than the reach with confidence
        `KEPT`, so what lies below the largest by more than twice that is not the largest.
        """
        off = np.max([np.abs(own @ noise).max(axis=0) for own in self.weights], axis=0)
        below = 2.0 * float(np.quantile(off, KEPT))
        values = [own @ cells for own in self.weights]
        most = max(own.max() for own in values)
        return replace(
            self,
            weights=tuple(
                weights[own >= own.max() - below]
                for weights, own in zip(self.weights, values, strict=True)
            ),
            may_lead=tuple(bool(own.max() >= most - below) for own in values),
        )


def _knobs_on_grid(space: KnobSpace) -> list[dict[str, float]]:
    """Return every combination of the difficulty knobs on the grid and within the bounds."""
    axes = [
        [space.from_units(n) for n in range(space.to_units(space.maximum(knob)) + 1)]
        for knob in space.difficulty_knobs
    ]
    points = itertools.product(*axes)
    return [dict(zip(space.difficulty_knobs, point, strict=True)) for point in points]


def _can_be_made(domain: Domain, group: str, knobs: Knobs) -> bool:
    """Whether instances of these knobs can be made at the group's least and largest share."""
    for share in filter(None, domain.space.limits(domain.space.share)):
        try:
            nearest = domain.nearest(group, {domain.space.share: share, **knobs})
            if any(nearest[knob] != value for knob, value in knobs.items()):
                return False
        except InfeasibleError:
            return False
    return True
