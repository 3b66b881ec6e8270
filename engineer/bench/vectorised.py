"""Simulate thousands of runs of engineers that are functions of features, in one JAX program.

Such a function, a policy, maps `Features` to a `Decision`. The arrays of both have trailing axes
(G,) or (G, K) and any leading axes. `FeatureEngineer` turns a policy into an engineer for real
runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from engineer.bench.learners import Learners, count_valid_answers, train_skill, validation_rates
from engineer.context.view import StageView
from engineer.domain import Domain
from engineer.engineers.base import Task
from engineer.engineers.computed import ComputedEngineer, make_configuration, ratios_by_group
from engineer.space import Configuration
from engineer.synthetic.learner import MAX_FALL, compute_fall, configuration_arrays, success_rates


class Features(NamedTuple):
    """The inputs of a policy at the end of a stage; floats."""

    valid: Any  # (..., G) validation rate, 0..1
    trend: Any  # (..., G) change of the validation rate in the stage
    learnability: Any  # (..., G) mean p(1-p) in training, 0..0.25
    shares: Any  # (..., G) current shares, which sum to 1
    levels: Any  # (..., G, K) current knobs, as fractions of their ranges
    progress: Any  # (..., 1) finished stages, as a fraction of all stages


class Decision(NamedTuple):
    """The requested design, before rounding to feasible grid points."""

    weights: Any  # (..., G) >= 0, proportional to the shares
    levels: Any  # (..., G, K) knobs as fractions of their ranges, not yet clipped to 0..1


FeaturePolicy = Callable[[Features], Decision]


class Grid(NamedTuple):
    """A space of configurations as arrays."""

    units: int  # number of grid steps in 1
    min_units: int  # minimum share of each group in grid steps
    ranges: np.ndarray  # int (K,): range of each knob in grid steps
    nearest: np.ndarray  # float (G, ranges[0] + 1, ..., ranges[-1] + 1, K): nearest feasible levels

    def levels(self, steps: Any, xp: Any) -> Any:
        """Return the nearest feasible levels, float (..., G, K)."""
        num_groups, num_knobs = steps.shape[-2:]
        indices = (xp.arange(num_groups), *(steps[..., k] for k in range(num_knobs)))
        return xp.asarray(self.nearest)[indices]


def tabulate_grid(domain: Domain) -> Grid:
    """Tabulate the feasible knobs of a domain for all groups and grid points."""
    space = domain.space
    ranges = _knob_ranges(domain)
    nearest = np.zeros((len(space.groups), *(ranges + 1), len(ranges)))
    for group, *steps in np.ndindex(*nearest.shape[:-1]):
        knobs = {k: space.from_units(n) for k, n in zip(space.difficulty_knobs, steps, strict=True)}
        feasible = domain.nearest_or_same(space.groups[group], {space.share: 1.0, **knobs})
        nearest[group, *steps] = [feasible[k] / (space.maximum(k) or 1.0) for k in knobs]
    return Grid(space.units, space.to_units(space.min_share), ranges, nearest)


def _knob_ranges(domain: Domain) -> np.ndarray:
    space = domain.space
    return np.array([space.to_units(space.maximum(knob)) for knob in space.difficulty_knobs])


def split_units(weights: Any, units: int, min_units: int, xp: Any = np) -> Any:
    """Split grid steps among groups by the largest-remainder method.

    Args:
        weights: Float (..., G), >= 0.
        units: Number of grid steps.
        min_units: Grid steps that each group gets before the others are split.
        xp: The array module, NumPy or `jax.numpy`.

    Returns:
        Grid steps (..., G), which sum to `units`.
    """
    weights = xp.maximum(weights, 0.0) + 1e-9
    free_units = units - weights.shape[-1] * min_units
    quotas = free_units * weights / xp.sum(weights, axis=-1, keepdims=True)
    floors = xp.floor(quotas + 1e-6)
    remaining = free_units - xp.sum(floors, axis=-1, keepdims=True)
    order = xp.argsort(floors - quotas, axis=-1, stable=True)
    rank = xp.argsort(order, axis=-1, stable=True)
    return min_units + floors + (rank < remaining)


def round_levels(levels: Any, ranges: np.ndarray, xp: Any = np) -> Any:
    """Round levels (..., G, K) to integer grid steps within the ranges."""
    return xp.clip(xp.floor(levels * ranges + 0.5), 0, ranges).astype(int)


def train_with_policy(policy: FeaturePolicy, learners: Learners, grid: Grid) -> Any:
    """Run a policy on simulated learners. Can be jitted and vmapped.

    The results, including rollbacks, agree with `train_learners` up to float32.

    Args:
        policy: Maps features to a decision, with JAX arrays.
        learners: N learners.
        grid: The space of configurations of the learners' domain.

    Returns:
        The true valid rate at the start and after each stage, float (N, S + 1).
    """
    import jax
    import jax.numpy as jnp

    xp, stages = jnp, learners.drift.shape[1]
    learners = jax.tree.map(jnp.asarray, learners)
    count, num_groups = learners.count[:, None], learners.skill.shape[1]

    def validate(skill: Any, normals: Any) -> tuple[Any, Any]:
        """Return the true and the measured valid rates, float (N, G)."""
        rates = validation_rates(learners, skill, xp)
        return rates, count_valid_answers(count, rates, normals[..., 0], xp) / count

    def run_stage(state: Any, inputs: Any) -> tuple[Any, Any]:
        skill, valid_before, (shares, levels), (old_shares, old_levels) = state
        stage, drift, validation_normals, uniformity = inputs
        training_rates = success_rates(skill, learners.cost, levels, xp)
        skill = train_skill(learners, skill, shares, levels, drift, xp)
        rates, valid = validate(skill, validation_normals)
        count_before, count_after = (
            xp.sum(valid_rates * count, axis=-1) for valid_rates in (valid_before, valid)
        )
        fall = compute_fall(count_before, count_after, learners.count * num_groups, xp)
        has_fallen = fall[:, None] > MAX_FALL
        shares = xp.where(has_fallen, old_shares, shares)
        levels = xp.where(has_fallen[..., None], old_levels, levels)
        progress = xp.full((len(skill), 1), 1.0) * stage / stages
        learnability = training_rates * (1.0 - training_rates) * uniformity
        trend = valid - valid_before
        decision = policy(Features(valid, trend, learnability, shares, levels, progress))
        design = (
            split_units(decision.weights, grid.units, grid.min_units, xp) / grid.units,
            grid.levels(round_levels(decision.levels, grid.ranges, xp), xp),
        )
        return (skill, valid, design, (shares, levels)), xp.mean(rates, axis=-1)

    initial = (learners.shares, learners.levels)
    rates, valid = validate(learners.skill, learners.validation_normals[:, 0])
    noise = (learners.drift, learners.validation_normals[:, 1:], learners.uniformity)
    inputs = (xp.arange(1, stages + 1), *(xp.moveaxis(array, 1, 0) for array in noise))
    _, later_rates = jax.lax.scan(run_stage, (learners.skill, valid, initial, initial), inputs)
    return xp.concatenate([xp.mean(rates, axis=-1)[:, None], later_rates.T], axis=1)


def extract_features(view: StageView) -> Features:
    """Return the features of a view, float arrays without leading axes.

    Groups without validation answers have a valid rate of 0.5 and a trend of 0. Groups without
    training have the p(1-p) of their valid rate.
    """
    groups, training = view.domain.space.groups, view.evidence.training
    rates = view.evidence.valid_rates()
    measured = training.learnability if training else {}
    valid = np.array([rates.get(group, 0.5) for group in groups])
    pairs = list(zip(groups, valid, strict=True))
    valid_before = np.array([view.valid_before.get(group, p) for group, p in pairs])
    learnability = np.array([measured.get(group, p * (1 - p)) for group, p in pairs])
    shares, levels = configuration_arrays(view.domain.space, view.current)
    num_finished = view.evidence.stage
    progress = np.array([num_finished / max(num_finished + (view.stages_left or 0), 1)])
    return Features(valid, valid - valid_before, learnability, shares, levels, progress)


@dataclass(frozen=True)
class FeatureEngineer(ComputedEngineer):
    """Engineer defined by a function of features; all attempts give the same answer."""

    policy: FeaturePolicy
    name: str

    def _configuration(self, task: Task) -> Configuration:
        domain, space = task.view.domain, task.view.domain.space
        decision = Decision(*map(np.asarray, self.policy(extract_features(task.view))))
        units = split_units(decision.weights, space.units, space.to_units(space.min_share))
        steps = round_levels(decision.levels, _knob_ranges(domain)).tolist()
        knobs = {
            group: {
                k: space.from_units(n) for k, n in zip(space.difficulty_knobs, row, strict=True)
            }
            for group, row in zip(space.groups, steps, strict=True)
        }
        return make_configuration(domain, ratios_by_group(space, units.astype(int).tolist()), knobs)
