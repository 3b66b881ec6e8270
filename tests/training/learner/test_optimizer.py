"""AdamW against the paper's algorithm in float64."""

import jax
import numpy as np
import pytest
from flax import nnx

from training.learner.grpo_step import make_grpo_optimizer
from training.learner.optimizer import adamw
from training.policy.architectures import DecoderConfig
from training.policy.decoder import Decoder
from training.policy.lora import add_adapters, get_trainable
from training.schema import GrpoConfig, LoraConfig

RATE = 0.01
KERNELS = {f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")}
ALL_MATRICES = KERNELS | {"embed_tokens", "lm_head"}
NORMS = {"norm", "input_layernorm", "post_attention_layernorm"}
QKV_BIASES = {f"{name}_proj_bias" for name in "qkv"}


def run_reference_adamw(weights, gradients, *, b2, decay, max_norm):
    """Take the steps of Loshchilov and Hutter 2019, algorithm 2, on gradients of clipped norm."""
    weights = {name: np.float64(values) for name, values in weights.items()}
    first_moments, second_moments = (dict.fromkeys(weights, 0.0) for _ in range(2))
    for step, gradient in enumerate(gradients, start=1):
        global_norm = np.sqrt(sum(np.sum(np.float64(values) ** 2) for values in gradient.values()))
        for name in weights:
            clipped_gradient = np.float64(gradient[name]) * min(1.0, max_norm / global_norm)
            first_moments[name] = 0.9 * first_moments[name] + 0.1 * clipped_gradient
            second_moments[name] = b2 * second_moments[name] + (1 - b2) * clipped_gradient**2
            scale = np.sqrt(second_moments[name] / (1 - b2**step)) + 1e-8
            update = first_moments[name] / (1 - 0.9**step) / scale
            weight_decay = 0.0 if name == "norm" else decay
            weights[name] -= RATE * (update + weight_decay * weights[name])
    return weights


@pytest.mark.parametrize(
    ("optimizer", "b2", "decay"),
    [
        (make_grpo_optimizer(GrpoConfig(learning_rate=RATE, max_grad_norm=2.0), 10), 0.99, 0.0),
        (adamw(RATE, weight_decay=0.1, max_grad_norm=2.0), 0.95, 0.1),
    ],
    ids=["GRPO", "warm start"],
)
def test_adamw_matches_the_published_algorithm(optimizer, b2, decay):
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in {"q_proj": (3, 4), "norm": (4,)}.items()
    }
    # Norms of about 12, 0.4 and 4: the second one is not clipped.
    gradients = [
        {name: (scale * rng.normal(size=v.shape)).astype(np.float32) for name, v in weights.items()}
        for scale in (3.0, 0.1, 1.0)
    ]
    new_weights, state, update_step = weights, optimizer.init(weights), jax.jit(optimizer.update)
    for gradient in gradients:
        updates, state = update_step(gradient, state, new_weights)
        new_weights = {name: new_weights[name] + np.asarray(updates[name]) for name in updates}
    expected = run_reference_adamw(weights, gradients, b2=b2, decay=decay, max_norm=2.0)
    for name, value in expected.items():
        np.testing.assert_allclose(new_weights[name], value, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("family", "lora", "decayed_names", "undecayed_names"),
    [
        ("qwen2", None, ALL_MATRICES, NORMS | QKV_BIASES),
        ("qwen3", None, ALL_MATRICES, NORMS | {"q_norm", "k_norm"}),
        (
            "qwen3",
            LoraConfig(rank=2, targets=("q_proj",)),
            {"q_proj_lora_a", "q_proj_lora_b"},
            set(),
        ),
    ],
)
def test_adamw_decays_matrices_but_no_norm_or_bias(family, lora, decayed_names, undecayed_names):
    def make_model():
        config = DecoderConfig(32, 16, 32, 2, 2, 1, head_dim=8, model_type=family)
        model = Decoder(config, rngs=nnx.Rngs(0))
        if lora is not None:
            add_adapters(model, lora, seed=0)
        return model

    shapes = nnx.state(nnx.eval_shape(make_model))
    ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), shapes)
    assert find_decayed_weights(get_trainable(ones)) == (decayed_names, undecayed_names)


def find_decayed_weights(params):
    """The names of the weights that AdamW's decay shrinks, and of those that it leaves alone."""
    optimizer = adamw(RATE, weight_decay=0.1, max_grad_norm=1.0)
    zeros = jax.tree.map(np.zeros_like, params)
    updates, _ = jax.jit(optimizer.update)(zeros, optimizer.init(params), params)
    decayed_names, undecayed_names = set(), set()
    for path, update in nnx.to_flat_state(updates):
        values = np.asarray(update[...])
        if values.any():
            np.testing.assert_allclose(values, -RATE * 0.1, rtol=1e-6)
        (decayed_names if values.any() else undecayed_names).add(path[-1])
    return decayed_names, undecayed_names
