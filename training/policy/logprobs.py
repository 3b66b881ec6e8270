"""Log-probabilities of tokens under a decoder, with as few logits at once as fit."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from training.policy.decoder import Decoder
from training.policy.head import target_scores
from training.policy.kernels import TRITON
from training.policy.parameters import SHARDING_RULES

# Float32 logits on each device at once when `token_logprobs` chooses the chunk itself. Each chunk
# adds to a float32 gradient of the whole output embedding; on devices with kernels the products of
# 1,000 positions and more take longer than these bytes.
LOGITS_BYTES = 256 * 2**20
LOGITS_BYTES_BESIDE_KERNELS = 2**30


def token_logprobs(
    model: Decoder,
    input_ids: jax.Array,
    positions: jax.Array,
    mask: jax.Array,
    *,
    temperature: float | jax.Array = 1.0,
    chunk: int | None = None,
) -> jax.Array:
    """Return the log-probability of every token given what stands before it.

    `input_ids`, `positions` and `mask`, all (B, L), are as for `Decoder.__call__`; `temperature`
    divides the logits. The head runs over `chunk` positions at a time and runs again in the
    backward pass, so that no more than B * chunk * V float32 logits exist at once. None chooses the
    largest chunk that keeps each device's within `LOGITS_BYTES`, or within
    `LOGITS_BYTES_BESIDE_KERNELS` where attention is a kernel.

    The result is float32 (B, L), natural logarithm. It is 0 at padding, and at the first token of a
    sequence, before which nothing stands.

    Raises:
        ValueError: `temperature` or `chunk` is out of range.
    """
    hidden = model(input_ids, positions, mask)[:, :-1]  # the state before each target
    logprobs = target_logprobs(
        model, hidden, input_ids[:, 1:], temperature=temperature, chunk=chunk
    )
    wanted = mask[:, 1:] & mask[:, :-1]
    return jnp.pad(jnp.where(wanted, logprobs, 0), ((0, 0), (1, 0)))


def target_logprobs(
    model: Decoder,
    hidden: jax.Array,
    targets: jax.Array,
    *,
    temperature: float | jax.Array = 1.0,
    chunk: int | None = None,
) -> jax.Array:
    """Return the log-probability, float32 (B, L), that each state gives to its target token.

    `hidden`, (B, L, D), are states after the final norm and `targets`, int32 (B, L), token ids;
    `temperature`, `chunk` and the errors are as for `token_logprobs`.
    """
    if isinstance(temperature, int | float) and not temperature > 0:
        raise ValueError(f"temperature is {temperature!r}; allowed is a number above 0")
    if chunk is None:
        batch, vocabulary = len(targets), model.config.vocab_size
        if model.mesh is not None:  # what one device has of both
            batch = max(1, batch // model.mesh.shape[SHARDING_RULES["batch"]])
            vocabulary //= model.mesh.shape[SHARDING_RULES["vocab"]]
        room = LOGITS_BYTES_BESIDE_KERNELS if model.attention == TRITON else LOGITS_BYTES
        chunk = max(1, room // (4 * batch * vocabulary))
    elif chunk < 1:
        raise ValueError(f"chunk is {chunk}; allowed is an integer of at least 1")
    chunk = min(chunk, targets.shape[1])
    return target_scores(hidden, model.head(), targets, temperature, chunk=chunk, mesh=model.mesh)
