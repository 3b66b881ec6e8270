"""Equations of the simulated learners in `simulated_run` and `engineer.bench`.

The argument `xp` is the array module, NumPy or `jax.numpy`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from engineer.domain import Domain
from engineer.evidence import AnswerStatistics, GroupEvidence, Tally
from engineer.space import Configuration, KnobSpace

MAX_FALL = 1.96
"""Maximum fall of the valid rate in standard errors; a larger fall causes a rollback."""
ROLLBACK_NOTICE = "The valid rate fell. The configuration before was restored."
"""Notice in the view of a stage that was rolled back."""


def success_rates(skill: Any, cost: Any, levels: Any, xp: Any = np) -> Any:
    """Return the probability of a valid answer, logistic in skill minus the costs of the knobs.

    Args:
        skill: Float (..., G), logits with all knobs at 0.
        cost: Float (..., G, K), decrease of the logits over a knob's range.
        levels: Float (..., G, K), knobs as fractions of their ranges.
        xp: The array module.

    Returns:
        Float (..., G).
    """
    logits = skill - xp.sum(cost * levels, axis=-1)
    return xp.asarray(1.0 / (1.0 + xp.exp(-logits)))


def learning_gain(speed: Any, shares: Any, rates: Any) -> Any:
    """Return the increase of the logits of each group in a stage: speed x G x share x 4p(1-p).

    Args:
        speed: Float, or (..., 1): logits per stage at equal shares and p = 1/2.
        shares: Float (..., G), which sum to 1.
        rates: Float (..., G), success rates p on the training instances.

    Returns:
        Float (..., G).
    """
    return speed * shares.shape[-1] * shares * 4.0 * rates * (1.0 - rates)


def compute_fall(valid_before: Any, valid_after: Any, count: Any, xp: Any = np) -> Any:
    """Return the fall of a valid rate in standard errors.

    Args:
        valid_before: Number of valid answers before the stage.
        valid_after: Number of valid answers after the stage.
        count: Number of answers, the same before and after.
        xp: The array module.
    """
    rate_before, rate_after = valid_before / count, valid_after / count
    pooled_rate = (rate_before + rate_after) / 2
    variance = xp.maximum(2.0 * pooled_rate * (1.0 - pooled_rate), 1.0 / count) / count
    return (rate_before - rate_after) / xp.sqrt(variance)


def configuration_arrays(
    space: KnobSpace, configuration: Configuration
) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares, float (G,), and the levels of the other knobs in 0..1, float (G, K)."""
    values = space.knobs_of(configuration)
    shares = np.array([values[group][space.share] for group in space.groups])
    levels = [
        [values[group][knob] / (space.maximum(knob) or 1.0) for knob in space.difficulty_knobs]
        for group in space.groups
    ]
    return shares, np.array(levels).reshape(len(space.groups), len(space.difficulty_knobs))


def validation_evidence(
    domain: Domain, count: int, num_valid: int, num_scored: int, failure_counts: Sequence[int]
) -> GroupEvidence:
    """Return a group's validation answers.

    Args:
        domain: The environment.
        count: Number of answers.
        num_valid: Number of valid answers.
        num_scored: Number of valid answers that reach each of the domain's scores.
        failure_counts: Numbers of invalid answers by kind of failure; the first kind is unparsable.
    """
    return GroupEvidence(
        count=count,
        valid=num_valid,
        scores={label.key: num_scored for label in domain.scores},
        failures=_failures(domain, failure_counts),
        answer_statistics=_answer_statistics(failure_counts[0] / count, None),
    )


def rollout_evidence(
    domain: Domain, count: int, num_valid: int, failure_counts: Sequence[int], rate: float
) -> tuple[Tally, AnswerStatistics]:
    """Return the tally and statistics of a group's training answers, with eight per instance.

    Args:
        domain: The environment.
        count: Number of answers.
        num_valid: Number of valid answers.
        failure_counts: Numbers of invalid answers by kind of failure; the first kind is unparsable.
        rate: Success rate p, which determines the share of instances without a valid answer.
    """
    tally = Tally(count=count, valid=num_valid, failures=_failures(domain, failure_counts))
    return tally, _answer_statistics(failure_counts[0] / count, (1.0 - rate) ** 8)


def _failures(domain: Domain, failure_counts: Sequence[int]) -> dict[str, int]:
    return {label.key: n for label, n in zip(domain.failures, failure_counts, strict=True) if n}


def _answer_statistics(unreadable_share: float, unsolved_share: float | None) -> AnswerStatistics:
    return AnswerStatistics(
        readable=1.0 - unreadable_share, truncated=0.0, tokens=30.0, without_success=unsolved_share
    )
