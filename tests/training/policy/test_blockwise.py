"""Blockwise attention against plain attention: outputs and all gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from training.policy import attention, blockwise
from training.policy.blockwise import blockwise_attention

NUM_HEADS, NUM_KEY_HEADS, HEAD_DIM = 4, 2, 8
NUM_GROUPS, PROMPT_LENGTH, NUM_ROWS, ROW_LENGTH = 2, 7, 3, 11


def make_inputs(length: int, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(0), 4)
    head_counts = (NUM_HEADS, NUM_KEY_HEADS, NUM_KEY_HEADS, NUM_HEADS)
    return tuple(
        (2 * jax.random.normal(key, (2, length, num_heads, HEAD_DIM))).astype(dtype)
        for key, num_heads in zip(keys, head_counts, strict=True)
    )


def make_causal_attention():
    lengths = jnp.array([[PROMPT_LENGTH], [4]])
    return attention.make_causal_attention(jnp.arange(PROMPT_LENGTH) < lengths)


def make_shared_attention():
    """Rows of one to three segments, some padded, behind prompts of other lengths."""
    prompt_mask = jnp.arange(PROMPT_LENGTH) < jnp.array([[[7], [3]], [[1], [6]]])
    row_prompts = jnp.array([[1, 0, 1], [0, 0, 1]], jnp.int32)
    bounds = np.sort(np.random.default_rng(1).integers(0, ROW_LENGTH + 1, (2, NUM_ROWS, 2)))
    positions = np.arange(ROW_LENGTH)
    segments = (positions >= bounds[..., :1]).astype(np.int32) + (positions >= bounds[..., 1:])
    segments[0, 0, 8:] = -1
    return attention.make_shared_prompt_attention(prompt_mask, row_prompts, jnp.asarray(segments))


ATTENTIONS = {
    "causal": (make_causal_attention, PROMPT_LENGTH),
    "shared": (make_shared_attention, NUM_GROUPS * PROMPT_LENGTH + NUM_ROWS * ROW_LENGTH),
}


def run_attention(make_attention, monkeypatch, arguments, *, block: int | None):
    """Return attention and the gradients of its weighted sum; without blocks if `block` is None."""
    with monkeypatch.context() as patch:
        if block is not None:
            patch.setattr(attention, "BLOCKWISE_ABOVE", 0)
            with_blocks = functools.partial(blockwise_attention, block=block)
            patch.setattr(attention, "blockwise_attention", with_blocks)
        *inputs, weights = arguments

        def loss(*inputs):
            output = make_attention()(*inputs)
            return jnp.sum(output.astype(jnp.float32) * weights), output

        value_and_gradients = jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)
        (_, output), gradients = jax.jit(value_and_gradients)(*inputs)
    return output, *gradients


@pytest.mark.parametrize("block", [4, 32])
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_and_gradients_match_the_plain_form(name: str, block: int, monkeypatch):
    make_attention, length = ATTENTIONS[name]
    arguments = make_inputs(length)
    arrays = run_attention(make_attention, monkeypatch, arguments, block=block)
    expected = run_attention(make_attention, monkeypatch, arguments, block=None)
    for array, expected_array in zip(arrays, expected, strict=True):
        assert np.abs(expected_array).max() > 0.1
        np.testing.assert_allclose(array, expected_array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_bfloat16_is_as_accurate_as_the_plain_form(name: str, monkeypatch):
    make_attention, length = ATTENTIONS[name]
    expected = run_attention(make_attention, monkeypatch, make_inputs(length), block=None)
    inputs, errors = make_inputs(length, jnp.bfloat16), []
    for block in (4, None):
        arrays = run_attention(make_attention, monkeypatch, inputs, block=block)
        pairs, norm = zip(arrays, expected, strict=True), jnp.linalg.norm
        errors.append([float(norm(a.astype(jnp.float32) - b) / norm(b)) for a, b in pairs])
        assert all(array.dtype == jnp.bfloat16 for array in arrays)
    assert all(0 < error < 1.5 * plain_error for error, plain_error in zip(*errors, strict=True))


def test_fully_masked_query_gives_zero_output_and_gradient():
    query, key, value, _ = make_inputs(6)
    no_queries = jnp.full((2, 6), blockwise.NO_QUERY)

    def attend(query):
        segments = jnp.zeros((2, 6), jnp.int32)
        return blockwise_attention(query, key, value, segments, no_queries, block=4)

    output, vjp = jax.vjp(attend, query)
    assert not output.any()
    assert not vjp(jnp.ones_like(output))[0].any()
