"""Adapters against dense kernels and against products in float64."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

from tests.training.policy.test_decoder import (
    FAMILIES,
    jax_logits,
    make_batch,
    make_random_model,
    torch_logits,
)
from training.errors import UserError
from training.learner.optimizer import adamw, gradient_step, initial_state
from training.policy import huggingface
from training.policy.logprobs import token_logprobs
from training.policy.lora import (
    Adapter,
    adapter_tensors,
    add_adapters,
    get_trainable,
    load_adapters,
    remove_adapters,
    replace_trainable,
    save_adapters,
)
from training.policy.parameters import parameter_shapes
from training.schema import LoraConfig

LLAMA = FAMILIES["smollm"]
LORA = LoraConfig(rank=3, alpha=7.5)


def make_adapted_model(config=LLAMA, lora=LORA, *, trained=True, **options):
    """Return a model with adapters; B is not 0 if `trained`, as after training."""
    model = make_random_model(config, **options)
    add_adapters(model, lora, seed=5)
    for index, target in enumerate(lora.targets if trained else ()):
        factor_b = getattr(model.layers, f"{target}_lora_b")
        factor_b[...] = 0.3 * jax.random.normal(jax.random.key(index), factor_b.shape)
    return model


def merge_adapters(model, lora=LORA):
    """Return the model without adapters; kernels are W + alpha / rank * A B, from float64."""
    merged_model = nnx.clone(model)
    remove_adapters(merged_model)
    for target in lora.targets:
        factor_a, factor_b = (
            np.asarray(getattr(model.layers, f"{target}_lora_{factor}")[...], np.float64)
            for factor in "ab"
        )
        kernel = getattr(merged_model.layers, target)
        update = lora.alpha / lora.rank * np.einsum("nir,nro->nio", factor_a, factor_b)
        kernel[...] = jnp.asarray(np.asarray(kernel[...], np.float64) + update, jnp.float32)
    return merged_model


def sum_scores(model, inputs):
    return jnp.sum(token_logprobs(model, *inputs, temperature=0.8))


def test_fresh_adapters_are_seeded_and_change_nothing():
    model, base_model = make_adapted_model(trained=False), make_random_model(LLAMA)
    inputs = make_batch("right")
    np.testing.assert_array_equal(jax_logits(model, *inputs), jax_logits(base_model, *inputs))
    factor_a = model.layers.gate_proj_lora_a[...]
    assert factor_a.shape == (2, 24, 3)
    assert 0.9 * 24**-0.5 < np.abs(factor_a).max() <= 24**-0.5
    reseeded_model = make_random_model(LLAMA)
    add_adapters(reseeded_model, LORA, seed=6)
    assert not np.array_equal(reseeded_model.layers.gate_proj_lora_a[...], factor_a)
    partial_model = make_random_model(LLAMA)
    add_adapters(partial_model, LoraConfig(rank=3, targets=("gate_proj",)), seed=5)
    np.testing.assert_array_equal(partial_model.layers.gate_proj_lora_a[...], factor_a)
    remove_adapters(model)
    assert nnx.graphdef(model) == nnx.graphdef(base_model)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["smollm", *(pytest.param(family, marks=SLOW) for family in ("qwen2", "tied"))]
)
def test_adapters_equal_their_merged_kernels(name, tmp_path):
    model = make_adapted_model(FAMILIES[name])
    inputs = make_batch("right")
    mask = np.asarray(inputs[2])
    logits = np.asarray(jax_logits(model, *inputs))
    assert np.abs(logits - jax_logits(make_random_model(FAMILIES[name]), *inputs))[mask].max() > 0.1
    folder = huggingface.save(model, tmp_path / "merged", tokenizer_from=None)
    torch_model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    expected_logits = torch_logits(torch_model, *inputs)
    np.testing.assert_allclose(logits[mask], expected_logits[mask], atol=1e-4, rtol=1e-4)
    expected = dict(huggingface.state_tensors(merge_adapters(model), untied=True))
    merged_tensors = dict(huggingface.state_tensors(model, untied=True))
    assert merged_tensors.keys() == expected.keys()
    for tensor, value in merged_tensors.items():
        np.testing.assert_allclose(value, expected[tensor], rtol=1e-5, atol=1e-6, err_msg=tensor)


@pytest.mark.parametrize("remat", [False, pytest.param(True, marks=SLOW)])
def test_lora_gradients_follow_the_chain_rule(remat):
    """With W + s A B the gradients are s G B' and s A' G, where G is the gradient of the kernel."""
    model = make_adapted_model(remat=remat)
    inputs = make_batch("right")
    graphdef, params = nnx.split(model)

    def loss(adapters):
        return sum_scores(nnx.merge(graphdef, replace_trainable(params, adapters)), inputs)

    gradients = nnx.to_pure_dict(jax.jit(jax.grad(loss))(get_trainable(params)))["layers"]
    dense_gradients = nnx.jit(nnx.grad(partial(sum_scores, inputs=inputs)))(merge_adapters(model))
    assert len(gradients) == 2 * len(LORA.targets)
    for target in LORA.targets:
        kernel_gradient = np.asarray(getattr(dense_gradients.layers, target)[...], np.float64)
        factor_a, factor_b = (
            np.asarray(getattr(model.layers, f"{target}_lora_{factor}")[...], np.float64)
            for factor in "ab"
        )
        scale = 7.5 / 3
        gradient_a = scale * np.einsum("nio,nro->nir", kernel_gradient, factor_b)
        gradient_b = scale * np.einsum("nir,nio->nro", factor_a, kernel_gradient)
        for name, expected in ((f"{target}_lora_a", gradient_a), (f"{target}_lora_b", gradient_b)):
            assert np.abs(expected).max() > 0.1
            atol = 2e-5 * np.abs(expected).max()
            np.testing.assert_allclose(gradients[name], expected, atol=atol, rtol=2e-3)


def test_lora_step_updates_only_adapters():
    model = make_adapted_model()
    graphdef, params = nnx.split(model)
    inputs = make_batch("none")
    optimizer = adamw(1e-2, weight_decay=0.0, max_grad_norm=1.0)
    state = initial_state(params, optimizer)
    shapes = parameter_shapes(LLAMA, LORA)
    num_parameters = sum(np.prod(shape) for path, shape in shapes.items() if "_lora_" in path)
    num_moments = sum(leaf.size for leaf in jax.tree.leaves(state.opt_state) if leaf.ndim)
    assert num_moments == 2 * num_parameters

    def loss(params, inputs):
        return -sum_scores(nnx.merge(graphdef, params), inputs), {}

    step = jax.jit(
        lambda state: gradient_step(
            state,
            jax.tree.map(lambda leaf: leaf[None], inputs),
            1,
            jnp.float32(1),
            loss=loss,
            optimizer=optimizer,
        )
    )
    initial_params, losses = state.params, []
    for _ in range(8):
        state, metrics = step(state)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0] - 1
    for path, leaf in nnx.to_flat_state(state.params):
        is_unchanged = np.array_equal(leaf[...], dict(nnx.to_flat_state(initial_params))[path][...])
        assert is_unchanged != isinstance(leaf, Adapter), path
        assert is_unchanged == ("_lora_" not in str(path[-1])), path


def test_adapter_files_match_peft(tmp_path):
    """A model that applies the files as PEFT defines them, to transformers' weights, is ours."""
    model = make_adapted_model()
    adapters = get_trainable(nnx.state(model))
    folder, tensors = tmp_path / "adapters", adapter_tensors(adapters)
    save_adapters(tensors, LORA, folder, base="0123abcd", base_name="somebody/model")
    base_model = nnx.clone(model)
    remove_adapters(base_model)
    base_folder = huggingface.save(base_model, tmp_path / "plain", tokenizer_from=None)
    torch_model = AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.float32)
    saved_tensors = load_file(folder / "adapter_model.safetensors")
    assert len(saved_tensors) == 2 * 2 * len(LORA.targets)
    with torch.no_grad():
        for name in [name for name in saved_tensors if ".lora_A." in name]:
            layer = torch_model.get_submodule(
                name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            )
            factor_a, factor_b = (
                torch.tensor(saved_tensors[key]) for key in (name, name.replace("lora_A", "lora_B"))
            )
            layer.weight += 7.5 / 3 * factor_b @ factor_a
    inputs = make_batch("none")
    logits, expected = jax_logits(model, *inputs), torch_logits(torch_model, *inputs)
    np.testing.assert_allclose(logits, expected, atol=1e-4, rtol=1e-4)

    fresh_adapters = get_trainable(nnx.state(make_adapted_model(trained=False)))
    loaded_adapters, base_digest = load_adapters(folder, fresh_adapters)
    assert base_digest == "0123abcd"
    jax.tree.map(np.testing.assert_array_equal, loaded_adapters, adapters)
    wider_adapters = get_trainable(
        nnx.state(make_adapted_model(lora=LoraConfig(rank=4, targets=("q_proj",))))
    )
    with pytest.raises(UserError, match=r"q_proj.lora_A.* must be \(4, 24\), got \(3, 24\)"):
        load_adapters(folder, wider_adapters)
    fewer_adapters = get_trainable(
        nnx.state(
            make_adapted_model(trained=False, lora=LoraConfig(rank=3, targets=LORA.targets[:-1]))
        )
    )
    with pytest.raises(UserError, match=r"contains .*lora_A.*, which is not in model.lora"):
        load_adapters(folder, fewer_adapters)
    name = next(iter(tensors))
    nan_tensors = {**tensors, name: np.full_like(tensors[name], np.nan)}
    save_adapters(nan_tensors, LORA, tmp_path / "broken", base="0", base_name="somebody/model")
    with pytest.raises(UserError, match="must be finite in all layers"):
        load_adapters(tmp_path / "broken", fresh_adapters)
    with pytest.raises(UserError, match=r"nowhere/adapter_model.safetensors: can't be read"):
        load_adapters(tmp_path / "nowhere", fresh_adapters)
