"""Baseline engineers that ignore the evidence.

Groups must be ordered from easiest to hardest.
"""

from dataclasses import dataclass

import numpy as np

from engineer.domain import Domain
from engineer.engineers.base import Task
from engineer.engineers.computed import (
    ComputedEngineer,
    make_configuration,
    ratios_by_group,
    split_shares,
)
from engineer.space import Configuration, apportion


@dataclass(frozen=True)
class FixedEngineer(ComputedEngineer):
    """Returns the same configuration at every stage, such as the initial one."""

    configuration: Configuration
    name: str = "fixed"

    def _configuration(self, task: Task) -> Configuration:
        return self.configuration


def random_configuration(rng: np.random.Generator, domain: Domain) -> Configuration:
    """Draw a configuration from the grid: domain randomisation (Tobin et al. 2017).

    Shares are uniform on the simplex (Dirichlet(1)), apportioned with `min_share`. The other knobs
    are uniform over their grid points, and then move to the nearest feasible points.
    """
    space = domain.space
    weights = rng.dirichlet([1.0] * len(space.groups)).tolist()
    shares = ratios_by_group(
        space, apportion(weights, space.units, space.to_units(space.min_share))
    )
    knobs = {
        group: {
            knob: space.from_units(int(rng.integers(space.to_units(space.maximum(knob)) + 1)))
            for knob in space.difficulty_knobs
        }
        for group in space.groups
    }
    return make_configuration(domain, shares, knobs)


@dataclass(frozen=True)
class RandomEngineer(ComputedEngineer):
    """Draws a random configuration; see `random_configuration`."""

    seed: int | None = None  # >= 0: one draw for all tasks; None: a draw with each task's seed
    name: str = "random"

    def _configuration(self, task: Task) -> Configuration:
        rng = np.random.default_rng(task.seed if self.seed is None else self.seed)
        return random_configuration(rng, task.view.domain)


@dataclass(frozen=True)
class EasyToHardEngineer(ComputedEngineer):
    """Follows a hand-made curriculum (Bengio et al. 2009) that is linear in the stage.

    Stage k of K has progress t = (k-1)/(K-1), at most 1. Every difficulty knob is t times its
    maximum. The data is centred at position t(G-1) among the G groups and interpolated linearly
    between neighbours, with at least `min_share` per group. If K = 1, t is 1 (`hard_only`).
    """

    stages: int  # K, the number of trained stages, at least 1; the first is number 1
    name: str = "easy_to_hard"

    def _configuration(self, task: Task) -> Configuration:
        finished = task.view.evidence.stage
        progress = min(finished / (self.stages - 1), 1.0) if self.stages > 1 else 1.0
        domain, space = task.view.domain, task.view.domain.space
        centre = progress * (len(space.groups) - 1)
        weights = {group: max(0.0, 1.0 - abs(i - centre)) for i, group in enumerate(space.groups)}
        knobs = {
            knob: space.from_units(space.to_units(progress * space.maximum(knob)))
            for knob in space.difficulty_knobs
        }
        shares = split_shares(weights, task.view)
        return make_configuration(domain, shares, dict.fromkeys(space.groups, knobs))
