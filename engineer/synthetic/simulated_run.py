"""Simulate runs of a learner that is defined by formulas, in microseconds per stage.

The probability of solving a group's instances is logistic in the learner's skill for the group
minus the costs of its knobs. Training raises the skill in proportion to the group's share and to
p(1-p) of its training instances, and forgetting adds noise. Numbers of valid answers are binomial
and numbers of failures by kind are multinomial.
"""

import math
from dataclasses import dataclass

import numpy as np

from engineer.context.view import StageView
from engineer.domain import Domain
from engineer.edits import Edits, apply_edits
from engineer.engineers.rule import rule_configuration
from engineer.evidence import GroupEvidence, TrainingEvidence
from engineer.space import Configuration, KnobSpace, apportion
from engineer.synthetic.learner import (
    configuration_arrays,
    learning_gain,
    rollout_evidence,
    success_rates,
    validation_evidence,
)
from engineer.synthetic.visible_run import VisibleRun


@dataclass
class _Learner:
    """The state of a simulated learner, which training changes."""

    skill: np.ndarray  # float (G,), logits
    cost: np.ndarray  # float (G, K), decrease of the logits over a knob's range
    kinds: np.ndarray  # float (G, F), probabilities of the kinds of failure
    speed: float
    forgetting: float

    def rates(self, levels: np.ndarray) -> np.ndarray:
        """Return the probability of a valid answer, float (G,), at knob levels 0..1."""
        return success_rates(self.skill, self.cost, levels)

    def train(self, rng: np.random.Generator, shares: np.ndarray, levels: np.ndarray) -> None:
        """Update the skill by one stage of training."""
        gain = learning_gain(self.speed, shares, self.rates(levels))
        self.skill = self.skill + gain + rng.normal(0.0, self.forgetting, len(shares))


def simulate_run(
    rng: np.random.Generator,
    domain: Domain,
    stages: int,
    *,
    counts: tuple[int, int] = (16, 256),
) -> list[StageView]:
    """Simulate a run and return the engineer's view after each stage.

    Each stage is designed by the rule, by random edits or at random. A stage in which the valid
    rate falls is rolled back.

    Args:
        rng: The random generator.
        domain: The environment.
        stages: Number of stages.
        counts: Minimum and maximum number of validation answers per group.
    """
    learner = _draw_learner(rng, domain)
    count = int(rng.integers(counts[0], counts[1] + 1))
    validation = _validate(rng, domain, learner, count)
    run = VisibleRun(domain, _draw_configuration(rng, domain.space), validation)
    views = []
    for _ in range(stages):
        shares, levels = configuration_arrays(domain.space, run.current)
        training = _draw_training_evidence(rng, domain, learner, levels)
        learner.train(rng, shares, levels)
        view = run.finish_stage(_validate(rng, domain, learner, count), training)
        views.append(view)
        run.use_design(_draw_next_configuration(rng, view), "accepted")
    return views


def _draw_learner(rng: np.random.Generator, domain: Domain) -> _Learner:
    num_groups, num_knobs = len(domain.space.groups), len(domain.space.difficulty_knobs)
    mean_logit, slope = rng.uniform(-3.0, 4.0), rng.uniform(0.0, 2.0)
    return _Learner(
        skill=mean_logit
        - slope * np.linspace(-1.0, 1.0, num_groups)
        + rng.normal(0.0, 1.0, num_groups),
        cost=rng.gamma(2.0, 0.6, (num_groups, num_knobs)),
        kinds=rng.dirichlet([0.6] * len(domain.failures), num_groups),
        speed=rng.uniform(0.0, 1.0),
        forgetting=rng.uniform(0.1, 0.8),
    )


def _validate(
    rng: np.random.Generator, domain: Domain, learner: _Learner, count: int
) -> dict[str, GroupEvidence]:
    """Return the answers to a validation set with all knobs at the middle of their ranges."""
    rates = learner.rates(np.full(learner.cost.shape, 0.5))
    evidence = {}
    for group, rate, kinds in zip(domain.space.groups, rates, learner.kinds, strict=True):
        num_valid = int(rng.binomial(count, rate))
        failure_counts = rng.multinomial(count - num_valid, kinds).tolist()
        num_scored = int(rng.binomial(num_valid, 0.7))
        evidence[group] = validation_evidence(domain, count, num_valid, num_scored, failure_counts)
    return evidence


def _draw_training_evidence(
    rng: np.random.Generator, domain: Domain, learner: _Learner, levels: np.ndarray
) -> TrainingEvidence:
    """Return the training evidence of a stage; differences between instances reduce p(1-p)."""
    rates = learner.rates(levels)
    reward = rng.random(2)
    answer_rng = np.random.default_rng(int(reward[0] * 2**53))
    rollouts, statistics = {}, {}
    for group, rate, kinds in zip(domain.space.groups, rates, learner.kinds, strict=True):
        num_valid = int(answer_rng.binomial(256, rate))
        failure_counts = answer_rng.multinomial(256 - num_valid, kinds).tolist()
        rollouts[group], statistics[group] = rollout_evidence(
            domain, 256, num_valid, failure_counts, float(rate)
        )
    learnability = rates * (1.0 - rates) * rng.uniform(0.4, 1.0, len(rates))
    return TrainingEvidence(
        updates=int(rng.integers(4, 200)),
        instances=int(rng.integers(64, 4001)),
        reward_first=float(reward[0]),
        reward_last=float(reward[1]),
        zero_variance_share=float(rng.random()),
        clip_share=float(rng.beta(1.0, 20.0)),
        entropy=float(rng.gamma(2.0, 0.2)),
        completion_length=float(rng.uniform(5.0, 60.0)),
        learnability=dict(zip(domain.space.groups, learnability.tolist(), strict=True)),
        rollouts=rollouts,
        answer_statistics=statistics,
    )


def _draw_next_configuration(rng: np.random.Generator, view: StageView) -> Configuration:
    draw = rng.random()
    if draw < 0.4:
        return rule_configuration(view)
    if draw < 0.8:
        return _apply_random_edits(rng, view)
    return _draw_configuration(rng, view.domain.space)


def _apply_random_edits(rng: np.random.Generator, view: StageView) -> Configuration:
    space = view.domain.space
    signs = rng.choice([-1, 0, 0, 1], (len(space.groups), len(space.knobs))).tolist()
    edits: Edits = {
        group: dict(zip(space.knobs, row, strict=True))
        for group, row in zip(space.groups, signs, strict=True)
    }
    values = apply_edits(edits, view.current, space)
    shares = [max(values[group][space.share], 0.0) for group in space.groups]
    if not math.fsum(shares) > 0.0:
        return view.current
    units = apportion(shares, space.units, space.to_units(space.min_share))
    for group, share_units in zip(space.groups, units, strict=True):
        values[group][space.share] = space.from_units(share_units)
    return space.make(values)


def _draw_configuration(rng: np.random.Generator, space: KnobSpace) -> Configuration:
    """Draw a configuration on the grid, often with knobs and shares at their limits."""
    weights = rng.dirichlet([1.5] * len(space.groups)).tolist()
    if rng.random() < 0.15:  # one group gets the maximum share
        weights = np.eye(len(weights))[int(rng.integers(len(weights)))].tolist()
    shares = apportion(weights, space.units, space.to_units(space.min_share))
    values = {}
    for group, share in zip(space.groups, shares, strict=True):
        values[group] = {space.share: space.from_units(share)}
        for knob in space.difficulty_knobs:
            max_steps = space.to_units(space.maximum(knob))
            uniform_steps = int(rng.integers(0, max_steps + 1))
            steps = int(rng.choice([0, max_steps, uniform_steps], p=[0.15, 0.15, 0.7]))
            values[group][knob] = space.from_units(steps)
    return space.make(values)
