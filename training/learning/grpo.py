"""Group Relative Policy Optimization, on one page.

Advantages: Shao et al. 2024 (DeepSeekMath), eq. 3; without the division by the standard deviation,
Liu et al. 2025 (Dr. GRPO). Token-mean loss and the asymmetric clip: Yu et al. 2025 (DAPO). The
truncated importance weight corrects for what separates vLLM's probabilities from the trainer's:
Yao et al. 2025 ("Your efficient RL framework secretly brings you off-policy RL training").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from training.config import Grpo
from training.learning.learner import Metrics
from training.learning.packing import Sequences
from training.model.qwen3 import token_logprobs


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GrpoBatch:
    """Completions with what is known of them. B sequences of L tokens.

    Attributes:
      sequences: prompts and completions; targets are the completion tokens to learn from.
      sampler_logprobs: float32 (B, L), nats, as vLLM drew the tokens.
      old_logprobs: float32 (B, L), nats, by the trainer's weights before the update; all nan
        where the update is one step, which then takes its own.
      advantages: float32 (B,).
    """

    sequences: Sequences
    sampler_logprobs: Any
    old_logprobs: Any
    advantages: Any


def group_advantages(rewards: np.ndarray, *, divide_by_std: bool) -> np.ndarray:
    """How much better than its group each completion did.

    Args:
      rewards: float32 (prompts, completions).
    Returns: float32 (prompts, completions); zero throughout a group whose rewards are all equal.
    """
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    if not divide_by_std:
        return centred
    deviation = rewards.std(axis=1, keepdims=True)
    return np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 1e-6)


def token_objective(
    new: jax.Array,
    old: jax.Array,
    sampler: jax.Array,
    advantages: jax.Array,
    settings: Grpo,
) -> tuple[jax.Array, Metrics]:
    """The clipped surrogate of each token, to be maximised.

    Args:
      new, old, sampler: float32 (B, L), log-probabilities in nats under the weights being
        trained, the trainer's weights that sampled, and vLLM.
      advantages: float32 (B,).
    Returns: float32 (B, L), and per-token metrics of the same shape.
    """
    ratio = jnp.exp(new - old)
    clipped = jnp.clip(ratio, 1 - settings.clip_low, 1 + settings.clip_high)
    advantage = advantages[:, None]
    surrogate = jnp.minimum(ratio * advantage, clipped * advantage)
    importance = jnp.exp(old - sampler)
    weight = jax.lax.stop_gradient(jnp.minimum(importance, settings.importance_cap))
    return weight * surrogate, {
        "clip_share": (clipped * advantage < ratio * advantage).astype(jnp.float32),
        "importance_ratio_mean": jax.lax.stop_gradient(importance),
    }


def logprobs(
    params: Any, sequences: Sequences, *, graphdef: nnx.GraphDef, temperature: float
) -> jax.Array:
    """Log-probability of each token given those before it: float32 (B, L), nats."""
    return token_logprobs(
        nnx.merge(graphdef, params),
        sequences.input_ids,
        sequences.positions,
        sequences.mask,
        temperature=temperature,
    )[0]


def summed_loss(
    params: Any,
    batch: GrpoBatch,
    *,
    graphdef: nnx.GraphDef,
    settings: Grpo,
    temperature: float,
) -> tuple[jax.Array, Metrics]:
    """Minus the objective, and the metrics, summed over the target tokens of a micro-batch."""
    tokens = batch.sequences
    new = logprobs(params, tokens, graphdef=graphdef, temperature=temperature)
    old = jnp.where(jnp.isnan(batch.old_logprobs), jax.lax.stop_gradient(new), batch.old_logprobs)
    sampler = jnp.where(tokens.targets, batch.sampler_logprobs, old)
    objective, metrics = token_objective(new, old, sampler, batch.advantages, settings)
    metrics |= {"sampler_gap": jnp.abs(old - sampler)}
    on_targets = tokens.targets.astype(jnp.float32)
    return jax.tree.map(lambda value: jnp.sum(value * on_targets), (-objective, metrics))
