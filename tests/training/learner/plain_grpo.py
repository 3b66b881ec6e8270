"""The plain GRPO update: each completion is a sequence of its own, prompt included.

The independent reference of the update that shares prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from training.learner import grpo
from training.learner.batching import Sequences, pad_sequences
from training.learner.optimizer import Metrics
from training.schema import Grpo


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PlainBatch:
    """B prompts joined with one completion each, padded to L tokens."""

    sequences: Sequences  # targets are the completion tokens to learn from
    sampler_logprobs: Any  # float32 (B, L), nats
    old_logprobs: Any  # float32 (B, L), nats; NaN: those of the weights that are trained
    advantages: Any  # float32 (B,)


def plain_batch(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    learned: np.ndarray,
    logprobs: Sequence[np.ndarray],
    advantages: np.ndarray,
    *,
    bucket: int,
    pad_id: int,
) -> PlainBatch:
    """Pad P * n completions, of which `learned` and `advantages`, both (P, n), tell.

    `logprobs` are the sampler's, float32 (tokens,) per completion. Rows to learn from come first;
    the others have no targets.
    """
    repeated = [prompt for prompt in prompts for _ in range(learned.shape[1])]
    sequences = pad_sequences(repeated, completions, bucket=bucket, pad_id=pad_id)
    sampled = np.zeros(sequences.input_ids.shape, np.float32)
    sampled[sequences.targets] = np.concatenate(logprobs)
    sequences.targets[~learned.reshape(-1)] = False
    batch = PlainBatch(
        sequences, sampled, np.full_like(sampled, np.nan), np.float32(advantages).reshape(-1)
    )
    order = np.argsort(~learned.reshape(-1), kind="stable")
    return jax.tree.map(lambda leaf: leaf[order], batch)


def plain_summed_loss(
    params: Any, batch: PlainBatch, *, graphdef: nnx.GraphDef, settings: Grpo, temperature: float
) -> tuple[jax.Array, Metrics]:
    """Sum the negative objective, and the metrics, over the target tokens of a micro-batch."""
    tokens = batch.sequences
    new = grpo.logprobs(params, tokens, graphdef=graphdef, temperature=temperature)
    old = jnp.where(jnp.isnan(batch.old_logprobs), jax.lax.stop_gradient(new), batch.old_logprobs)
    sampler = jnp.where(tokens.targets, batch.sampler_logprobs, old)
    advantages = batch.advantages[:, None]
    objective, metrics = grpo.token_objective(new, old, sampler, advantages, settings)
    metrics |= {"sampler_gap": jnp.abs(old - sampler)}
    on_targets = tokens.targets.astype(jnp.float32)
    return jax.tree.map(lambda value: jnp.sum(value * on_targets), (-objective, metrics))
