"""Engineers that ignore the evidence: what every other engineer has to beat.

Groups are taken to be ordered from the easiest to the hardest.
"""

from dataclasses import dataclass

import numpy as np

from engineer.domain import Domain
from engineer.engineers.base import Task
from engineer.engineers.computed import (
    ComputedEngineer,
    by_group,
    compose_configuration,
    make_configuration,
    split_data,
)
from engineer.space import Configuration, apportion


@dataclass(frozen=True)
class FixedEngineer(ComputedEngineer):
    """Answers one configuration at every stage, such as the run's initial one."""

    configuration: Configuration
    name: str = "fixed"

    def _configuration(self, task: Task) -> Configuration:
        return self.configuration


def random_configuration(rng: np.random.Generator, domain: Domain) -> Configuration:
    """Draw a configuration from the grid: domain randomisation (Tobin et al. 2017).

    Shares are a uniform point of the simplex (Dirichlet(1)), apportioned with `min_share`. Every
    other knob is uniform over its grid points. Then each group goes to the nearest knobs of which
    instances can be made.
    """
    space = domain.space
    weights = rng.dirichlet([1.0] * len(space.groups)).tolist()
    shares = by_group(space, apportion(weights, space.units, space.to_units(space.min_share)))
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
    """Draws a configuration, see `random_configuration`."""

    seed: int | None = None  # of every draw, >= 0; None: each task has its own
    name: str = "random"

    def _configuration(self, task: Task) -> Configuration:
        rng = np.random.default_rng(task.seed if self.seed is None else self.seed)
        return random_configuration(rng, task.view.domain)


@dataclass(frozen=True)
class EasyToHardEngineer(ComputedEngineer):
    """Follows a hand-made curriculum (Bengio et al. 2009) that is linear in the stage.

    The k-th of K stages is at progress t = (k-1)/(K-1); a single stage is at the end. Every
    difficulty knob is at t times its maximum, and the data is at place t(G-1) among the G groups: a
    place between two groups shares it between them in proportion, with `min_share` kept.

    Later stages stay at the end. With a single stage every answer is the end (`hard_only`).
    """

    stages: int  # K, the number of trained stages, at least 1; the first is number 1
    name: str = "easy_to_hard"

    def _configuration(self, task: Task) -> Configuration:
        past = task.view.evidence.stage
        progress = min(past / (self.stages - 1), 1.0) if self.stages > 1 else 1.0
        space = task.view.domain.space
        place = progress * (len(space.groups) - 1)
        weights = {group: max(0.0, 1.0 - abs(i - place)) for i, group in enumerate(space.groups)}
        hard = {
            knob: space.from_units(space.to_units(progress * space.maximum(knob)))
            for knob in space.difficulty_knobs
        }
        knobs = dict.fromkeys(space.groups, hard)
        return compose_configuration(task.view, split_data(weights, task.view), knobs)
