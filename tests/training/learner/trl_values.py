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

VALUES = ROOT / "tests/training/learner/trl_values.json"
TEMPERATURE = 0.8
PROMPTS, COMPLETIONS, LIMIT = 4, 3, 7
VOCABULARY = 24
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
    old: list[np.ndarray]
    sampler: list[np.ndarray]
    reference: list[np.ndarray]


def tiny_model() -> Decoder:
    """Make the model whose weights follow from a seed of NumPy's."""
    shape = DecoderConfig(VOCABULARY, 16, 24, 2, 2, 1, head_dim=8, rope_theta=1e4)
    model = Decoder(shape, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(0)
    for path, leaf in sorted(nnx.to_flat_state(nnx.state(model, nnx.Param)), key=str):
        near_one = "norm" in str(path[-1])
        leaf[...] = (near_one + rng.normal(0, 0.3, leaf.shape)).astype(np.float32)
    return model


def make_rollout(masked: bool) -> Rollout:
    """Draw the batch; `masked` leaves some completions out, as truncated ones are."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, LIMIT + 1, PROMPTS * COMPLETIONS)
    lengths[0] = LIMIT

    def draw_logprobs(spread: float) -> list[np.ndarray]:
        return [rng.normal(-3.2, spread, n).astype(np.float32) for n in lengths]

    is_trained = rng.random((PROMPTS, COMPLETIONS)) < (0.7 if masked else 1.0)
    return Rollout(
        [rng.integers(0, VOCABULARY, n).tolist() for n in rng.integers(1, 6, PROMPTS)],
        [rng.integers(0, VOCABULARY, n).tolist() for n in lengths],
        is_trained,
        rng.normal(size=is_trained.shape).astype(np.float32),
        *(draw_logprobs(spread) for spread in (0.3, 0.5, 0.8)),
    )


def make_settings(combination: dict[str, Any]) -> GrpoConfig:
    """Return the options of a combination, with clips that some ratios exceed."""
    options = {name: value for name, value in combination.items() if name != "masked"}
    return GrpoConfig(completions=COMPLETIONS, clip_low=0.2, clip_high=0.28, **options)


def summarize_gradient(name: str, gradient: np.ndarray) -> list[float]:
    """Return the summary of a tensor's gradient: its norm and its product with random numbers."""
    rng = np.random.default_rng(list(name.encode()))
    wide = np.asarray(gradient, np.float64)
    return [float(np.linalg.norm(wide)), float((wide * rng.normal(size=wide.shape)).sum())]


def trl_values() -> dict[str, Any]:
    """Let TRL compute all combinations."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    from benchmarks.trainee.trl_trainer import make_trainer, trl_inputs

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1", pad_token="w2")
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = huggingface.save(tiny_model(), Path(scratch) / "model", tokenizer_from=None)
        for combination in COMBINATIONS:
            settings, data = make_settings(combination), make_rollout(bool(combination["masked"]))
            pairs = zip(data.old, data.sampler, strict=True)
            inputs = trl_inputs(
                data.prompts,
                data.completions,
                data.is_trained,
                data.advantages,
                [np.minimum(np.exp(a - b), settings.importance_cap) for a, b in pairs],
                pad_id=0,
                old_logprobs=data.old,
                reference_logprobs=data.reference,
            )
            rows = len(data.completions)
            trainer = make_trainer(
                folder,
                tokenizer,
                settings,
                Path(scratch) / "trainer",
                temperature=TEMPERATURE,
                max_tokens=LIMIT,
                num_completions=rows,
                micro_batch_size=rows,
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
    write_text_atomic(VALUES, json.dumps(trl_values(), indent=1) + "\n")


if __name__ == "__main__":
    main()
