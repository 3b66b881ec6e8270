"""Log-probabilities of tokens under a decoder, with bounded memory for logits."""

import jax
import jax.numpy as jnp

from training.policy.decoder import Decoder
from training.policy.head import chunked_logprobs
from training.policy.kernels import TRITON
from training.policy.parameters import SHARDING_RULES

# Memory for float32 logits per device if `token_logprobs` chooses the chunk size. Each chunk reads
# and writes the float32 gradient of the whole output embedding. On GPUs, this traffic is negligible
# for chunks of 1,000 or more positions.
LOGITS_BYTES = 256 * 2**20
KERNEL_LOGITS_BYTES = 2**30


def token_logprobs(
    model: Decoder,
    input_ids: jax.Array,
    positions: jax.Array,
    mask: jax.Array,
    *,
    temperature: float | jax.Array = 1.0,
    chunk: int | None = None,
) -> jax.Array:
    """Return the log-probability of each token given the tokens before it.

    The head runs over `chunk` positions at a time, and again in the backward pass, so that at most
    B * chunk * V float32 logits exist at once.

    Args:
        model: The decoder.
        input_ids: int32 (B, L), see `Decoder.__call__`.
        positions: int32 (B, L), see `Decoder.__call__`.
        mask: bool (B, L), see `Decoder.__call__`.
        temperature: Divisor of the logits, above 0.
        chunk: Number of positions per chunk. None chooses the largest chunk whose logits fit in
            `LOGITS_BYTES` per device, or in `KERNEL_LOGITS_BYTES` if attention is a kernel.

    Returns:
        Log-probabilities in nats, float32 (B, L); 0 at padding and at the first token of each
        sequence.

    Raises:
        ValueError: `temperature` or `chunk` is out of range.
    """
    hidden = model(input_ids, positions, mask)[:, :-1]  # the state before each target
    logprobs = target_logprobs(
        model, hidden, input_ids[:, 1:], temperature=temperature, chunk=chunk
    )
    target_mask = mask[:, 1:] & mask[:, :-1]
    return jnp.pad(jnp.where(target_mask, logprobs, 0), ((0, 0), (1, 0)))


def target_logprobs(
    model: Decoder,
    hidden: jax.Array,
    targets: jax.Array,
    *,
    temperature: float | jax.Array = 1.0,
    chunk: int | None = None,
) -> jax.Array:
    """Return the log-probability of each target token given a hidden state.

    Args:
        model: The decoder.
        hidden: States after the final norm, (B, L, D).
        targets: Token ids, int32 (B, L).
        temperature: Divisor of the logits, above 0.
        chunk: See `token_logprobs`.

    Returns:
        Log-probabilities in nats, float32 (B, L).

    Raises:
        ValueError: `temperature` or `chunk` is out of range.
    """
    if isinstance(temperature, int | float) and not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature!r}")
    if chunk is None:
        batch, vocabulary = len(targets), model.config.vocab_size
        if model.mesh is not None:  # sizes per device
            batch = max(1, batch // model.mesh.shape[SHARDING_RULES["batch"]])
            vocabulary //= model.mesh.shape[SHARDING_RULES["vocab"]]
        max_bytes = KERNEL_LOGITS_BYTES if model.attention == TRITON else LOGITS_BYTES
        chunk = max(1, max_bytes // (4 * batch * vocabulary))
    elif chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    chunk = min(chunk, targets.shape[1])
    return chunked_logprobs(
        hidden, model.head(), targets, temperature, chunk=chunk, mesh=model.mesh
    )
