"""GRPO's loss and its gradient in float64, one completion and one token at a time.

Written from the papers and apart from `training.learner.grpo`, which tests compare with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np

from training.schema import GrpoConfig


def grpo_loss_and_gradients(
    new: Sequence[np.ndarray],
    old: Sequence[np.ndarray],
    sampler: Sequence[np.ndarray],
    reference: Sequence[np.ndarray],
    advantages: Sequence[float],
    settings: GrpoConfig,
    *,
    limit: int,
    completions: int,
) -> tuple[float, list[np.ndarray]]:
    """Return the loss, and its derivative by each log-probability of `new`.

    There is one array of log-probabilities per completion to learn from, float (tokens,), in nats.
    A step has `completions` completions of at most `limit` tokens. Old and sampled
    log-probabilities are constants.
    """
    tokens = sum(map(len, new))
    loss = 0.0
    slopes = [np.zeros(len(logprobs)) for logprobs in new]
    for i, advantage in enumerate(map(float, advantages)):
        length = len(new[i])
        share = {
            "token_mean": 1 / tokens,
            "sequence_mean": 1 / length / len(new),
            "constant_length": 1 / (completions * limit),
        }[settings.aggregation]
        gaps = [float(new[i][t]) - float(old[i][t]) for t in range(length)]
        for t in range(length):
            sequence_ratio = settings.ratio == "sequence"
            ratio = exp(sum(gaps) / length if sequence_ratio else gaps[t])
            inside = 1 - settings.clip_low <= ratio <= 1 + settings.clip_high
            bound = 1 - settings.clip_low if ratio < 1 else 1 + settings.clip_high
            clipped = ratio if inside else bound
            weight = min(exp(float(old[i][t]) - float(sampler[i][t])), settings.importance_cap)
            loss -= share * weight * min(ratio * advantage, clipped * advantage)
            if inside or ratio * advantage < clipped * advantage:
                slope = share * weight * advantage * ratio
                if sequence_ratio:
                    slopes[i] -= slope / length
                else:
                    slopes[i][t] -= slope
            if settings.kl_coefficient:
                gap = float(reference[i][t]) - float(new[i][t])
                loss += share * settings.kl_coefficient * (exp(gap) - 1 - gap)
                slopes[i][t] += share * settings.kl_coefficient * (1 - exp(gap))
    return loss, slopes
