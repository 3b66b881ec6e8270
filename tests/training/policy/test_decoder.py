"""The decoder against transformers' own, and log-probabilities against a plain log-softmax."""

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from transformers import AutoConfig, AutoModelForCausalLM

from training.policy import huggingface
from training.policy.architectures import DecoderConfig, Llama3Rope
from training.policy.decoder import UNROLLED_LAYERS, Decoder
from training.policy.logprobs import token_logprobs
from training.policy.parameters import parameter_shapes

BASE_CONFIG = DecoderConfig(67, 24, 40, 2, 4, 2, head_dim=10, max_position_embeddings=64)
QWEN3 = dataclasses.replace(
    BASE_CONFIG, tie_word_embeddings=True, rope_theta=1_000_000.0, initializer_range=0.2
)
CONFIGS = {
    "tied": QWEN3,
    "untied": dataclasses.replace(QWEN3, tie_word_embeddings=False),
    "one_kv_head": dataclasses.replace(QWEN3, num_key_value_heads=1, rope_theta=10_000.0),
    "no_grouping": dataclasses.replace(QWEN3, num_key_value_heads=4, head_dim=6, rms_norm_eps=1e-3),
    "scanned": dataclasses.replace(QWEN3, num_hidden_layers=UNROLLED_LAYERS + 1),
}
# The lowest of five frequencies are stretched, the highest stays, one is mixed, within 13 tokens.
ROPE_SCALING = Llama3Rope(8.0, 1.0, 4.0, original_max_position_embeddings=16)
LLAMA = dataclasses.replace(QWEN3, model_type="llama", rms_norm_eps=1e-5, rope_theta=100.0)
FAMILIES = CONFIGS | {
    "smollm": dataclasses.replace(
        LLAMA, num_attention_heads=6, num_key_value_heads=2, head_dim=4, rope_theta=1e5
    ),
    "llama3": dataclasses.replace(LLAMA, rope_scaling=ROPE_SCALING, tie_word_embeddings=False),
    "qwen2": dataclasses.replace(QWEN3, model_type="qwen2", head_dim=6, num_key_value_heads=1),
    "qwen2_untied": dataclasses.replace(
        QWEN3, model_type="qwen2", head_dim=6, tie_word_embeddings=False
    ),
    "mistral": dataclasses.replace(LLAMA, model_type="mistral", tie_word_embeddings=False),
}


def make_torch_model(model, folder):
    """transformers' model with the same weights."""
    huggingface.save(model, folder, tokenizer_from=None)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def make_random_model(config, seed=0, **options):
    # Norms and biases too are made random: ones and zeros would hide those that are missing or in
    # the wrong place.
    model = Decoder(config, rngs=nnx.Rngs(seed), **options)
    key = jax.random.key(seed + 1)
    for path, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        if "norm" in str(path[-1]) or "bias" in str(path[-1]):
            leaf[...] += 0.3 * jax.random.normal(key, leaf.shape)
    return model


def make_batch(padding, vocab_size=67, batch_size=4, length=13, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, vocab_size, (batch_size, length)).astype(np.int32)
    lengths = rng.integers(2, length + 1, batch_size)
    lengths[0] = length
    mask = np.arange(length) < lengths[:, None]
    if padding == "left":
        mask = mask[:, ::-1].copy()
    if padding == "none":
        mask[:] = True
    positions = np.maximum(np.cumsum(mask, axis=1, dtype=np.int32) - 1, 0)
    return jnp.asarray(ids), jnp.asarray(positions), jnp.asarray(mask)


def torch_logits(torch_model, ids, positions, mask):
    with torch.no_grad():
        return torch_model(
            input_ids=torch.tensor(np.asarray(ids), dtype=torch.long),
            attention_mask=torch.tensor(np.asarray(mask), dtype=torch.long),
            position_ids=torch.tensor(np.asarray(positions), dtype=torch.long),
        ).logits.numpy()


@nnx.jit
def jax_logits(model, *inputs):
    return model.logits(model(*inputs))


compute_logprobs = nnx.jit(token_logprobs, static_argnames="chunk")


_SLOW_FAMILIES = ("qwen2_untied", "mistral")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(family, marks=pytest.mark.slow if family in _SLOW_FAMILIES else ())
        for family in FAMILIES
    ],
)
def test_logits_match_transformers_for_any_padding(name, tmp_path):
    model = make_random_model(FAMILIES[name])
    torch_model = make_torch_model(model, tmp_path / "model")
    assert type(torch_model).__name__ == FAMILIES[name].architecture.class_name
    for padding in ("none", "left", "right"):
        inputs = make_batch(padding)
        logits, expected = jax_logits(model, *inputs), torch_logits(torch_model, *inputs)
        mask = np.asarray(inputs[2])
        assert logits.dtype == jnp.float32
        np.testing.assert_allclose(np.asarray(logits)[mask], expected[mask], atol=1e-4, rtol=1e-4)


def test_bfloat16_compute_stays_close_to_float32(tmp_path):
    model = make_random_model(QWEN3)
    folder = huggingface.save(model, tmp_path / "model", tokenizer_from=None)
    bfloat16_model = huggingface.load(folder, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)
    inputs = make_batch("right")
    expected, logits = jax_logits(model, *inputs), jax_logits(bfloat16_model, *inputs)
    assert bfloat16_model(*inputs).dtype == jnp.bfloat16
    assert logits.dtype == jnp.float32
    mask = np.asarray(inputs[2])
    difference = np.abs(np.asarray(jax.nn.log_softmax(expected) - jax.nn.log_softmax(logits)))[mask]
    assert 0 < difference.mean() < 0.1


@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_token_logprobs_match_transformers(padding, tmp_path):
    model = make_random_model(CONFIGS["untied"])
    ids, _, mask = inputs = make_batch(padding)
    logits = torch_logits(make_torch_model(model, tmp_path / "model"), *inputs)
    for temperature in (1.0, 0.7):
        log_softmax = np.asarray(jax.nn.log_softmax(logits[:, :-1] / temperature))
        target_logprobs = np.take_along_axis(log_softmax, np.asarray(ids)[:, 1:, None], -1)[..., 0]
        target_mask = np.asarray(mask[:, 1:] & mask[:, :-1])
        for chunk in (None, 5):
            logprobs = compute_logprobs(model, *inputs, temperature=temperature, chunk=chunk)
            assert logprobs.dtype == jnp.float32
            expected = np.pad(np.where(target_mask, target_logprobs, 0), ((0, 0), (1, 0)))
            np.testing.assert_allclose(logprobs, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_chunks_hold_fewer_logits_at_once():
    config = dataclasses.replace(QWEN3, vocab_size=20_000)
    model = Decoder(config, rngs=nnx.Rngs(0))
    inputs = make_batch("none", vocab_size=20_000, batch_size=4, length=65)

    def measure_peak_bytes(chunk):
        def loss(model):
            return jnp.sum(token_logprobs(model, *inputs, chunk=chunk))

        graphdef, state = nnx.split(model)
        step = jax.jit(jax.grad(lambda state: loss(nnx.merge(graphdef, state))))
        return step.lower(state).compile().memory_analysis().temp_size_in_bytes

    logits_bytes = 4 * 64 * 20_000 * 4
    assert measure_peak_bytes(None) > logits_bytes
    assert measure_peak_bytes(4) < 0.5 * measure_peak_bytes(None)


@pytest.mark.parametrize("name", ["tied", "smollm", "llama3", "qwen2", "mistral"])
def test_config_round_trips_with_transformers(name):
    config = FAMILIES[name]
    fields = dataclasses.asdict(config)
    assert DecoderConfig.from_hf(config.to_hf()) == config
    hf_config = AutoConfig.for_model(**config.to_hf())
    assert DecoderConfig.from_hf(hf_config.to_dict()) == config
    assert hf_config.rope_parameters["rope_theta"] == config.rope_theta
    for field in set(fields) - {"rope_theta", "rope_scaling", "head_dim"}:
        assert getattr(hf_config, field) == fields[field]
    assert DecoderConfig(**fields) == config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rope_scaling", {"type": "yarn", "factor": 4.0}),
        ("rope_scaling", {"rope_type": "llama3", "factor": 4.0}),
        ("rope_parameters", {"rope_type": "default", "partial_rotary_factor": 0.5}),
        ("mlp_bias", True),
        ("rope_parameters", {"rope_type": "yarn", "factor": 4.0}),
        ("rope_parameters", {"sliding_attention": {"rope_theta": 1e5}}),
        ("rope_parameters", {"full_attention": {"rope_type": "yarn", "factor": 4.0}}),
        ("attention_dropout", 0.1),
        ("use_sliding_window", True),
        ("layer_types", ["full_attention", "sliding_attention"]),
        ("num_experts", 8),
        ("quantization_config", {"bits": 4}),
        ("hidden_act", "gelu"),
        ("hidden_size", None),
        ("vocab_size", 0),
        ("num_hidden_layers", 2.5),
        ("head_dim", 7),
        ("num_key_value_heads", 3),
        ("rope_theta", "large"),
        ("tie_word_embeddings", "yes"),
    ],
)
def test_config_rejects_unsupported_options(name, value):
    fields = QWEN3.to_hf()
    if name == "rope_theta":
        del fields["rope_parameters"]
    with pytest.raises(ValueError, match=name):
        DecoderConfig.from_hf({**fields, name: value})


def make_smollm_config(**changes):
    """The config.json of SmolLM2-135M-Instruct, without what says nothing of its shape."""
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "hidden_act": "silu",
        "hidden_size": 576,
        "initializer_range": 0.041666666666666664,
        "intermediate_size": 1536,
        "is_llama_config": True,
        "max_position_embeddings": 8192,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_interleaved": False,
        "rope_scaling": None,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
        "vocab_size": 49152,
    }
    return {name: value for name, value in (fields | changes).items() if value != "left out"}


def test_llama_config_uses_family_defaults():
    config = DecoderConfig.from_hf(make_smollm_config())
    assert (config.head_dim, config.rope_theta, config.tie_word_embeddings) == (64, 1e5, True)
    assert DecoderConfig.from_hf(make_smollm_config(head_dim=32)).head_dim == 32
    ungrouped_config = DecoderConfig.from_hf(make_smollm_config(num_key_value_heads="left out"))
    assert ungrouped_config.num_key_value_heads == 9
    scaling = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling["original_max_position_embeddings"] = 8192
    fields = make_smollm_config(rope_scaling=scaling | {"rope_type": "llama3"})
    assert DecoderConfig.from_hf(fields).rope_scaling == Llama3Rope(**scaling)
    assert sum(map(math.prod, parameter_shapes(config).values())) == 134_515_008


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gemma"}, "model_type must be one of 'qwen3', 'qwen2', 'llama'"),
        ({"attention_bias": True}, "attention_bias must be False, got True"),
        ({"hidden_size": 577}, "num_attention_heads = 9 if head_dim is missing, got 577"),
        ({"model_type": "qwen2", "head_dim": 32}, "in a qwen2 model, got 32"),
        ({"model_type": "mistral"}, "sliding_window must be an explicit null, got"),
        (
            {"model_type": "mistral", "sliding_window": 4096},
            "sliding_window must be an explicit null, got 4096",
        ),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 0,
                    "low_freq_factor": 4.0,
                    "high_freq_factor": 1.0,
                    "original_max_position_embeddings": 8192,
                }
            },
            "factor must be a finite number above 0, got 0",
        ),
    ],
)
def test_family_rejects_foreign_config_options(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        DecoderConfig.from_hf(make_smollm_config(**changes))


@pytest.mark.parametrize(("dtype", "precision"), [("float32", "HIGHEST"), ("bfloat16", "DEFAULT")])
@pytest.mark.parametrize("remat", [False, True])
def test_float32_products_are_exact_on_every_device(dtype: str, precision: str, remat: bool):
    """Seen in the program before it is compiled: a CPU computes both alike, a GPU does not."""
    model = make_random_model(QWEN3, dtype=dtype, remat=remat)
    ids, positions, mask = make_batch("right")
    graphdef, params = nnx.split(model, nnx.Param)

    def loss(params, ids, positions, mask):
        decoder = nnx.merge(graphdef, params)
        return token_logprobs(decoder, ids, positions, mask).sum()

    program = jax.jit(jax.grad(loss)).lower(params, ids, positions, mask).as_text()
    products = [line for line in program.splitlines() if "stablehlo.dot_general" in line]
    assert len(products) > 20
    precisions = f"precision = [{precision}, {precision}]"
    assert [line for line in products if precisions not in line] == []
