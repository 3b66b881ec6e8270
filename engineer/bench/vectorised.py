"""Simulate thousands of runs of engineers that are functions of features, in one JAX program.

`FeatureEngineer` turns such a function into an engineer for real runs. A policy maps `Features` to
a `Decision`; their arrays have trailing axes (G,) or (G, K) and any leading axes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from engineer.bench.learners import (
    Learners,
    trained_skill,
    valid_answers,
    validation_rates,
)
from engineer.context.view import StageView
from engineer.domain import Domain
from engineer.engineers.base import Task
from engineer.engineers.computed import ComputedEngineer, by_group, make_configuration
from engineer.space import Configuration
from engineer.synthetic.learner import FALL, columns_of, fall_of, success_rates


class Features(NamedTuple):
    """The inputs of a policy at the end of a stage; floats."""

    valid: Any  # (..., G) validation rate, 0..1
    trend: Any  # (..., G) change of the validation rate in the stage
    learnability: Any  # (..., G) mean p(1-p) in training, 0..0.25
    shares: Any  # (..., G) current shares, which sum to 1
    levels: Any  # (..., G, K) current knobs, as fractions of their ranges
    progress: Any  # (..., 1) finished stages, as a fraction of all


class Decision(NamedTuple):
    """The requested design, before rounding to feasible grid points."""

    weights: Any  # (..., G) >= 0, proportional to the shares
    levels: Any  # (..., G, K) fractions of the ranges; clipped to 0..1


FeaturePolicy = Callable[[Features], Decision]


class Grid(NamedTuple):
    """A space of configurations as arrays."""

    units: int  # grid steps in 1
    least: int  # minimum share of each group in grid steps
    tops: np.ndarray  # int (K,): grid steps in each knob's range
    nearest: np.ndarray  # float (G, tops[0] + 1, ..., tops[-1] + 1, K): nearest feasible levels

    def levels(self, steps: Any, xp: Any) -> Any:
        """Return the nearest feasible levels, float (..., G, K)."""
        groups, knobs = steps.shape[-2:]
        place = (xp.arange(groups), *(steps[..., k] for k in range(knobs)))
        return xp.asarray(self.nearest)[place]


def grid_of(domain: Domain) -> Grid:
    """Tabulate the feasible knobs of a domain for all groups and grid points."""
    space = domain.space
    tops = _tops(domain)
    nearest = np.zeros((len(space.groups), *(tops + 1), len(tops)))
    for group, *steps in np.ndindex(*nearest.shape[:-1]):
        knobs = {k: space.from_units(n) for k, n in zip(space.difficulty_knobs, steps, strict=True)}
        made = domain.nearest_or_same(space.groups[group], {space.share: 1.0, **knobs})
        nearest[group, *steps] = [made[k] / (space.maximum(k) or 1.0) for k in knobs]
    return Grid(space.units, space.to_units(space.min_share), tops, nearest)


def _tops(domain: Domain) -> np.ndarray:
    space = domain.space
    return np.array([space.to_units(space.maximum(knob)) for knob in space.difficulty_knobs])


def split_units(weights: Any, units: int, least: int, xp: Any = np) -> Any:
    """Split grid steps in proportion to weights (..., G) >= 0 by largest remainder, (..., G).

    Each group gets `least` steps, and the rest is split.
    """
    weights = xp.maximum(weights, 0.0) + 1e-9
    free = units - weights.shape[-1] * least
    parts = free * weights / xp.sum(weights, axis=-1, keepdims=True)
    whole = xp.floor(parts + 1e-6)
    missing = free - xp.sum(whole, axis=-1, keepdims=True)
    order = xp.argsort(whole - parts, axis=-1, stable=True)
    rank = xp.argsort(order, axis=-1, stable=True)
    return least + whole + (rank < missing)


def knob_steps(levels: Any, tops: np.ndarray, xp: Any = np) -> Any:
    """Round levels (..., G, K) to integer grid steps within the ranges."""
    return xp.clip(xp.floor(levels * tops + 0.5), 0, tops).astype(int)


def play_policy(policy: FeaturePolicy, learners: Learners, grid: Grid) -> Any:
    """Return the true valid rates before and after each stage, float (N, S + 1).

    Can be jitted and vmapped. Results agree with `engineer.bench.play.play` up to float32,
    including rollbacks.
    """
    import jax
    import jax.numpy as jnp

    xp, stages = jnp, learners.drift.shape[1]
    learners = jax.tree.map(jnp.asarray, learners)
    count, groups = learners.count[:, None], learners.skill.shape[1]

    def seen(skill: Any, normals: Any) -> tuple[Any, Any]:
        rates = validation_rates(learners, skill, xp)
        return rates, valid_answers(count, rates, normals[..., 0], xp) / count

    def stage(state: Any, inputs: Any) -> tuple[Any, Any]:
        skill, before, now, earlier = state
        number, drift, validated, uniformity = inputs
        p = success_rates(skill, learners.cost, now[1], xp)
        skill = trained_skill(learners, skill, now[0], now[1], drift, xp)
        rates, valid = seen(skill, validated)
        was, ends = (xp.sum(side * count, axis=-1) for side in (before, valid))
        fallen = fall_of(was, ends, learners.count * groups, xp)[:, None] > FALL
        shares = xp.where(fallen, earlier[0], now[0])
        levels = xp.where(fallen[..., None], earlier[1], now[1])
        progress = xp.full((len(skill), 1), 1.0) * number / stages
        learnability = p * (1.0 - p) * uniformity
        features = Features(valid, valid - before, learnability, shares, levels, progress)
        asked = policy(features)
        design = (
            split_units(asked.weights, grid.units, grid.least, xp) / grid.units,
            grid.levels(knob_steps(asked.levels, grid.tops, xp), xp),
        )
        return (skill, valid, design, (shares, levels)), xp.mean(rates, axis=-1)

    first = (learners.shares, learners.levels)
    rates, valid = seen(learners.skill, learners.validated[:, 0])
    inputs = (
        xp.arange(1, stages + 1),
        *(
            xp.moveaxis(one, 1, 0)
            for one in (learners.drift, learners.validated[:, 1:], learners.uniformity)
        ),
    )
    _, after = jax.lax.scan(stage, (learners.skill, valid, first, first), inputs)
    return xp.concatenate([xp.mean(rates, axis=-1)[:, None], after.T], axis=1)


def features_of(view: StageView) -> Features:
    """Return the features of a view, float arrays without leading axes.

    Groups without validation answers get the valid rate 0.5 and trend 0; groups without training
    get the p(1-p) of their valid rate.
    """
    groups, training = view.domain.space.groups, view.evidence.training
    rates, measured = view.evidence.valid_rates(), training.learnability if training else {}
    valid = np.array([rates.get(group, 0.5) for group in groups])
    before = np.array([view.valid_before.get(g, p) for g, p in zip(groups, valid, strict=True)])
    learnability = [measured.get(g, p * (1 - p)) for g, p in zip(groups, valid, strict=True)]
    shares, levels = columns_of(view.domain.space, view.current)
    ended, left = view.evidence.stage, view.stages_left or 0
    progress = np.array([ended / max(ended + left, 1)])
    return Features(valid, valid - before, np.array(learnability), shares, levels, progress)


@dataclass(frozen=True)
class FeatureEngineer(ComputedEngineer):
    """Engineer defined by a function of features; all attempts give the same answer."""

    policy: FeaturePolicy
    name: str

    def _configuration(self, task: Task) -> Configuration:
        domain, space = task.view.domain, task.view.domain.space
        asked = Decision(*map(np.asarray, self.policy(features_of(task.view))))
        units = split_units(asked.weights, space.units, space.to_units(space.min_share))
        steps = knob_steps(asked.levels, _tops(domain)).tolist()
        knobs = {
            group: {
                k: space.from_units(n) for k, n in zip(space.difficulty_knobs, row, strict=True)
            }
            for group, row in zip(space.groups, steps, strict=True)
        }
        return make_configuration(domain, by_group(space, units.astype(int).tolist()), knobs)
