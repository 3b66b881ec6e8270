"""Log-probabilities of tokens from hidden states, computed over chunks of positions.

Logits dominate memory: with a vocabulary of 151,936 they take 0.6 MB per position in float32. The
head therefore runs over chunks of positions, and again in the backward pass. The gradient of the
output embedding is summed over chunks in float32, because sums in bfloat16 lose small terms.

On a mesh each device processes its own sequences. It gathers the embedding and reduces its gradient
once, not once per chunk. Axis letters: B sequences, T positions, V vocabulary, D hidden_size.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from training.policy.kernels import matmul_precision

FSDP, TENSOR = "fsdp", "tensor"

HIDDEN, HEAD, TOKENS = PartitionSpec(FSDP), PartitionSpec(TENSOR, FSDP), PartitionSpec(FSDP)


def chunked_logprobs(
    hidden: jax.Array,
    head: jax.Array,
    targets: jax.Array,
    temperature: float | jax.Array,
    *,
    chunk: int,
    mesh: Mesh | None,
) -> jax.Array:
    """Return the log-probability of each target, float32 (B, T), nats.

    Args:
        hidden: States after the final norm, (B, T, D), in the dtype of the products.
        head: The output embedding, (V, D). Its gradient has the same dtype.
        targets: Token ids, int32 (B, T).
        temperature: Divisor of the logits. It gets no gradient.
        chunk: Number of positions per sequence whose logits exist at once.
        mesh: Mesh with the axes fsdp, which splits B and D, and tensor, which splits V. None uses
            one device.
    """
    if mesh is None and chunk >= targets.shape[1] and hidden.dtype == jnp.float32:
        # A single chunk can save its logits for the backward pass instead of recomputing them.
        return _target_logprobs(compute_logits(hidden, head) / temperature, targets, 0)
    temperature = jax.lax.stop_gradient(jnp.asarray(temperature, jnp.float32))
    return _chunked_logprobs(chunk, mesh, hidden, head, targets, temperature)


def compute_logits(hidden: jax.Array, head: jax.Array) -> jax.Array:
    """Return the logits, float32 (..., V), of states (..., D) under an embedding (V, D)."""
    with matmul_precision(hidden.dtype):
        return jnp.einsum(
            "...d,vd->...v", hidden, head.astype(hidden.dtype), preferred_element_type=jnp.float32
        )


def _target_logprobs(logits: jax.Array, tokens: jax.Array, first_id: jax.Array | int) -> jax.Array:
    return _target_logits(logits, tokens, first_id) - jax.nn.logsumexp(logits, axis=-1)


def _target_logits(logits: jax.Array, tokens: jax.Array, first_id: jax.Array | int) -> jax.Array:
    # A masked sum stays local if the vocabulary is split over devices; a gather would not.
    is_target = jnp.arange(logits.shape[-1]) + first_id == tokens[..., None]
    return jnp.sum(jnp.where(is_target, logits, 0), axis=-1)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _chunked_logprobs(
    chunk: int,
    mesh: Mesh | None,
    hidden: jax.Array,
    head: jax.Array,
    targets: jax.Array,
    temperature: jax.Array,
) -> jax.Array:
    return _forward(chunk, mesh, hidden, head, targets, temperature)[0]


def _forward(
    chunk: int,
    mesh: Mesh | None,
    hidden: jax.Array,
    head: jax.Array,
    targets: jax.Array,
    temperature: jax.Array,
) -> tuple[jax.Array, Any]:
    def compute(
        hidden: jax.Array, head: jax.Array, targets: jax.Array, temperature: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        head, first_id = _gather_head(head, hidden.dtype, mesh)

        def score(inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            states, tokens = inputs
            logits = compute_logits(states, head) / temperature
            total = jax.nn.logsumexp(logits, axis=-1)
            target_logits = _target_logits(logits, tokens, first_id)
            if _has_tensor_axis(mesh):
                total = jax.nn.logsumexp(jax.lax.all_gather(total, TENSOR), axis=0)
                target_logits = jax.lax.psum(target_logits, TENSOR)
            return target_logits - total, total

        scores, totals = jax.lax.map(
            score, (_split_chunks(hidden, chunk), _split_chunks(targets, chunk))
        )
        length = targets.shape[1]
        return _join_chunks(scores, length), _join_chunks(totals, length)

    specs = ((HIDDEN, HEAD, TOKENS, PartitionSpec()), (TOKENS, TOKENS))
    scores, totals = _map_over_mesh(mesh, compute, *specs)(hidden, head, targets, temperature)
    return scores, (hidden, head, targets, temperature, totals)


def _backward(
    chunk: int, mesh: Mesh | None, residuals: Any, d_scores: jax.Array
) -> tuple[Any, ...]:
    hidden, head, targets, temperature, totals = residuals
    param_dtype = head.dtype

    def compute(
        hidden: jax.Array,
        head: jax.Array,
        targets: jax.Array,
        temperature: jax.Array,
        totals: jax.Array,
        d_scores: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        head, first_id = _gather_head(head, hidden.dtype, mesh)
        float32_output: Any = {"preferred_element_type": jnp.float32}

        def add(gradient: jax.Array, inputs: Any) -> tuple[jax.Array, jax.Array]:
            states, tokens, total, d_scores = inputs
            logits = compute_logits(states, head) / temperature
            is_target = jnp.arange(logits.shape[-1]) + first_id == tokens[..., None]
            d_logits = (is_target - jnp.exp(logits - total[..., None])) * d_scores[..., None]
            d_logits = (d_logits / temperature).astype(states.dtype)
            with matmul_precision(states.dtype):
                d_hidden = jnp.einsum("btv,vd->btd", d_logits, head, **float32_output)
                gradient += jnp.einsum("btv,btd->vd", d_logits, states, **float32_output)
            return gradient, d_hidden if _has_tensor_axis(mesh) else d_hidden.astype(states.dtype)

        chunks = tuple(_split_chunks(array, chunk) for array in (hidden, targets, totals, d_scores))
        gradient, d_hidden = jax.lax.scan(add, jnp.zeros(head.shape, jnp.float32), chunks)
        d_hidden = _join_chunks(d_hidden, targets.shape[1])
        if _has_tensor_axis(mesh):
            d_hidden = jax.lax.psum(d_hidden, TENSOR).astype(hidden.dtype)
        if mesh is not None:
            gradient = jax.lax.psum_scatter(gradient, FSDP, scatter_dimension=1, tiled=True)
        return d_hidden, gradient.astype(param_dtype)

    specs = ((HIDDEN, HEAD, TOKENS, PartitionSpec(), TOKENS, TOKENS), (HIDDEN, HEAD))
    d_hidden, gradient = _map_over_mesh(mesh, compute, *specs)(
        hidden, head, targets, temperature, totals, d_scores
    )
    return d_hidden, gradient, None, jnp.zeros_like(temperature)


_chunked_logprobs.defvjp(_forward, _backward)


def _has_tensor_axis(mesh: Mesh | None) -> bool:
    return mesh is not None and mesh.shape[TENSOR] > 1


def _gather_head(
    head: jax.Array, dtype: Any, mesh: Mesh | None
) -> tuple[jax.Array, jax.Array | int]:
    """Return the embedding gathered over fsdp, and the token id of its first row."""
    head = head.astype(dtype)
    if mesh is None:
        return head, 0
    head = jax.lax.all_gather(head, FSDP, axis=1, tiled=True)
    return head, jax.lax.axis_index(TENSOR) * len(head)


def _map_over_mesh(mesh: Mesh | None, apply: Callable[..., Any], inputs: Any, outputs: Any) -> Any:
    """Map a function over the devices of a mesh; without a mesh return it unchanged."""
    if mesh is None:
        return apply
    return jax.shard_map(apply, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False)


def _split_chunks(array: jax.Array, chunk: int) -> jax.Array:
    """(B, T, ...) to (chunks, B, chunk, ...), padded with zeros at the end of T."""
    batch, length, *shape = array.shape
    count = math.ceil(length / chunk)
    array = jnp.pad(array, [(0, 0), (0, count * chunk - length)] + [(0, 0)] * len(shape))
    return jnp.moveaxis(array.reshape(batch, count, chunk, *shape), 1, 0)


def _join_chunks(chunks: jax.Array, length: int) -> jax.Array:
    """(chunks, B, chunk, ...) to (B, length, ...)."""
    count, batch, chunk, *shape = chunks.shape
    return jnp.moveaxis(chunks, 0, 1).reshape(batch, count * chunk, *shape)[:, :length]
