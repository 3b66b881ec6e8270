"""Supervised learning: cross-entropy on given completions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from training.learner.batching import Sequences
from training.learner.optimizer import Metrics
from training.policy.qwen3 import token_logprobs


def summed_loss(
    params: Any, batch: Sequences, *, graphdef: nnx.GraphDef
) -> tuple[jax.Array, Metrics]:
    """Return the negative log-likelihood of the target tokens, nats, summed, and no metrics."""
    model = nnx.merge(graphdef, params)
    logprobs = token_logprobs(model, batch.input_ids, batch.positions, batch.mask)
    return -jnp.sum(jnp.where(batch.targets, logprobs, 0.0)), {}
