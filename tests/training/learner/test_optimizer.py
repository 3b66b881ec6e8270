"""Muon: layers' matrices move along orthogonal directions, everything else as AdamW moves it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from training.learner.optimizer import muon

RATE = 0.01


def params_and_gradient():
    keys = iter(jax.random.split(jax.random.key(0), 8))
    shapes = {"kernel": (3, 16, 40), "norm": (3, 16), "embed": (50, 16)}
    draw = {name: jax.random.normal(next(keys), shape) for name, shape in shapes.items()}
    # A gradient with one direction that is much stronger than all others.
    strong = 5.0 * draw["kernel"][:, :, :1] * draw["kernel"][:, :1, :]
    gradient = {
        name: jax.random.normal(next(keys), shape) + (strong if name == "kernel" else 0.0)
        for name, shape in shapes.items()
    }
    return draw, gradient


def first_update(weight_decay: float = 0.0):
    params, gradient = params_and_gradient()
    optimizer = muon(lambda count: RATE, weight_decay=weight_decay, max_grad_norm=1.0)
    updates, _ = optimizer.update(gradient, optimizer.init(params), params)
    return params, gradient, updates


def test_every_direction_of_a_kernel_moves_about_equally_far():
    _, gradient, updates = first_update()
    for layer in range(3):
        before = np.linalg.svd(np.asarray(gradient["kernel"][layer]), compute_uv=False)
        after = np.linalg.svd(np.asarray(updates["kernel"][layer]), compute_uv=False)
        assert before[0] > 10 * before[1]
        assert after[0] < 2.5 * after[-1]
        # As large as AdamW's: 0.2 of the rate, root mean square.
        size = np.sqrt(np.mean(np.square(updates["kernel"][layer])))
        assert size == pytest.approx(0.2 * RATE, rel=0.3)
    # Layers are apart: another layer's gradient changes nothing here.
    params, gradient = params_and_gradient()
    other = gradient | {"kernel": gradient["kernel"].at[1].multiply(-1.0)}
    optimizer = muon(lambda count: RATE, weight_decay=0.0, max_grad_norm=1e9)
    one, two = (
        optimizer.update(some, optimizer.init(params), params)[0] for some in (gradient, other)
    )
    np.testing.assert_allclose(one["kernel"][0], two["kernel"][0], atol=1e-7)
    np.testing.assert_allclose(one["kernel"][1], -two["kernel"][1], atol=1e-7)


def test_the_rest_follows_adam():
    params, gradient, updates = first_update()
    clipped = optax.clip_by_global_norm(1.0).update(gradient, optax.EmptyState())[0]
    rest = {name: clipped[name] for name in ("norm", "embed")}
    adam = optax.adam(RATE, b1=0.9, b2=0.95, nesterov=True)
    expected, _ = adam.update(rest, adam.init({name: params[name] for name in rest}))
    for name, update in expected.items():
        np.testing.assert_allclose(updates[name], update, rtol=1e-4)


def test_only_kernels_decay():
    params, _, plain = first_update()
    _, _, decayed = first_update(weight_decay=0.1)
    difference = jax.tree.map(jnp.subtract, decayed, plain)
    np.testing.assert_allclose(difference["kernel"], -RATE * 0.1 * params["kernel"], atol=1e-7)
    for name in ("norm", "embed"):
        np.testing.assert_array_equal(difference[name], 0.0)
