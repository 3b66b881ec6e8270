"""Compilation of gradients on CPUs: XLA's loops, equal numbers, and user flags."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from training.learner.gradient_program import jit_gradients
from training.policy.layers import rms_norm

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="about programs for a CPU")


def compute_gradients(inputs: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
    def loss(inputs: jax.Array, scale: jax.Array) -> jax.Array:
        return jnp.sum(jax.nn.softmax(rms_norm(inputs, scale, 1e-6) @ inputs.T) ** 2)

    return jax.grad(loss, argnums=(0, 1))(inputs, scale)


def make_arguments() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(96, 64)).astype(np.float32), rng.normal(size=64).astype(np.float32)


def test_jit_gradients_omits_ynnpack():
    """By default, XLA uses YNNPACK for a part of this program."""
    arguments = make_arguments()
    default_program = jax.jit(compute_gradients).lower(*arguments).compile()
    program = jit_gradients(compute_gradients).lower(*arguments).compile()
    assert "__ynn_fusion" in default_program.as_text()
    assert "__ynn_fusion" not in program.as_text()
    for default_leaf, leaf in zip(default_program(*arguments), program(*arguments), strict=True):
        np.testing.assert_allclose(default_leaf, leaf, rtol=1e-4, atol=3e-5)


def test_jit_options_are_forwarded():
    add = jit_gradients(lambda state, addend: state + addend, donate_argnums=0)
    state = jnp.ones(8)
    np.testing.assert_array_equal(add(state, 1.0), np.full(8, 2.0))
    assert state.is_deleted()
