"""Cross-entropy on given answers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from training.learning.learner import Metrics
from training.learning.packing import Sequences
from training.model.qwen3 import token_logprobs


def summed_loss(
    params: Any, batch: Sequences, *, graphdef: nnx.GraphDef
) -> tuple[jax.Array, Metrics]:
    """Negative log-likelihood of the target tokens, nats, summed over a micro-batch."""
    model = nnx.merge(graphdef, params)
    logprobs, _ = token_logprobs(model, batch.input_ids, batch.positions, batch.mask)
    return -jnp.sum(jnp.where(batch.targets, logprobs, 0.0)), {}
