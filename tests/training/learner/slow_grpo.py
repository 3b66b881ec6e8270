"""GRPO's loss and its gradient in float64, one completion and one token at a time.

Written from the papers and apart from `training.learner.grpo`, which tests compare with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np

from training.schema import GrpoConfig


def compute_loss_and_gradients(
    new_logprobs: Sequence[np.ndarray],
    old_logprobs: Sequence[np.ndarray],
    sampler_logprobs: Sequence[np.ndarray],
    reference_logprobs: Sequence[np.ndarray],
    advantages: Sequence[float],
    settings: GrpoConfig,
    *,
    max_tokens: int,
    num_completions: int,
) -> tuple[float, list[np.ndarray]]:
    """Return the loss, and its derivative by each log-probability of `new_logprobs`.

    There is one array of log-probabilities per completion to learn from, float (tokens,), in nats.
    A step has `num_completions` completions of at most `max_tokens` tokens. Old and sampled
    log-probabilities are constants.
    """
    num_tokens = sum(map(len, new_logprobs))
    loss = 0.0
    gradients = [np.zeros(len(logprobs)) for logprobs in new_logprobs]
    for i, advantage in enumerate(map(float, advantages)):
        length = len(new_logprobs[i])
        weight = {
            "token_mean": 1 / num_tokens,
            "sequence_mean": 1 / length / len(new_logprobs),
            "constant_length": 1 / (num_completions * max_tokens),
        }[settings.aggregation]
        log_ratios = [float(new_logprobs[i][t]) - float(old_logprobs[i][t]) for t in range(length)]
        for t in range(length):
            sequence_ratio = settings.ratio == "sequence"
            ratio = exp(sum(log_ratios) / length if sequence_ratio else log_ratios[t])
            is_unclipped = 1 - settings.clip_low <= ratio <= 1 + settings.clip_high
            bound = 1 - settings.clip_low if ratio < 1 else 1 + settings.clip_high
            clipped_ratio = ratio if is_unclipped else bound
            sampler_log_ratio = float(old_logprobs[i][t]) - float(sampler_logprobs[i][t])
            importance = min(exp(sampler_log_ratio), settings.importance_cap)
            loss -= weight * importance * min(ratio * advantage, clipped_ratio * advantage)
            if is_unclipped or ratio * advantage < clipped_ratio * advantage:
                gradient = weight * importance * advantage * ratio
                if sequence_ratio:
                    gradients[i] -= gradient / length
                else:
                    gradients[i][t] -= gradient
            if settings.kl_coefficient:
                log_ratio = float(reference_logprobs[i][t]) - float(new_logprobs[i][t])
                loss += weight * settings.kl_coefficient * (exp(log_ratio) - 1 - log_ratio)
                gradients[i][t] += weight * settings.kl_coefficient * (1 - exp(log_ratio))
    return loss, gradients
