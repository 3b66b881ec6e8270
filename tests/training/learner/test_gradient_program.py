"""Compilation of gradients on CPUs: XLA's loops, equal numbers, and user flags."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from training.learner.gradient_program import jit_gradients
from training.policy.layers import rms_norm

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="about programs for a CPU")


def gradients(inputs: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
    def loss(inputs: jax.Array, scale: jax.Array) -> jax.Array:
        return jnp.sum(jax.nn.softmax(rms_norm(inputs, scale, 1e-6) @ inputs.T) ** 2)

    return jax.grad(loss, argnums=(0, 1))(inputs, scale)


def arguments() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(96, 64)).astype(np.float32), rng.normal(size=64).astype(np.float32)


def test_failed_conversion_returns_no_dataset():
    """Without the option XLA hands over some of it, or the test would show nothing."""
    plain = jax.jit(gradients).lower(*arguments()).compile()
    apart = jit_gradients(gradients).lower(*arguments()).compile()
    assert "__ynn_fusion" in plain.as_text()
    assert "__ynn_fusion" not in apart.as_text()
    for plain_leaf, apart_leaf in zip(plain(*arguments()), apart(*arguments()), strict=True):
        np.testing.assert_allclose(plain_leaf, apart_leaf, rtol=1e-4, atol=3e-5)


def test_jit_options_are_forwarded():
    add = jit_gradients(lambda state, addend: state + addend, donate_argnums=0)
    state = jnp.ones(8)
    np.testing.assert_array_equal(add(state, 1.0), np.full(8, 2.0))
    assert state.is_deleted()
