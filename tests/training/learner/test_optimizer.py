"""AdamW against the paper's algorithm in float64, and Muon against what it says of directions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from training.learner.grpo_step import grpo_optimizer
from training.learner.optimizer import adamw, muon
from training.policy.architectures import DecoderConfig
from training.policy.decoder import Decoder
from training.policy.lora import add_adapters, trainable
from training.schema import Grpo, Lora

RATE = 0.01
KERNELS = {f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")}
ALL_MATRICES = KERNELS | {"embed_tokens", "lm_head"}
NORMS = {"norm", "input_layernorm", "post_attention_layernorm"}
QKV_BIASES = {f"{name}_proj_bias" for name in "qkv"}


def slow_adamw(weights, gradients, *, b2, decay, largest):
    """Take the steps of Loshchilov and Hutter 2019, algorithm 2, on gradients of clipped norm."""
    weights = {name: np.float64(one) for name, one in weights.items()}
    first, second = (dict.fromkeys(weights, 0.0) for _ in range(2))
    for step, gradient in enumerate(gradients, start=1):
        norm = np.sqrt(sum(np.sum(np.float64(one) ** 2) for one in gradient.values()))
        for name in weights:
            slope = np.float64(gradient[name]) * min(1.0, largest / norm)
            first[name] = 0.9 * first[name] + 0.1 * slope
            second[name] = b2 * second[name] + (1 - b2) * slope**2
            size = np.sqrt(second[name] / (1 - b2**step)) + 1e-8
            move = first[name] / (1 - 0.9**step) / size
            own = 0.0 if name == "norm" else decay
            weights[name] = weights[name] - RATE * (move + own * weights[name])
    return weights


@pytest.mark.parametrize(
    ("optimizer", "b2", "decay"),
    [
        (grpo_optimizer(Grpo(learning_rate=RATE, max_grad_norm=2.0), 10), 0.99, 0.0),
        (adamw(RATE, weight_decay=0.1, max_grad_norm=2.0), 0.95, 0.1),
    ],
    ids=["GRPO", "warm start"],
)
def test_adamw_takes_the_steps_of_the_paper(optimizer, b2, decay):
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in {"q_proj": (3, 4), "norm": (4,)}.items()
    }
    # Norms of about 12, 0.4 and 4: the second one is not clipped.
    gradients = [
        {name: (scale * rng.normal(size=one.shape)).astype(np.float32) for name, one in part}
        for scale, part in ((3.0, weights.items()), (0.1, weights.items()), (1.0, weights.items()))
    ]
    found, state, update = weights, optimizer.init(weights), jax.jit(optimizer.update)
    for gradient in gradients:
        moves, state = update(gradient, state, found)
        found = {name: found[name] + np.asarray(move) for name, move in moves.items()}
    expected = slow_adamw(weights, gradients, b2=b2, decay=decay, largest=2.0)
    for name, one in expected.items():
        np.testing.assert_allclose(found[name], one, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("family", "lora", "shrunk", "kept"),
    [
        ("qwen2", None, ALL_MATRICES, NORMS | QKV_BIASES),
        ("qwen3", None, ALL_MATRICES, NORMS | {"q_norm", "k_norm"}),
        ("qwen3", Lora(rank=2, targets=("q_proj",)), {"q_proj_lora_a", "q_proj_lora_b"}, set()),
    ],
)
def test_adamw_decays_matrices_but_no_norm_or_bias(family, lora, shrunk, kept):
    def make():
        config = DecoderConfig(32, 16, 32, 2, 2, 1, head_dim=8, model_type=family)
        model = Decoder(config, rngs=nnx.Rngs(0))
        if lora is not None:
            add_adapters(model, lora, seed=0)
        return model

    shapes = nnx.state(nnx.eval_shape(make))
    ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), shapes)
    assert decayed(trainable(ones)) == (shrunk, kept)


def decayed(params):
    """The names of the weights that AdamW's decay shrinks, and of those that it leaves alone."""
    optimizer = adamw(RATE, weight_decay=0.1, max_grad_norm=1.0)
    nothing = jax.tree.map(np.zeros_like, params)
    moves, _ = jax.jit(optimizer.update)(nothing, optimizer.init(params), params)
    shrunk, left = set(), set()
    for path, move in nnx.to_flat_state(moves):
        moved = np.asarray(move[...])
        if moved.any():
            np.testing.assert_allclose(moved, -RATE * 0.1, rtol=1e-6)
        (shrunk if moved.any() else left).add(path[-1])
    return shrunk, left


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
