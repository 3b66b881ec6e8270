"""Group Relative Policy Optimization (GRPO): its advantages and its loss.

Advantages: Shao et al. 2024 (DeepSeekMath), eq. 3; without the division by the standard deviation,
Liu et al. 2025 (Dr. GRPO). Token-mean loss and the asymmetric clip: Yu et al. 2025 (DAPO). The
truncated importance weight corrects for what separates the engine's probabilities from the
trainer's: Yao et al. 2025 ("Your efficient RL framework secretly brings you off-policy RL
training").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from training.learner.batching import Sequences
from training.learner.optimizer import Metrics
from training.learner.packing import PackedGroups
from training.policy.qwen3 import target_logprobs, token_logprobs
from training.schema import Grpo

SMALLEST_DEVIATION = 1e-6
"""Rewards with a standard deviation up to this count as equal."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GrpoBatch:
    """Completions, their log-probabilities (nats) and their advantages.

    All arrays (B, R, W) have the layout of the rows: one value per target token. The old
    log-probabilities are those under the trainer's weights before the update. All of them are NaN
    where the update is a single optimizer step, whose own are the old ones.
    """

    groups: PackedGroups  # the completions to learn from, in B bundles
    sampler_logprobs: Any  # float32 (B, R, W), under the engine's weights as it drew the tokens
    old_logprobs: Any  # float32 (B, R, W)
    advantages: Any  # float32 (B, R, W), of each token's completion


def has_reward_variance(rewards: np.ndarray) -> np.ndarray:
    """Say which groups can be learned from: bool (prompts,) of rewards (prompts, completions).

    Where all rewards of a group are equal, its advantages are zero.
    """
    return rewards.std(axis=1) > SMALLEST_DEVIATION


def group_advantages(rewards: np.ndarray, *, divide_by_std: bool) -> np.ndarray:
    """Compare each completion's reward with the mean of its group: float32 (prompts, completions).

    With `divide_by_std` in standard deviations of the group; zero where all of its rewards are
    equal.
    """
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    if not divide_by_std:
        return centred
    deviation = rewards.std(axis=1, keepdims=True)
    varies = deviation > SMALLEST_DEVIATION
    return np.divide(centred, deviation, out=np.zeros_like(centred), where=varies)


def token_objective(
    new: jax.Array, old: jax.Array, sampler: jax.Array, advantages: jax.Array, settings: Grpo
) -> tuple[jax.Array, Metrics]:
    """Compute the clipped surrogate objective of each token, which is to be maximised.

    `new`, float32 of any shape, holds log-probabilities under the weights being trained, nats;
    `old`, `sampler` and `advantages` are as in `GrpoBatch`. Returns float32 of this shape, and
    metrics per token of the same shape.
    """
    ratio = jnp.exp(new - old)
    clipped = jnp.clip(ratio, 1 - settings.clip_low, 1 + settings.clip_high)
    surrogate = jnp.minimum(ratio * advantages, clipped * advantages)
    importance = jnp.exp(old - sampler)
    weight = jax.lax.stop_gradient(jnp.minimum(importance, settings.importance_cap))
    return weight * surrogate, {
        "clip_share": (clipped * advantages < ratio * advantages).astype(jnp.float32),
        "importance_ratio_mean": jax.lax.stop_gradient(importance),
    }


def logprobs(
    params: Any, sequences: Sequences, *, graphdef: nnx.GraphDef, temperature: float
) -> jax.Array:
    """Return the log-probability of each token given those before it: float32 (B, L), nats."""
    return token_logprobs(
        nnx.merge(graphdef, params),
        sequences.input_ids,
        sequences.positions,
        sequences.mask,
        temperature=temperature,
    )


def group_logprobs(
    params: Any, groups: PackedGroups, *, graphdef: nnx.GraphDef, temperature: float
) -> jax.Array:
    """Return the log-probability of each target token: float32 (B, R, W), nats.

    Each prompt is computed once, and its completions attend to it. Meaningless at padding.
    """
    model = nnx.merge(graphdef, params)
    hidden = model.continue_prompts(
        groups.prompt_ids,
        groups.prompt_mask,
        groups.row_prompts,
        groups.input_ids,
        groups.positions,
        groups.completions,
    )
    bundles, *rows = groups.target_ids.shape
    targets = groups.target_ids.reshape(bundles, -1)
    states = hidden.reshape(*targets.shape, -1)
    logprobs = target_logprobs(model, states, targets, temperature=temperature)
    return logprobs.reshape(bundles, *rows)


def summed_loss(
    params: Any, batch: GrpoBatch, *, graphdef: nnx.GraphDef, settings: Grpo, temperature: float
) -> tuple[jax.Array, Metrics]:
    """Sum the negative objective, and the metrics, over the target tokens of a micro-batch."""
    targets = batch.groups.targets
    new = group_logprobs(params, batch.groups, graphdef=graphdef, temperature=temperature)
    old = jnp.where(jnp.isnan(batch.old_logprobs), jax.lax.stop_gradient(new), batch.old_logprobs)
    sampler = jnp.where(targets, batch.sampler_logprobs, old)
    objective, metrics = token_objective(new, old, sampler, batch.advantages, settings)
    metrics |= {"sampler_gap": jnp.abs(old - sampler)}
    on_targets = targets.astype(jnp.float32)
    return jax.tree.map(lambda value: jnp.sum(value * on_targets), (-objective, metrics))
