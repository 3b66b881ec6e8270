"""Blockwise attention against plain attention: outputs and all gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from training.policy import attention, blockwise
from training.policy.blockwise import blockwise_attention

HEADS, KEY_HEADS, WIDTH = 4, 2, 8
GROUPS, PROMPT, ROWS, LENGTH = 2, 7, 3, 11


def random_inputs(tokens: int, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(0), 4)
    sizes = (HEADS, KEY_HEADS, KEY_HEADS, HEADS)
    return tuple(
        (2 * jax.random.normal(key, (2, tokens, size, WIDTH))).astype(dtype)
        for key, size in zip(keys, sizes, strict=True)
    )


def make_causal():
    return attention.make_causal_attention(jnp.arange(PROMPT) < jnp.array([[PROMPT], [4]]))


def make_shared():
    """Rows of one to three segments, some padded, behind prompts of other lengths."""
    prompt_mask = jnp.arange(PROMPT) < jnp.array([[[7], [3]], [[1], [6]]])
    row_prompts = jnp.array([[1, 0, 1], [0, 0, 1]], jnp.int32)
    bounds = np.sort(np.random.default_rng(1).integers(0, LENGTH + 1, (2, ROWS, 2)))
    positions = np.arange(LENGTH)
    segments = (positions >= bounds[..., :1]).astype(np.int32) + (positions >= bounds[..., 1:])
    segments[0, 0, 8:] = -1
    return attention.make_shared_prompt_attention(prompt_mask, row_prompts, jnp.asarray(segments))


FORMS = {"causal": (make_causal, PROMPT), "shared": (make_shared, GROUPS * PROMPT + ROWS * LENGTH)}


def run_attention(form, monkeypatch, tokens, *, block: int | None):
    """Return attention and the gradients of its weighted sum; without blocks if `block` is None."""
    with monkeypatch.context() as patch:
        if block is not None:
            patch.setattr(attention, "BLOCKWISE_ABOVE", 0)
            with_blocks = functools.partial(blockwise_attention, block=block)
            patch.setattr(attention, "blockwise_attention", with_blocks)
        *inputs, weights = tokens

        def loss(*inputs):
            attended = form()(*inputs)
            return jnp.sum(attended.astype(jnp.float32) * weights), attended

        value_and_gradients = jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)
        (_, attended), gradients = jax.jit(value_and_gradients)(*inputs)
    return attended, *gradients


@pytest.mark.parametrize("block", [4, 32])
@pytest.mark.parametrize("name", FORMS)
def test_attention_and_gradients_match_the_plain_form(name: str, block: int, monkeypatch):
    form, length = FORMS[name]
    tokens = random_inputs(length)
    arrays = run_attention(form, monkeypatch, tokens, block=block)
    expected = run_attention(form, monkeypatch, tokens, block=None)
    for array, expected_array in zip(arrays, expected, strict=True):
        assert np.abs(expected_array).max() > 0.1
        np.testing.assert_allclose(array, expected_array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FORMS)
def test_bfloat16_is_as_accurate_as_the_plain_form(name: str, monkeypatch):
    form, length = FORMS[name]
    exact = run_attention(form, monkeypatch, random_inputs(length), block=None)
    errors = []
    for block in (4, None):
        arrays = run_attention(form, monkeypatch, random_inputs(length, jnp.bfloat16), block=block)
        pairs, norm = zip(arrays, exact, strict=True), jnp.linalg.norm
        errors.append([float(norm(a.astype(jnp.float32) - b) / norm(b)) for a, b in pairs])
        assert all(array.dtype == jnp.bfloat16 for array in arrays)
    assert all(0 < blocks < 1.5 * whole for blocks, whole in zip(*errors, strict=True))


def test_fully_masked_query_gives_zero_output_and_gradient():
    query, key, value, _ = random_inputs(6)
    no_queries = jnp.full((2, 6), blockwise.NO_QUERY)

    def attend(query):
        segments = jnp.zeros((2, 6), jnp.int32)
        return blockwise_attention(query, key, value, segments, no_queries, block=4)

    attended, pull = jax.vjp(attend, query)
    assert not attended.any()
    assert not pull(jnp.ones_like(attended))[0].any()
