"""Group Relative Policy Optimization (GRPO): its advantages and its loss.

Shao et al. 2024 (DeepSeekMath), eq. 3; Liu et al. 2025 (Dr. GRPO); Yu et al. 2025 (DAPO); Zheng et
al. 2025 (GSPO). Truncated importance weights between engine and trainer: Yao et al. 2025.
"""

from __future__ import annotations

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

    Completions of a prompt that are equal in all of this are computed once: one of them is in the
    rows, and what it adds to sums counts as often as there are `copies`.
    """

    groups: PackedGroups  # the completions to learn from, in B bundles
    sampler_logprobs: Any  # float32 (B, R, W), under the engine's weights as it drew the tokens
    old_logprobs: Any  # float32 (B, R, W)
    advantages: Any  # float32 (B, R, W), of each token's completion
    reference_logprobs: Any = None  # float32 (B, R, W), if the loss has a KL divergence
    copies: Any = None  # float32 (B, R, W), completions that a target stands for; None: one each

    @property
    def counts(self) -> Any:
        """How often each token counts: float32 (B, R, W), 0 at padding."""
        return self.groups.targets.astype(np.float32) if self.copies is None else self.copies


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
    new: jax.Array,
    old: jax.Array,
    sampler: jax.Array,
    advantages: jax.Array,
    settings: Grpo,
    completions: jax.Array | None = None,
) -> tuple[jax.Array, Metrics]:
    """Compute the clipped surrogate objective of each token, which is to be maximised.

    `new`, float32 of any shape, holds log-probabilities under the weights being trained, nats;
    `old`, `sampler` and `advantages` are as in `GrpoBatch`. Returns float32 of this shape, and
    metrics per token of the same shape. With `settings.ratio` `sequence` each token has the ratio
    of its completion, the geometric mean of its tokens' (GSPO); then `completions` are needed, as
    in `PackedGroups`.
    """
    log_ratio = new - old
    if settings.ratio == "sequence":
        assert completions is not None
        log_ratio = completion_sums(log_ratio, completions) / completion_lengths(completions)
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - settings.clip_low, 1 + settings.clip_high)
    surrogate = jnp.minimum(ratio * advantages, clipped * advantages)
    importance = jnp.exp(old - sampler)
    weight = jax.lax.stop_gradient(jnp.minimum(importance, settings.importance_cap))
    return weight * surrogate, {
        "clip_share": (clipped * advantages < ratio * advantages).astype(jnp.float32),
        "importance_ratio_mean": jax.lax.stop_gradient(importance),
    }


def token_kl(new: jax.Array, reference: jax.Array) -> jax.Array:
    """Estimate each token's KL divergence from the reference, nats, float32 of the same shape.

    That is k3 of Schulman 2020 ("Approximating KL Divergence"): r - 1 - log r, with r the reference
    probability over the one under the weights being trained. It is never below 0, and without bias
    for tokens that these weights have drawn.
    """
    gap = reference - new
    return jnp.exp(gap) - gap - 1


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
    """Sum the loss, and the metrics, over the target tokens of a micro-batch."""
    new = group_logprobs(params, batch.groups, graphdef=graphdef, temperature=temperature)
    return summed_loss_of(new, batch, settings)


def summed_loss_of(new: jax.Array, batch: GrpoBatch, settings: Grpo) -> tuple[jax.Array, Metrics]:
    """Sum loss and metrics, given the target tokens' log-probabilities: float32 (B, R, W), nats.

    The sum of the loss is to be divided by `loss_weight` of the whole step, and the sums of the
    metrics by the number of its target tokens.
    """
    targets, completions = batch.groups.targets, batch.groups.completions
    own = jax.lax.stop_gradient(new)
    old = jnp.where(jnp.isnan(batch.old_logprobs), own, batch.old_logprobs)
    sampler = jnp.where(targets, batch.sampler_logprobs, old)
    objective, metrics = token_objective(new, old, sampler, batch.advantages, settings, completions)
    loss = -objective
    metrics |= {"sampler_gap": jnp.abs(old - sampler)}
    if settings.kl_coefficient:
        # Padding, where nothing is known, must not overflow: infinity times 0 is NaN.
        kl = token_kl(new, jnp.where(targets, batch.reference_logprobs, own))
        loss += settings.kl_coefficient * kl
        metrics |= {"kl": kl}
    counts = in_loss = batch.counts
    if settings.aggregation == "sequence_mean":
        in_loss = counts / completion_lengths(completions)
    return jnp.sum(loss * in_loss), jax.tree.map(lambda value: jnp.sum(value * counts), metrics)


def loss_weight(batch: GrpoBatch, settings: Grpo) -> jax.Array:
    """Return what the summed loss of a step is divided by, float32 ().

    The batch is that of the whole step, whatever its leading axes. It is the number of target
    tokens, of completions to learn from, or (Dr. GRPO) the number of tokens that all completions of
    the step may have, also those that are left out: a constant.
    """
    groups = batch.groups
    if settings.aggregation == "constant_length":
        prompts = math.prod(groups.prompt_ids.shape[:-1])
        return jnp.float32(prompts * settings.completions * groups.completions.shape[-1])
    counts = batch.counts
    if settings.aggregation == "sequence_mean":
        counts = jnp.where(_starts(groups.completions), counts, 0)
    return jnp.maximum(counts.sum(), 1).astype(jnp.float32)


def completion_sums(values: jax.Array, completions: jax.Array) -> jax.Array:
    """Sum values over the tokens of each completion: at each of its tokens, float32 (..., W).

    `values` are float32 (..., W), and `completions`, int32 (..., W), number the completion of each
    token, -1 at padding: tokens of one stand side by side. Both sums run along the row, so that
    devices that share rows exchange nothing, and the order of the additions is always the same.
    """

    def add(left: Any, right: Any) -> Any:
        (before, started), (value, starts) = left, right
        return jnp.where(starts, value, before + value), started | starts

    starts, row = _starts(completions), values.ndim - 1
    ends = jnp.roll(starts, -1, axis=-1).at[..., -1].set(True)
    up_to, _ = jax.lax.associative_scan(add, (values, starts), axis=row)
    onwards, _ = jax.lax.associative_scan(add, (values, ends), axis=row, reverse=True)
    return up_to + onwards - values


def completion_lengths(completions: jax.Array) -> jax.Array:
    """Count the tokens of each completion, at each of its tokens: float32 (..., W)."""
    return completion_sums(jnp.ones(completions.shape, jnp.float32), completions)


def _starts(completions: jax.Array) -> jax.Array:
    """Say where a completion, or padding, begins in its row: bool (..., W)."""
    completions = jnp.asarray(completions)
    return (completions != jnp.roll(completions, 1, axis=-1)).at[..., 0].set(True)
