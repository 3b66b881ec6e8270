"""Engineers that draw configurations at random: domain randomisation (Tobin et al. 2017)."""

from dataclasses import dataclass

import numpy as np

from engineer.domain import Domain
from engineer.engineers.base import Task
from engineer.engineers.computed import ComputedEngineer, compose
from engineer.space import Configuration, apportion


def random_configuration(rng: np.random.Generator, domain: Domain) -> Configuration:
    """Draw from the grid of the space.

    Shares: a uniform point of the simplex (Dirichlet(1)), apportioned with `min_share`. Other
    knobs: each uniform over its grid points, then the nearest of which instances can be made.
    """
    space = domain.space
    weights = rng.dirichlet([1.0] * len(space.groups)).tolist()
    steps = apportion(weights, space.units, space.to_units(space.min_share))
    shares = {group: space.from_units(n) for group, n in zip(space.groups, steps, strict=True)}
    knobs = {
        group: {
            knob: space.from_units(int(rng.integers(space.to_units(space.maximum(knob)) + 1)))
            for knob in space.difficulty_knobs
        }
        for group in space.groups
    }
    return compose(domain, shares, knobs)


@dataclass(frozen=True)
class FixedRandomEngineer(ComputedEngineer):
    """One random configuration for the whole run, drawn from the run's seed (>= 0)."""

    seed: int
    name: str = "fixed_random"

    def configuration_for(self, task: Task) -> Configuration:
        """The same draw at every stage and attempt."""
        return random_configuration(np.random.default_rng(self.seed), task.view.domain)


@dataclass(frozen=True)
class RandomEngineer(ComputedEngineer):
    """A new random configuration each time, drawn from the task's seed (>= 0)."""

    name: str = "random"

    def configuration_for(self, task: Task) -> Configuration:
        """A draw of its own for each stage and attempt."""
        return random_configuration(np.random.default_rng(task.seed), task.view.domain)
