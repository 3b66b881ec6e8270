"""Attention over plain sequences, over rows that share prompts, and one token at a time.

A bundle consists of several prompts and of rows of packed sequences that continue these prompts.
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
    AttentionFunction,
    AttentionImplementation,
    make_kernel_attention,
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


def adapt_attention(attend: AttentionFunction) -> Attention:
    """Adapt an attention function to the interface with memory."""

    def attention(
        query: jax.Array, key: jax.Array, value: jax.Array, layer: jax.Array, memory: Any
    ) -> tuple[jax.Array, Any]:
        return attend(query, key, value), memory

    return attention


def make_prefill_attention(mask: jax.Array) -> Attention:
    """Attend causally, and write keys and values to the start of the memory."""
    attend = make_causal_attention(mask)

    def attention(
        query: jax.Array, key: jax.Array, value: jax.Array, layer: jax.Array, memory: KeyValueCache
    ) -> tuple[jax.Array, KeyValueCache]:
        return attend(query, key, value), _update_cache(memory, layer, 0, (key, value))

    return attention


def make_decode_attention(prompts: KeyValueCache, mask: jax.Array, step: jax.Array) -> Attention:
    """Let a token of each of B * n sequences attend to its prompt and to the tokens up to itself.

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
        keys, values = (array[layer].reshape(batch, -1, *array.shape[2:]) for array in memory)
        prompt_keys, prompt_values = (array[layer] for array in prompts)
        float32_output: Any = {"preferred_element_type": jnp.float32}
        scores = jnp.concatenate(
            [
                jnp.where(
                    mask[:, None, None, None],
                    jnp.einsum("bnkgh,bkph->bnkgp", query, prompt_keys, **float32_output),
                    -jnp.inf,
                ),
                jnp.where(
                    jnp.arange(length) <= step,
                    jnp.einsum("bnkgh,bnkth->bnkgt", query, keys, **float32_output),
                    -jnp.inf,
                ),
            ],
            axis=-1,
        )
        weights = jax.nn.softmax(scores * width**-0.5, axis=-1).astype(value.dtype)
        prompt_weights, weights = jnp.split(weights, [mask.shape[1]], axis=-1)
        output = jnp.einsum("bnkgp,bkph->bnkgh", prompt_weights, prompt_values, **float32_output)
        output += jnp.einsum("bnkgt,bnkth->bnkgh", weights, values, **float32_output)
        return output.astype(value.dtype).reshape(rows, 1, heads, width), memory

    return attention


def _update_cache(
    memory: KeyValueCache, layer: jax.Array, step: jax.Array | int, updates: KeyValueCache
) -> KeyValueCache:
    """Write keys and values of a layer, each (B, L, K, hd), to the memory from index `step` on."""
    keys, values = (
        jax.lax.dynamic_update_slice(
            cache, jnp.moveaxis(update, 1, 2)[None].astype(cache.dtype), (layer, 0, 0, step, 0)
        )
        for cache, update in zip(memory, updates, strict=True)
    )
    return keys, values


def make_causal_attention(
    mask: jax.Array, implementation: AttentionImplementation = _DEFAULT_IMPLEMENTATION
) -> AttentionFunction:
    """Let each token attend to itself and earlier tokens where `mask`, bool (B, L), is True."""
    length = mask.shape[-1]
    if implementation.uses_kernel(length):
        return make_kernel_attention(implementation, jnp.zeros(mask.shape, jnp.int32), mask, 0)
    if implementation.is_blockwise(length, BLOCKWISE_ABOVE):
        return partial(
            blockwise_attention,
            query_segments=jnp.zeros(mask.shape, jnp.int32),
            key_segments=jnp.where(mask, 0, NO_QUERY),
        )
    causal_mask = jnp.tril(jnp.ones((length, length), bool))
    attention_mask = causal_mask & mask[:, None, None, :]  # (B, 1, L, L)
    return partial(jax.nn.dot_product_attention, mask=attention_mask)


def make_shared_prompt_attention(
    prompt_mask: jax.Array,
    row_prompts: jax.Array,
    segments: jax.Array,
    implementation: AttentionImplementation = _DEFAULT_IMPLEMENTATION,
) -> AttentionFunction:
    """Let prompts attend to themselves, and each row's tokens to their prompt and sequence.

    A bundle has L = G * P + R * W tokens: first its prompts, then its rows.

    Args:
        prompt_mask: bool (B, G, P), True on the tokens of the prompts.
        row_prompts: int32 (B, R), index of the prompt, 0 to G - 1, that each row continues.
        segments: int32 (B, R, W), number of each token's sequence in its row. A token attends to
            itself and to earlier tokens with its number. The tokens of a sequence are contiguous.
        implementation: Kind of attention and its mesh.

    Returns:
        An attention over bundles, (B, L, heads, hd).
    """
    bundles, prompts, length = prompt_mask.shape
    _, rows, width = segments.shape
    attend_prompts = make_causal_attention(
        prompt_mask.reshape(bundles * prompts, length), implementation
    )
    attend_rows = _make_row_attention(
        _gather_row_prompts(prompt_mask, row_prompts), segments, implementation
    )

    def split(tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(B, L, heads, hd) to (B, G, P, heads, hd) and (B, R, W, heads, hd)."""
        prompt_tokens, row_tokens = jnp.split(tokens, [prompts * length], axis=1)
        heads = tokens.shape[2:]
        return (
            prompt_tokens.reshape(bundles, prompts, length, *heads),
            row_tokens.reshape(bundles, rows, width, *heads),
        )

    def attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        (prompt_query, row_query), pairs = split(query), (split(key), split(value))
        prompt_output = attend_prompts(
            *map(_merge_bundles, (prompt_query, pairs[0][0], pairs[1][0]))
        )
        # Concatenate the keys of a row and of its prompt, so that one softmax covers both.
        key, value = (
            jnp.concatenate([_gather_row_prompts(prompt_tokens, row_prompts), row_tokens], axis=2)
            for prompt_tokens, row_tokens in pairs
        )
        row_output = attend_rows(*map(_merge_bundles, (row_query, key, value)))
        heads = query.shape[2:]
        outputs = [output.reshape(bundles, -1, *heads) for output in (prompt_output, row_output)]
        return jnp.concatenate(outputs, axis=1)

    return attend


def _make_row_attention(
    prompt_mask: jax.Array, segments: jax.Array, implementation: AttentionImplementation
) -> AttentionFunction:
    """Let tokens attend to their row's prompt, whose keys come first, and to their segment."""
    bundles, rows, width = segments.shape
    length = prompt_mask.shape[-1]
    if implementation.uses_kernel(length + width):
        row_segments = segments.reshape(bundles * rows, width)
        row_mask = prompt_mask.reshape(bundles * rows, length)
        visible = jnp.concatenate([row_mask, jnp.ones(row_segments.shape, bool)], axis=1)
        return make_kernel_attention(implementation, segment_starts(row_segments), visible, length)
    if implementation.is_blockwise(length + width, BLOCKWISE_ABOVE):
        prompt_segments, row_segments = (
            array.reshape(bundles * rows, -1)
            for array in (jnp.where(prompt_mask, ALL_QUERIES, NO_QUERY), segments)
        )
        return partial(
            blockwise_attention,
            query_segments=row_segments,
            key_segments=jnp.concatenate([prompt_segments, row_segments], axis=1),
            prefix=length,
        )
    prompt_allowed = jnp.broadcast_to(prompt_mask[:, :, None], (bundles, rows, width, length))
    causal_mask = jnp.tril(jnp.ones((width, width), bool))
    row_allowed = causal_mask & (segments[..., :, None] == segments[..., None, :])  # (B, R, W, W)
    attention_mask = jnp.concatenate([prompt_allowed, row_allowed], axis=-1)
    attention_mask = attention_mask.reshape(bundles * rows, 1, width, length + width)
    return partial(jax.nn.dot_product_attention, mask=attention_mask)


def _gather_row_prompts(prompts: jax.Array, row_prompts: jax.Array) -> jax.Array:
    """Gather the values of each row's prompt: (B, G, ...) to (B, R, ...)."""
    indices = row_prompts.reshape(*row_prompts.shape, *[1] * (prompts.ndim - 2))
    return jnp.take_along_axis(prompts, indices, axis=1)


def _merge_bundles(tokens: jax.Array) -> jax.Array:
    """(B, G, P, heads, hd) to (B * G, P, heads, hd)."""
    return tokens.reshape(-1, *tokens.shape[2:])
