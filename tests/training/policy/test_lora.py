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

from tests.training.policy.test_decoder import FAMILIES, batch, random_model, run, torch_logits
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
    model = random_model(config, **options)
    add_adapters(model, lora, seed=5)
    for number, target in enumerate(lora.targets if trained else ()):
        wide = getattr(model.layers, f"{target}_lora_b")
        wide[...] = 0.3 * jax.random.normal(jax.random.key(number), wide.shape)
    return model


def merge_adapters(model, lora=LORA):
    """Return the model without adapters; kernels are W + alpha / rank * A B, from float64."""
    copy = nnx.clone(model)
    remove_adapters(copy)
    for target in lora.targets:
        narrow, wide = (
            np.asarray(getattr(model.layers, f"{target}_lora_{factor}")[...], np.float64)
            for factor in "ab"
        )
        kernel = getattr(copy.layers, target)
        change = lora.alpha / lora.rank * np.einsum("nir,nro->nio", narrow, wide)
        kernel[...] = jnp.asarray(np.asarray(kernel[...], np.float64) + change, jnp.float32)
    return copy


def sum_scores(model, inputs):
    return jnp.sum(token_logprobs(model, *inputs, temperature=0.8))


def test_fresh_adapters_are_seeded_and_change_nothing():
    model, base_model = make_adapted_model(trained=False), random_model(LLAMA)
    inputs = batch("right")
    np.testing.assert_array_equal(run(model, *inputs), run(base_model, *inputs))
    narrow = model.layers.gate_proj_lora_a[...]
    assert narrow.shape == (2, 24, 3)
    assert 0.9 * 24**-0.5 < np.abs(narrow).max() <= 24**-0.5
    reseeded = random_model(LLAMA)
    add_adapters(reseeded, LORA, seed=6)
    assert not np.array_equal(reseeded.layers.gate_proj_lora_a[...], narrow)
    partial_model = random_model(LLAMA)
    add_adapters(partial_model, LoraConfig(rank=3, targets=("gate_proj",)), seed=5)
    np.testing.assert_array_equal(partial_model.layers.gate_proj_lora_a[...], narrow)
    remove_adapters(model)
    assert nnx.graphdef(model) == nnx.graphdef(base_model)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["smollm", *(pytest.param(family, marks=SLOW) for family in ("qwen2", "tied"))]
)
def test_adapters_equal_their_merged_kernels(name, tmp_path):
    model = make_adapted_model(FAMILIES[name])
    inputs = batch("right")
    mask = np.asarray(inputs[2])
    logits = np.asarray(run(model, *inputs))
    assert np.abs(logits - run(random_model(FAMILIES[name]), *inputs))[mask].max() > 0.1
    folder = huggingface.save(model, tmp_path / "merged", tokenizer_from=None)
    twin = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch_values = torch_logits(twin, *inputs)
    np.testing.assert_allclose(logits[mask], torch_values[mask], atol=1e-4, rtol=1e-4)
    expected = dict(huggingface.state_tensors(merge_adapters(model), untied=True))
    merged = dict(huggingface.state_tensors(model, untied=True))
    assert merged.keys() == expected.keys()
    for tensor, value in merged.items():
        np.testing.assert_allclose(value, expected[tensor], rtol=1e-5, atol=1e-6, err_msg=tensor)


@pytest.mark.parametrize("remat", [False, pytest.param(True, marks=SLOW)])
def test_lora_gradients_follow_the_chain_rule(remat):
    """With W + s A B the gradients are s G B' and s A' G, where G is the gradient of the kernel."""
    model = make_adapted_model(remat=remat)
    inputs = batch("right")
    graphdef, params = nnx.split(model)

    def loss(learned):
        return sum_scores(nnx.merge(graphdef, replace_trainable(params, learned)), inputs)

    gradients = nnx.to_pure_dict(jax.jit(jax.grad(loss))(get_trainable(params)))["layers"]
    dense_gradient = nnx.jit(nnx.grad(partial(sum_scores, inputs=inputs)))(merge_adapters(model))
    assert len(gradients) == 2 * len(LORA.targets)
    for target in LORA.targets:
        slope = np.asarray(getattr(dense_gradient.layers, target)[...], np.float64)
        narrow, wide = (
            np.asarray(getattr(model.layers, f"{target}_lora_{factor}")[...], np.float64)
            for factor in "ab"
        )
        scale = 7.5 / 3
        by_a = scale * np.einsum("nio,nro->nir", slope, wide)
        by_b = scale * np.einsum("nir,nio->nro", narrow, slope)
        for name, expected in ((f"{target}_lora_a", by_a), (f"{target}_lora_b", by_b)):
            assert np.abs(expected).max() > 0.1
            size = np.abs(expected).max()
            np.testing.assert_allclose(gradients[name], expected, atol=2e-5 * size, rtol=2e-3)


def test_lora_step_updates_only_adapters():
    model = make_adapted_model()
    graphdef, params = nnx.split(model)
    inputs = batch("none")
    optimizer = adamw(1e-2, weight_decay=0.0, max_grad_norm=1.0)
    state = initial_state(params, optimizer)
    shapes = parameter_shapes(LLAMA, LORA)
    sizes = sum(np.prod(shape) for path, shape in shapes.items() if "_lora_" in path)
    moments = sum(leaf.size for leaf in jax.tree.leaves(state.opt_state) if leaf.ndim)
    assert moments == 2 * sizes

    def loss(params, rows):
        return -sum_scores(nnx.merge(graphdef, params), rows), {}

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
    before, losses = state.params, []
    for _ in range(8):
        state, metrics = step(state)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0] - 1
    for path, leaf in nnx.to_flat_state(state.params):
        same = np.array_equal(leaf[...], dict(nnx.to_flat_state(before))[path][...])
        assert same != isinstance(leaf, Adapter), path
        assert same == ("_lora_" not in str(path[-1])), path


def test_adapter_files_match_peft(tmp_path):
    """A model that applies the files as PEFT defines them, to transformers' weights, is ours."""
    model = make_adapted_model()
    adapters = get_trainable(nnx.state(model))
    folder, tensors = tmp_path / "adapters", adapter_tensors(adapters)
    save_adapters(tensors, LORA, folder, base="0123abcd", base_name="somebody/model")
    base_model = nnx.clone(model)
    remove_adapters(base_model)
    base_folder = huggingface.save(base_model, tmp_path / "plain", tokenizer_from=None)
    twin = AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.float32)
    files = load_file(folder / "adapter_model.safetensors")
    assert len(files) == 2 * 2 * len(LORA.targets)
    with torch.no_grad():
        for name in [name for name in files if ".lora_A." in name]:
            layer = twin.get_submodule(
                name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            )
            narrow, wide = (
                torch.tensor(files[key]) for key in (name, name.replace("lora_A", "lora_B"))
            )
            layer.weight += 7.5 / 3 * wide @ narrow
    inputs = batch("none")
    logits, expected = run(model, *inputs), torch_logits(twin, *inputs)
    np.testing.assert_allclose(logits, expected, atol=1e-4, rtol=1e-4)

    fresh = get_trainable(nnx.state(make_adapted_model(trained=False)))
    back, base = load_adapters(folder, fresh)
    assert base == "0123abcd"
    jax.tree.map(np.testing.assert_array_equal, back, adapters)
    wider = get_trainable(
        nnx.state(make_adapted_model(lora=LoraConfig(rank=4, targets=("q_proj",))))
    )
    with pytest.raises(UserError, match=r"q_proj.lora_A.* must be \(4, 24\), got \(3, 24\)"):
        load_adapters(folder, wider)
    fewer = get_trainable(
        nnx.state(
            make_adapted_model(trained=False, lora=LoraConfig(rank=3, targets=LORA.targets[:-1]))
        )
    )
    with pytest.raises(UserError, match=r"contains .*lora_A.*, which is not in model.lora"):
        load_adapters(folder, fewer)
    name = next(iter(tensors))
    broken = {**tensors, name: np.full_like(tensors[name], np.nan)}
    save_adapters(broken, LORA, tmp_path / "broken", base="0", base_name="somebody/model")
    with pytest.raises(UserError, match="must be finite in all layers"):
        load_adapters(tmp_path / "broken", fresh)
    with pytest.raises(UserError, match=r"nowhere/adapter_model.safetensors: can't be read"):
        load_adapters(tmp_path / "nowhere", fresh)
