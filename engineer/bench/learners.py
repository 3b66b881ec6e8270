"""Simulated learners: their prior distribution, and the equations of their training.

Group g of a learner has a skill s_g in logits, which knob k reduces by c_gk over its range:

    p_g(l)   = sigmoid(s_g - sum_k c_gk l_k)                      success at levels l of the knobs
    u_g      = G x_g 4 p_g(l)(1 - p_g(l)) r_g                     signal of training with share x_g
    r_g      = 1 - sum_k narrow_k max(v_k - l_k, 0)               transfer to validation
    s_g'     = s_g + speed ((1 - transfer) u_g + transfer mean_h u_h)
                   - forgetting (s_g - s_g(0)) + noise

The validation set has its knobs at fixed levels v. All random numbers of a learner are drawn in
advance, so that all engineers are compared under the same noise.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from engineer.domain import Domain
from engineer.engineers.baselines import random_configuration
from engineer.space import FrozenModel
from engineer.synthetic.learner import configuration_arrays, learning_gain, success_rates


class Prior(FrozenModel):
    """Prior distribution of learners. Its centres are fitted to studies 2 to 5.

    `benchmarks/designbench_fit.py` prints the fitted numbers. The spreads are wider than in the
    studies, which used three models with initial valid rates of 43 to 61%.
    """

    start: tuple[float, float] = Field(
        (0.0, 1.5), description="mean and sd of the mean validation logit at the start"
    )
    slope: tuple[float, float] = Field(
        (0.5, 2.0),
        description="minimum and maximum fall of the logit from the first group to the last",
    )
    group_spread: float = Field(1.0, ge=0.0, description="sd of a group's logit around that line")
    cost: tuple[float, float] = Field(
        (2.0, 0.4), description="shape and scale of a knob's cost, a Gamma distribution; logits"
    )
    speed: tuple[float, float] = Field(
        (0.27, 0.5), description="median and log-sd of the gain per stage, logits at full signal"
    )
    forgetting: tuple[float, float] = Field(
        (0.39, 0.3), description="median and log-sd of the share of the gain lost per stage"
    )
    transfer: tuple[float, float] = Field(
        (0.4, 0.95), description="minimum and maximum share of the signal that reaches all groups"
    )
    narrow: tuple[float, float] = Field(
        (0.5, 2.0),
        description="minimum and maximum loss of signal per level that a knob is too low",
    )
    noise: tuple[float, float] = Field(
        (0.1, 0.05), description="sd per stage in logits: common to all groups, and of each group"
    )
    uniformity: tuple[float, float] = Field(
        (0.2, 0.6),
        description="minimum and maximum ratio of the mean p(1-p) of instances to the group's",
    )
    repetition: float = Field(
        0.6,
        ge=0.0,
        le=1.0,
        description="correlation of the noise of two validations, which share their instances",
    )
    kinds: float = Field(0.6, gt=0.0, description="Dirichlet parameter of the kinds of failure")
    validation: float = Field(0.5, ge=0.0, le=1.0, description="levels of all validation knobs")
    count: int = Field(450, ge=1, description="validation answers per group")
    rollouts: int = Field(256, ge=1, description="training answers per group that are reported")


class Learners(NamedTuple):
    """N learners with G groups, K knobs and F kinds of failure, for S stages; a pytree.

    The fields include the random numbers of all stages. NumPy floats are float64.
    """

    skill: Any  # (N, G) logits with all knobs at 0, before any training
    cost: Any  # (N, G, K) logits over a knob's range
    failure_shares: Any  # (N, G, F) shares of the kinds of failure, which sum to 1
    speed: Any  # (N,)
    forgetting: Any  # (N,)
    transfer: Any  # (N,)
    narrow: Any  # (N, K)
    validation: Any  # (N, G, K) levels of the validation instances
    shares: Any  # (N, G) of the first stage
    levels: Any  # (N, G, K) of the first stage
    drift: Any  # (N, S, G) random change of the logits per stage
    validation_normals: Any  # (N, S + 1, G, F) standard normals of the validation answers
    training_normals: Any  # (N, S, G, F) standard normals of the training answers
    uniformity: Any  # (N, S, G) in 0..1: similarity of instances, which scales learnability
    count: Any  # (N,) validation answers per group
    rollouts: Any  # (N,) training answers per group


def select_learners(learners: Learners, index: Any) -> Learners:
    """Return the learners at an index of the first axis, which may be a slice or an array."""
    return Learners(*(field[index] for field in learners))


def draw_learners(
    prior: Prior, domain: Domain, count: int, stages: int, seed: tuple[int, ...]
) -> Learners:
    """Draw learners; the i-th learner only depends on the seed and i.

    Args:
        prior: The distributions.
        domain: Defines groups, knobs and kinds of failure. Initial configurations are drawn with
            `random_configuration`.
        count: Number of learners N, at least 1.
        stages: Number of stages S, at least 1.
        seed: Integers >= 0.

    Returns:
        N learners.

    Raises:
        ValueError: `count` or `stages` is below 1.
    """
    for name, value in (("learners", count), ("stages", stages)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    rngs = [np.random.default_rng([*seed, i]) for i in range(count)]
    learners = [_draw_learner(rng, prior, domain, stages) for rng in rngs]
    return Learners(*(np.stack(field) for field in zip(*learners, strict=True)))


def _draw_learner(rng: np.random.Generator, prior: Prior, domain: Domain, stages: int) -> Learners:
    space = domain.space
    num_groups, num_knobs = len(space.groups), len(space.difficulty_knobs)
    num_kinds = len(domain.failures)
    mean_logit, slope = rng.normal(*prior.start), rng.uniform(*prior.slope)
    cost = rng.gamma(*prior.cost, (num_groups, num_knobs))
    validation = np.full((num_groups, num_knobs), prior.validation)
    logits = mean_logit - slope * np.linspace(-0.5, 0.5, num_groups)
    logits = logits + rng.normal(0.0, prior.group_spread, num_groups)
    speed, forgetting = (
        median * np.exp(rng.normal(0.0, log_sd))
        for median, log_sd in (prior.speed, prior.forgetting)
    )
    shares, levels = configuration_arrays(space, random_configuration(rng, domain))
    common_noise, group_noise = (rng.normal(0.0, sd, (stages, num_groups)) for sd in prior.noise)
    return Learners(
        skill=logits + np.sum(cost * validation, axis=-1),
        cost=cost,
        failure_shares=_scale_by_cost(
            rng.dirichlet([prior.kinds] * num_kinds, num_groups), cost, domain
        ),
        speed=speed,
        forgetting=min(forgetting, 1.0),
        transfer=rng.uniform(*prior.transfer),
        narrow=rng.uniform(*prior.narrow, num_knobs),
        validation=validation,
        shares=shares,
        levels=levels,
        drift=common_noise[:, :1] + group_noise,
        validation_normals=math.sqrt(prior.repetition) * rng.normal(size=(num_groups, num_kinds))
        + math.sqrt(1.0 - prior.repetition) * rng.normal(size=(stages + 1, num_groups, num_kinds)),
        training_normals=rng.normal(size=(stages, num_groups, num_kinds)),
        uniformity=rng.uniform(*prior.uniformity, (stages, num_groups)),
        count=np.int64(prior.count),
        rollouts=np.int64(prior.rollouts),
    )


def _scale_by_cost(shares: np.ndarray, cost: np.ndarray, domain: Domain) -> np.ndarray:
    """Scale the shares of failures, (G, F), by the relative cost of the knobs that cause them."""
    knobs = domain.space.difficulty_knobs
    for kind, label in enumerate(domain.failures):
        if (cause := domain.causes.get(label.key)) is not None:
            shares[:, kind] *= cost[:, knobs.index(cause)] / np.mean(cost, axis=1)
    return shares / np.sum(shares, axis=1, keepdims=True)


def validation_rates(learners: Learners, skill: Any, xp: Any = np) -> Any:
    """Return the success rates on validation instances, float (N, G), for a skill (N, G)."""
    return success_rates(skill, learners.cost, learners.validation, xp)


def train_skill(
    learners: Learners, skill: Any, shares: Any, levels: Any, drift: Any, xp: Any = np
) -> Any:
    """Return the skill after a stage of training, float (N, G).

    Args:
        learners: The learners.
        skill: Float (N, G), before the stage.
        shares: Float (N, G), the shares of the data in this stage.
        levels: Float (N, G, K), the knobs as fractions of their ranges.
        drift: Float (N, G), the random change in this stage.
        xp: The array module, NumPy or `jax.numpy`.
    """
    shortfall = xp.maximum(learners.validation - levels, 0.0)
    relevance = 1.0 - xp.sum(learners.narrow[:, None] * shortfall, axis=-1)
    rates = success_rates(skill, learners.cost, levels, xp)
    gain = learning_gain(learners.speed[:, None], shares, rates) * relevance
    transfer = learners.transfer[:, None]
    gain = (1.0 - transfer) * gain + transfer * xp.mean(gain, axis=-1, keepdims=True)
    return skill + gain - learners.forgetting[:, None] * (skill - learners.skill) + drift


def count_valid_answers(count: Any, rates: Any, normals: Any, xp: Any = np) -> Any:
    """Return numbers of valid answers from a rounded normal approximation of the binomial.

    With equal normals, similar rates give similar numbers, so engineers are compared under the same
    noise.

    Args:
        count: Number of answers, broadcastable to (N, G).
        rates: Float (N, G), probabilities of a valid answer.
        normals: Float (N, G), standard normals.
        xp: The array module, NumPy or `jax.numpy`.

    Returns:
        Float (N, G), integers from 0 to `count`.
    """
    mean = count * rates
    standard_deviation = xp.sqrt(mean * (1.0 - rates))
    return xp.clip(xp.floor(mean + standard_deviation * normals + 0.5), 0, count)
