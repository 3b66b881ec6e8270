"""Compute TRL's losses and gradients for each option, for a test to compare the trainer's with.

python -m tests.training.learner.trl_values     # writes tests/training/learner/trl_values.json

A tiny Qwen3 and a random batch are drawn from seeds. TRL's GRPOTrainer computes the loss, and
PyTorch its gradient. Two numbers summarize each tensor's gradient: its norm and its product with
random numbers. Both can't agree by chance.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx

from jaxlake.files import write_text_atomic
from tests.paths import ROOT
from training.policy import huggingface
from training.policy.architectures import DecoderConfig
from training.policy.decoder import Decoder
from training.schema import GrpoConfig

VALUES_FILE = ROOT / "tests/training/learner/trl_values.json"
TEMPERATURE = 0.8
NUM_PROMPTS, NUM_COMPLETIONS, MAX_TOKENS = 4, 3, 7
VOCABULARY_SIZE = 24
COMBINATIONS = [
    {"ratio": ratio, "kl_coefficient": kl, "aggregation": aggregation, "masked": masked}
    for ratio, kl, aggregation, masked in product(
        ("token", "sequence"),
        (0.0, 0.1),
        ("token_mean", "sequence_mean", "constant_length"),
        (False, True),
    )
]


@dataclass(frozen=True)
class Rollout:
    """A random batch; its log-probabilities, in nats, are close to the model's."""

    prompts: list[list[int]]
    completions: list[list[int]]
    is_trained: np.ndarray  # bool (P, n)
    advantages: np.ndarray  # float32 (P, n)
    old_logprobs: list[np.ndarray]
    sampler_logprobs: list[np.ndarray]
    reference_logprobs: list[np.ndarray]


def make_tiny_model() -> Decoder:
    """Make the model whose weights follow from a seed of NumPy's."""
    config = DecoderConfig(VOCABULARY_SIZE, 16, 24, 2, 2, 1, head_dim=8, rope_theta=1e4)
    model = Decoder(config, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(0)
    for path, leaf in sorted(nnx.to_flat_state(nnx.state(model, nnx.Param)), key=str):
        is_norm = "norm" in str(path[-1])
        leaf[...] = (is_norm + rng.normal(0, 0.3, leaf.shape)).astype(np.float32)
    return model


def make_rollout(masked: bool) -> Rollout:
    """Draw the batch; `masked` leaves some completions out, as truncated ones are."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, MAX_TOKENS + 1, NUM_PROMPTS * NUM_COMPLETIONS)
    lengths[0] = MAX_TOKENS

    def draw_logprobs(deviation: float) -> list[np.ndarray]:
        return [rng.normal(-3.2, deviation, n).astype(np.float32) for n in lengths]

    is_trained = rng.random((NUM_PROMPTS, NUM_COMPLETIONS)) < (0.7 if masked else 1.0)
    return Rollout(
        [rng.integers(0, VOCABULARY_SIZE, n).tolist() for n in rng.integers(1, 6, NUM_PROMPTS)],
        [rng.integers(0, VOCABULARY_SIZE, n).tolist() for n in lengths],
        is_trained,
        rng.normal(size=is_trained.shape).astype(np.float32),
        *(draw_logprobs(deviation) for deviation in (0.3, 0.5, 0.8)),
    )


def make_settings(combination: dict[str, Any]) -> GrpoConfig:
    """Return the options of a combination, with clips that some ratios exceed."""
    options = {name: value for name, value in combination.items() if name != "masked"}
    return GrpoConfig(completions=NUM_COMPLETIONS, clip_low=0.2, clip_high=0.28, **options)


def summarize_gradient(name: str, gradient: np.ndarray) -> list[float]:
    """Return the summary of a tensor's gradient: its norm and its product with random numbers."""
    rng = np.random.default_rng(list(name.encode()))
    values = np.asarray(gradient, np.float64)
    return [float(np.linalg.norm(values)), float((values * rng.normal(size=values.shape)).sum())]


def compute_trl_values() -> dict[str, Any]:
    """Let TRL compute all combinations."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    from benchmarks.trainee.trl_trainer import make_trainer, trl_inputs

    vocabulary = {f"w{i}": i for i in range(VOCABULARY_SIZE)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="w1", pad_token="w2")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        model = huggingface.save(make_tiny_model(), Path(folder) / "model", tokenizer_from=None)
        for combination in COMBINATIONS:
            settings, rollout = make_settings(combination), make_rollout(combination["masked"])
            pairs = zip(rollout.old_logprobs, rollout.sampler_logprobs, strict=True)
            inputs = trl_inputs(
                rollout.prompts,
                rollout.completions,
                rollout.is_trained,
                rollout.advantages,
                [np.minimum(np.exp(a - b), settings.importance_cap) for a, b in pairs],
                pad_id=0,
                old_logprobs=rollout.old_logprobs,
                reference_logprobs=rollout.reference_logprobs,
            )
            num_rows = len(rollout.completions)
            trainer = make_trainer(
                model,
                tokenizer,
                settings,
                Path(folder) / "trainer",
                temperature=TEMPERATURE,
                max_tokens=MAX_TOKENS,
                num_completions=num_rows,
                micro_batch_size=num_rows,
            )
            loss = trainer.compute_loss(trainer.model, inputs)
            loss.backward()
            gradients = {
                name: summarize_gradient(name, leaf.grad.numpy())
                for name, leaf in trainer.model.named_parameters()
            }
            results.append(combination | {"loss": loss.item(), "gradients": gradients})
    packages = ("trl", "transformers", "torch")
    return {"versions": {name: version(name) for name in packages}, "combinations": results}


def main() -> None:
    """Write the file."""
    argparse.ArgumentParser(prog="python -m tests.training.learner.trl_values").parse_args()
    write_text_atomic(VALUES_FILE, json.dumps(compute_trl_values(), indent=1) + "\n")


if __name__ == "__main__":
    main()
