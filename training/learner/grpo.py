"""Advantages and loss of Group Relative Policy Optimization (GRPO).

Shao et al. 2024 (DeepSeekMath), eq. 3; Liu et al. 2025 (Dr. GRPO); Yu et al. 2025 (DAPO); Zheng et
al. 2025 (GSPO). Truncated importance weights between engine and trainer: Yao et al. 2025.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from training.learner.batching import Sequences
from training.learner.optimizer import Metrics
from training.learner.packing import PackedGroups
from training.policy.logprobs import target_logprobs, token_logprobs
from training.schema import GrpoConfig

MIN_DEVIATION = 1e-6
"""Rewards with at most this standard deviation count as equal."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GrpoBatch:
    """Completions, their log-probabilities (nats) and their advantages.

    All arrays (B, R, W) have the layout of the rows: one value per target token. Old
    log-probabilities belong to the trainer's weights before the update. If the update is a single
    optimizer step, they equal the new ones and are stored as NaN.

    Identical completions of a prompt are computed once: the rows contain one of them, with their
    number as its weight in `copies`.
    """

    groups: PackedGroups  # the completions to train on, in B bundles
    sampler_logprobs: Any  # float32 (B, R, W), from the engine that sampled the tokens
    old_logprobs: Any  # float32 (B, R, W)
    advantages: Any  # float32 (B, R, W), of each token's completion
    reference_logprobs: Any = None  # float32 (B, R, W), if the loss has a KL divergence
    copies: Any = None  # float32 (B, R, W), copies of each target's completion; None: 1

    @property
    def counts(self) -> Any:
        """The weight of each token, float32 (B, R, W); 0 at padding."""
        return self.groups.is_target.astype(np.float32) if self.copies is None else self.copies


def has_reward_variance(rewards: np.ndarray) -> np.ndarray:
    """Return whether the rewards (prompts, completions) of each prompt differ, bool (prompts,)."""
    return rewards.std(axis=1) > MIN_DEVIATION


def group_advantages(rewards: np.ndarray, *, divide_by_std: bool) -> np.ndarray:
    """Return the advantage of each completion: its reward minus the mean of its group.

    Args:
        rewards: (prompts, completions).
        divide_by_std: Whether to divide by the standard deviation of the group.

    Returns:
        float32 (prompts, completions); 0 in groups whose rewards are all equal.
    """
    advantages = rewards - rewards.mean(axis=1, keepdims=True)
    if not divide_by_std:
        return advantages
    deviations = rewards.std(axis=1, keepdims=True)
    has_variance = deviations > MIN_DEVIATION
    return np.divide(advantages, deviations, out=np.zeros_like(advantages), where=has_variance)


def token_objective(
    new_logprobs: jax.Array,
    old_logprobs: jax.Array,
    sampler_logprobs: jax.Array,
    advantages: jax.Array,
    settings: GrpoConfig,
    completions: jax.Array | None = None,
) -> tuple[jax.Array, Metrics]:
    """Return the clipped surrogate objective of each token, which training maximises.

    Args:
        new_logprobs: Log-probabilities under the current weights, nats, float32 of any shape.
        old_logprobs: Log-probabilities before the update, see `GrpoBatch`.
        sampler_logprobs: Log-probabilities of the engine, see `GrpoBatch`.
        advantages: See `GrpoBatch`.
        settings: The section `grpo`. With `ratio: sequence` each token gets the ratio of its
            completion, the geometric mean over its tokens (GSPO).
        completions: Index of each token's completion, see `PackedGroups`. Required for
            `ratio: sequence`.

    Returns:
        The objective and metrics per token, float32 with the shape of `new_logprobs`.
    """
    log_ratio = new_logprobs - old_logprobs
    if settings.ratio == "sequence":
        assert completions is not None
        log_ratio = completion_sums(log_ratio, completions) / completion_lengths(completions)
    ratio = jnp.exp(log_ratio)
    clipped_ratio = jnp.clip(ratio, 1 - settings.clip_low, 1 + settings.clip_high)
    surrogate = jnp.minimum(ratio * advantages, clipped_ratio * advantages)
    importance_ratio = jnp.exp(old_logprobs - sampler_logprobs)
    weight = jax.lax.stop_gradient(jnp.minimum(importance_ratio, settings.importance_cap))
    return weight * surrogate, {
        "clip_share": (clipped_ratio * advantages < ratio * advantages).astype(jnp.float32),
        "importance_ratio_mean": jax.lax.stop_gradient(importance_ratio),
    }


def token_kl(new_logprobs: jax.Array, reference_logprobs: jax.Array) -> jax.Array:
    """Return an estimate of each token's KL divergence from the reference, in nats.

    This is k3 of Schulman 2020 ("Approximating KL Divergence"): r - 1 - log r, where r is the
    reference probability divided by the current one. It is non-negative, and unbiased for tokens
    sampled from the current weights.

    Args:
        new_logprobs: Log-probabilities under the current weights, nats, float32 of any shape.
        reference_logprobs: Log-probabilities under the reference weights.

    Returns:
        float32 with the shape of `new_logprobs`.
    """
    log_ratio = reference_logprobs - new_logprobs
    return jnp.exp(log_ratio) - log_ratio - 1


def logprobs(
    params: Any, sequences: Sequences, *, graphdef: nnx.GraphDef, temperature: float
) -> jax.Array:
    """Return the log-probability of each token given the tokens before it, float32 (B, L), nats."""
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
    """Return the log-probability of each target token, float32 (B, R, W), nats.

    Each prompt is computed once for all of its completions. Values at padding are undefined.
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
    params: Any,
    batch: GrpoBatch,
    *,
    graphdef: nnx.GraphDef,
    settings: GrpoConfig,
    temperature: float,
) -> tuple[jax.Array, Metrics]:
    """Return the sums of loss and metrics over the target tokens of a micro-batch."""
    new_logprobs = group_logprobs(params, batch.groups, graphdef=graphdef, temperature=temperature)
    return sum_loss(new_logprobs, batch, settings)


def sum_loss(
    new_logprobs: jax.Array, batch: GrpoBatch, settings: GrpoConfig
) -> tuple[jax.Array, Metrics]:
    """Return the sums of loss and metrics over the target tokens of a micro-batch.

    `new_logprobs` belong to the target tokens, float32 (B, R, W), nats. The caller divides the
    loss, float32 (), by `loss_weight` of the whole step, and the metrics by its number of target
    tokens.
    """
    is_target, completions = batch.groups.is_target, batch.groups.completions
    current = jax.lax.stop_gradient(new_logprobs)
    old_logprobs = jnp.where(jnp.isnan(batch.old_logprobs), current, batch.old_logprobs)
    sampler_logprobs = jnp.where(is_target, batch.sampler_logprobs, old_logprobs)
    objective, metrics = token_objective(
        new_logprobs, old_logprobs, sampler_logprobs, batch.advantages, settings, completions
    )
    loss = -objective
    metrics |= {"sampler_gap": jnp.abs(old_logprobs - sampler_logprobs)}
    if settings.kl_coefficient:
        # exp must not overflow at padding, because infinity times weight 0 is NaN.
        kl = token_kl(new_logprobs, jnp.where(is_target, batch.reference_logprobs, current))
        loss += settings.kl_coefficient * kl
        metrics |= {"kl": kl}
    counts = loss_weights = batch.counts
    if settings.aggregation == "sequence_mean":
        loss_weights = counts / completion_lengths(completions)
    return jnp.sum(loss * loss_weights), jax.tree.map(
        lambda value: jnp.sum(value * counts), metrics
    )


def loss_weight(batch: GrpoBatch, settings: GrpoConfig) -> jax.Array:
    """Return the divisor of a step's summed loss, float32 ().

    Depending on the settings, this is the number of target tokens, the number of trained
    completions, or (Dr. GRPO) the maximum number of tokens of all sampled completions. The batch of
    the whole step may have any leading axes.
    """
    groups = batch.groups
    if settings.aggregation == "constant_length":
        prompts = math.prod(groups.prompt_ids.shape[:-1])
        return jnp.float32(prompts * settings.completions * groups.completions.shape[-1])
    counts = batch.counts
    if settings.aggregation == "sequence_mean":
        counts = jnp.where(_run_starts(groups.completions), counts, 0)
    return jnp.maximum(counts.sum(), 1).astype(jnp.float32)


def completion_sums(values: jax.Array, completions: jax.Array) -> jax.Array:
    """Return, at each token, the sum of values over the tokens of its completion.

    The sums run along the rows, so that devices need no communication and the order of the
    additions is deterministic.

    Args:
        values: float32 (..., W).
        completions: int32 (..., W), index of each token's completion, -1 at padding. The tokens of
            a completion are contiguous.

    Returns:
        float32 (..., W).
    """

    def add(left: Any, right: Any) -> Any:
        (left_sum, left_starts), (right_sum, right_starts) = left, right
        total = jnp.where(right_starts, right_sum, left_sum + right_sum)
        return total, left_starts | right_starts

    starts, row_axis = _run_starts(completions), values.ndim - 1
    ends = jnp.roll(starts, -1, axis=-1).at[..., -1].set(True)
    prefix_sums, _ = jax.lax.associative_scan(add, (values, starts), axis=row_axis)
    suffix_sums, _ = jax.lax.associative_scan(add, (values, ends), axis=row_axis, reverse=True)
    return prefix_sums + suffix_sums - values


def completion_lengths(completions: jax.Array) -> jax.Array:
    """Return, at each token, the length of its completion, float32 (..., W)."""
    return completion_sums(jnp.ones(completions.shape, jnp.float32), completions)


def _run_starts(completions: jax.Array) -> jax.Array:
    """Return where a completion or padding begins in its row, bool (..., W)."""
    completions = jnp.asarray(completions)
    return (completions != jnp.roll(completions, 1, axis=-1)).at[..., 0].set(True)
