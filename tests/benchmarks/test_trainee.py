"""The trainee's update: measured here, and compared with TRL's."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from benchmarks.trainee.batches import LENGTHS, draw_answers, miniature
from benchmarks.trainee.beside import refuse_different_updates
from benchmarks.trainee.update import MODELS, Work, measure_update
from tests.paths import ROOT
from training.policy.architectures import DecoderConfig
from training.run.dry_run import KNOWN_SHAPES

TINY = DecoderConfig(64, 32, 48, 2, 4, 2, head_dim=8)


def test_models_have_the_shapes_that_the_dry_run_knows():
    for name, config in MODELS.items():
        fields = dataclasses.astuple(config)
        assert fields[:7] == KNOWN_SHAPES[f"Qwen/Qwen3-{name}"]


@pytest.mark.slow
def test_an_update_is_measured_with_weights_that_learn():
    measured = measure_update(TINY, Work(8, 2, 16, 2), updates=2)
    assert measured["device"] == jax.devices()[0].device_kind
    assert measured["seconds"] > 0
    assert measured["grad_norm"] > 0
    assert np.isfinite(measured["loss"])


def test_different_updates_of_the_two_sides_are_refused():
    same = {"plans": {"loss": -0.25, "grad_norm": 1.5}}
    refuse_different_updates({"ours": same, "TRL": {"plans": {"loss": -0.2501, "grad_norm": 1.5}}})
    for wrong in (-0.26, float("nan")):
        other = {"plans": {"loss": wrong, "grad_norm": 1.5}}
        with pytest.raises(ValueError, match=r"plans: loss is -0\.25 here"):
            refuse_different_updates({"ours": same, "TRL": other})


def test_both_sides_of_the_committed_comparison_took_the_same_update():
    result = json.loads((ROOT / "benchmarks/results/grpo-update.json").read_text())
    refuse_different_updates(result["first_updates"])
    assert set(result["rollouts"]) == set(LENGTHS)


@pytest.mark.slow
@pytest.mark.parametrize("lengths", LENGTHS)
def test_every_group_of_a_rollout_has_something_to_learn(lengths, tmp_path):
    config, _, _, boards = miniature(tmp_path / "model")
    answers, rewards = draw_answers(config, [length for _, length in boards], lengths)
    limit = config.prompt.max_tokens
    assert (rewards.max(axis=1) > rewards.min(axis=1)).all()
    assert all(1 <= len(tokens) <= limit for tokens in answers)
    cut = np.mean([len(tokens) == limit for tokens in answers])
    assert cut == 1 if lengths == "limit" else cut < 0.2
