"""Attention over plain sequences, over rows that share prompts, and one token at a time.

Axis letters: B sequences or bundles, L tokens of each, H query heads, K key/value heads, hd
head_dim; in a bundle G prompts of P tokens and R rows of W tokens.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from training.policy.blockwise import ALL_QUERIES, NO_QUERY, blockwise_attention
from training.policy.kernels import (
    AttentionImplementation,
    PlainAttention,
    kernel_attention,
    segment_starts,
)

BLOCKWISE_ABOVE = 1024
"""Number of keys per query above which scores are computed block by block."""

_DEFAULT_IMPLEMENTATION = AttentionImplementation()

# (queries, keys, values, layer index, memory) -> (attention output, updated memory)
Attention: TypeAlias = Callable[
    [jax.Array, jax.Array, jax.Array, jax.Array, Any], tuple[jax.Array, Any]
]
# keys and values of N layers, each (N, B, K, L, hd)
KeyValueCache: TypeAlias = tuple[jax.Array, jax.Array]


def stateless_attention(attend: PlainAttention) -> Attention:
    """Adapt an attention without memory to the interface with memory."""

    def attention(
        query: jax.Array, key: jax.Array, value: jax.Array, layer: jax.Array, memory: Any
    ) -> tuple[jax.Array, Any]:
        return attend(query, key, value), memory

    return attention


def prefill_attention(mask: jax.Array) -> Attention:
    """Attend as `causal_attention` does, and write keys and values to the start of the memory."""
    attend = causal_attention(mask)

    def attention(
        query: jax.Array, key: jax.Array, value: jax.Array, layer: jax.Array, memory: KeyValueCache
    ) -> tuple[jax.Array, KeyValueCache]:
        return attend(query, key, value), _update_cache(memory, layer, 0, (key, value))

    return attention


def decode_attention(prompts: KeyValueCache, mask: jax.Array, step: jax.Array) -> Attention:
    """Let one token of each of B * n sequences attend to its prompt and to earlier tokens.

    Args:
        prompts: Keys and values of the B prompts. The n sequences of a prompt are adjacent.
        mask: bool (B, P), True on the tokens of the prompts.
        step: int32 (), index of the token in its sequence.

    Returns:
        An attention whose memory holds the keys and values of the B * n sequences.
    """
    batch = len(mask)

    def attention(
        query: jax.Array, key: jax.Array, value: jax.Array, layer: jax.Array, memory: KeyValueCache
    ) -> tuple[jax.Array, KeyValueCache]:
        rows, _, heads, width = query.shape
        memory = _update_cache(memory, layer, step, (key, value))
        key_heads, length = memory[0].shape[2:4]
        query = query.reshape(batch, -1, key_heads, heads // key_heads, width)
        own = [part[layer].reshape(batch, -1, *part.shape[2:]) for part in memory]
        shared = [part[layer] for part in prompts]
        exact: Any = {"preferred_element_type": jnp.float32}
        scores = jnp.concatenate(
            [
                jnp.where(
                    mask[:, None, None, None],
                    jnp.einsum("bnkgh,bkph->bnkgp", query, shared[0], **exact),
                    -jnp.inf,
                ),
                jnp.where(
                    jnp.arange(length) <= step,
                    jnp.einsum("bnkgh,bnkth->bnkgt", query, own[0], **exact),
                    -jnp.inf,
                ),
            ],
            axis=-1,
        )
        weights = jax.nn.softmax(scores * width**-0.5, axis=-1).astype(value.dtype)
        of_prompt, of_own = jnp.split(weights, [mask.shape[1]], axis=-1)
        attended = jnp.einsum("bnkgp,bkph->bnkgh", of_prompt, shared[1], **exact)
        attended += jnp.einsum("bnkgt,bnkth->bnkgh", of_own, own[1], **exact)
        return attended.astype(value.dtype).reshape(rows, 1, heads, width), memory

    return attention


def _update_cache(
    memory: KeyValueCache, layer: jax.Array, step: jax.Array | int, new: KeyValueCache
) -> KeyValueCache:
    """Write keys and values of a layer, each (B, L, K, hd), to the memory from index `step` on."""
    keys, values = (
        jax.lax.dynamic_update_slice(
            part, jnp.moveaxis(fresh, 1, 2)[None].astype(part.dtype), (layer, 0, 0, step, 0)
        )
        for part, fresh in zip(memory, new, strict=True)
    )
    return keys, values


def causal_attention(
    mask: jax.Array, implementation: AttentionImplementation = _DEFAULT_IMPLEMENTATION
) -> PlainAttention:
    """Let each token attend to itself and earlier tokens where `mask`, bool (B, L), is True."""
    length = mask.shape[-1]
    if implementation.uses_kernel(length):
        return kernel_attention(implementation, jnp.zeros(mask.shape, jnp.int32), mask, 0)
    if implementation.is_blockwise(length, BLOCKWISE_ABOVE):
        return partial(
            blockwise_attention,
            query_segments=jnp.zeros(mask.shape, jnp.int32),
            key_segments=jnp.where(mask, 0, NO_QUERY),
        )
    causal = jnp.tril(jnp.ones((length, length), bool))
    allowed = causal & mask[:, None, None, :]  # (B, 1, L, L)
    return partial(jax.nn.dot_product_attention, mask=allowed)


def shared_prompt_attention(
    prompt_mask: jax.Array,
    row_prompts: jax.Array,
    segments: jax.Array,
    implementation: AttentionImplementation = _DEFAULT_IMPLEMENTATION,
) -> PlainAttention:
    """Let prompts attend to themselves, and each row's tokens to its prompt and own segment.

    A bundle has L = G * P + R * W tokens: first its prompts, then its rows.

    Args:
        prompt_mask: bool (B, G, P), True on the tokens of the prompts.
        row_prompts: int32 (B, R), index of the prompt, 0 to G - 1, that each row continues.
        segments: int32 (B, R, W), number of each token's sequence in its row. A token attends to
            itself and to earlier tokens with its number. The tokens of a sequence are contiguous.
        implementation: AttentionImplementation of attention.

    Returns:
        An attention over bundles, (B, L, heads, hd).
    """
    bundles, prompts, length = prompt_mask.shape
    _, rows, width = segments.shape
    attend_prompts = causal_attention(
        prompt_mask.reshape(bundles * prompts, length), implementation
    )
    attend_rows = _row_attention(
        _gather_row_prompts(prompt_mask, row_prompts), segments, implementation
    )

    def split(tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(B, L, heads, hd) to (B, G, P, heads, hd) and (B, R, W, heads, hd)."""
        of_prompts, of_rows = jnp.split(tokens, [prompts * length], axis=1)
        heads = tokens.shape[2:]
        return (
            of_prompts.reshape(bundles, prompts, length, *heads),
            of_rows.reshape(bundles, rows, width, *heads),
        )

    def attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        (prompt_query, row_query), pairs = split(query), (split(key), split(value))
        of_prompts = attend_prompts(*map(_merge_bundles, (prompt_query, pairs[0][0], pairs[1][0])))
        # Concatenate the keys of a row and of its prompt, so that one softmax covers both.
        key, value = (
            jnp.concatenate([_gather_row_prompts(of_prompt, row_prompts), of_row], axis=2)
            for of_prompt, of_row in pairs
        )
        of_rows = attend_rows(_merge_bundles(row_query), _merge_bundles(key), _merge_bundles(value))
        heads = query.shape[2:]
        parts = [part.reshape(bundles, -1, *heads) for part in (of_prompts, of_rows)]
        return jnp.concatenate(parts, axis=1)

    return attend


def _row_attention(
    prompt_mask: jax.Array, segments: jax.Array, implementation: AttentionImplementation
) -> PlainAttention:
    """Let rows attend to their prompt's keys, which come first, and to their own segment."""
    bundles, rows, width = segments.shape
    length = prompt_mask.shape[-1]
    if implementation.uses_kernel(length + width):
        own = segments.reshape(bundles * rows, width)
        of_prompt = prompt_mask.reshape(bundles * rows, length)
        visible = jnp.concatenate([of_prompt, jnp.ones(own.shape, bool)], axis=1)
        return kernel_attention(implementation, segment_starts(own), visible, length)
    if implementation.is_blockwise(length + width, BLOCKWISE_ABOVE):
        of_prompt, of_row = (
            part.reshape(bundles * rows, -1)
            for part in (jnp.where(prompt_mask, ALL_QUERIES, NO_QUERY), segments)
        )
        return partial(
            blockwise_attention,
            query_segments=of_row,
            key_segments=jnp.concatenate([of_prompt, of_row], axis=1),
            prefix=length,
        )
    to_prompt = jnp.broadcast_to(prompt_mask[:, :, None], (bundles, rows, width, length))
    causal = jnp.tril(jnp.ones((width, width), bool))
    to_row = causal & (segments[..., :, None] == segments[..., None, :])  # (B, R, W, W)
    allowed = jnp.concatenate([to_prompt, to_row], axis=-1)
    allowed = allowed.reshape(bundles * rows, 1, width, length + width)
    return partial(jax.nn.dot_product_attention, mask=allowed)


def _gather_row_prompts(prompts: jax.Array, row_prompts: jax.Array) -> jax.Array:
    """Gather the values of each row's prompt: (B, G, ...) to (B, R, ...)."""
    index = row_prompts.reshape(*row_prompts.shape, *[1] * (prompts.ndim - 2))
    return jnp.take_along_axis(prompts, index, axis=1)


def _merge_bundles(tokens: jax.Array) -> jax.Array:
    """(B, G, P, heads, hd) to (B * G, P, heads, hd)."""
    return tokens.reshape(-1, *tokens.shape[2:])
