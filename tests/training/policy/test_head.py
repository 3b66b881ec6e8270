"""The chunked head against log-softmax, and its bfloat16 gradient against float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from training.policy.head import chunked_logprobs

BATCH_SIZE, LENGTH, VOCAB_SIZE, WIDTH = 2, 70, 41, 12


def make_inputs(length: int = LENGTH):
    keys = jax.random.split(jax.random.key(0), 4)
    return (
        jax.random.normal(keys[0], (BATCH_SIZE, length, WIDTH)),
        0.3 * jax.random.normal(keys[1], (VOCAB_SIZE, WIDTH)),
        jax.random.randint(keys[2], (BATCH_SIZE, length), 0, VOCAB_SIZE),
        jax.random.normal(keys[3], (BATCH_SIZE, length)),
    )


def compute_unchunked_logprobs(hidden, head, targets, temperature):
    logits = jnp.einsum("btd,vd->btv", hidden, head, precision="highest") / temperature
    return jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)[..., 0]


@pytest.mark.parametrize("chunk", [1, 9, LENGTH])
def test_scores_and_gradients_match_log_softmax(chunk: int):
    hidden, head, targets, score_weights = make_inputs()

    def chunked_loss(hidden, head):
        scores = chunked_logprobs(hidden, head, targets, 0.7, chunk=chunk, mesh=None)
        return jnp.sum(scores * score_weights), scores

    def expected_loss(hidden, head):
        scores = compute_unchunked_logprobs(hidden, head, targets, 0.7)
        return jnp.sum(scores * score_weights), scores

    results, expected = (
        jax.jit(jax.value_and_grad(function, argnums=(0, 1), has_aux=True))(hidden, head)
        for function in (chunked_loss, expected_loss)
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), results, expected
    )


def test_bfloat16_head_gradient_sums_in_float32():
    """One chunk per position makes a long sum of small terms."""
    hidden, head, targets, score_weights = make_inputs(300)
    # Rounded first, so that only the precision of products and sums differs.
    hidden, head = (leaf.astype(jnp.bfloat16).astype(jnp.float32) for leaf in (hidden, head))
    score_weights = jnp.abs(score_weights)  # equal signs make the sum large compared with its terms

    def loss(head, dtype):
        scores = chunked_logprobs(hidden.astype(dtype), head, targets, 1.0, chunk=1, mesh=None)
        return jnp.sum(scores * score_weights)

    expected = jax.grad(
        lambda head: jnp.sum(compute_unchunked_logprobs(hidden, head, targets, 1.0) * score_weights)
    )(head)
    gradient = jax.jit(jax.grad(lambda head: loss(head, jnp.bfloat16)))(head)
    assert gradient.dtype == jnp.float32
    error = jnp.linalg.norm(gradient - expected) / jnp.linalg.norm(expected)
    assert 1e-5 < error < 1.5e-3  # summed in bfloat16 it is 1e-2
