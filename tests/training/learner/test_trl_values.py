"""The loss and its gradient against those of TRL's GRPOTrainer.

`python -m tests.training.learner.trl_values` writes TRL's values.
"""

import json
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from tests.training.learner.trl_values import (
    COMBINATIONS,
    MAX_TOKENS,
    TEMPERATURE,
    VALUES_FILE,
    compute_trl_values,
    make_rollout,
    make_settings,
    make_tiny_model,
    summarize_gradient,
)
from training.learner import grpo
from training.learner.packing import pack_groups, scatter_to_targets
from training.policy import huggingface


def compute_loss_and_gradients(combination: dict[str, Any]) -> tuple[float, dict[str, list[float]]]:
    """Return the loss, and the summary of each tensor's gradient by Hugging Face name."""
    settings, rollout = make_settings(combination), make_rollout(combination["masked"])
    groups = pack_groups(
        rollout.prompts,
        rollout.completions,
        rollout.is_trained,
        bundles=2,
        minibatches=1,
        micro_batch_bundles=1,
        width=MAX_TOKENS,
        bucket=2,
        pad_id=0,
    )
    flat_advantages = np.append(rollout.advantages.reshape(-1), 0).astype(np.float32)
    batch = grpo.GrpoBatch(
        groups,
        scatter_to_targets(rollout.sampler_logprobs, groups),
        scatter_to_targets(rollout.old_logprobs, groups),
        flat_advantages[groups.completions],
        scatter_to_targets(rollout.reference_logprobs, groups),
    )
    graphdef, params = nnx.split(make_tiny_model())

    @jax.jit
    @jax.value_and_grad
    def loss_and_gradient(params: Any) -> jax.Array:
        total, _ = grpo.summed_loss(
            params, batch, graphdef=graphdef, settings=settings, temperature=TEMPERATURE
        )
        return total / grpo.loss_weight(batch, settings)

    loss, gradient = loss_and_gradient(params)
    tensors = huggingface.state_tensors(nnx.merge(graphdef, gradient), untied=True)
    return float(loss), {name: summarize_gradient(name, np.asarray(leaf)) for name, leaf in tensors}


QUICK_CASE = COMBINATIONS[-1]  # masked, GSPO, with a KL term and a constant length


@pytest.mark.parametrize(
    "combination",
    [pytest.param(c, marks=() if c == QUICK_CASE else pytest.mark.slow) for c in COMBINATIONS],
    ids=lambda combination: "-".join(map(str, combination.values())),
)
def test_loss_and_gradient_agree_with_trl(combination: dict[str, Any]) -> None:
    (expected,) = (
        entry
        for entry in json.loads(VALUES_FILE.read_text())["combinations"]
        if combination.items() <= entry.items()
    )
    loss, gradients = compute_loss_and_gradients(combination)
    scale = 1.0
    if combination["aggregation"] == "sequence_mean":
        # TRL's mean includes masked completions, with a loss of 0.
        is_trained = make_rollout(combination["masked"]).is_trained
        scale = is_trained.size / is_trained.sum()
    assert loss == pytest.approx(expected["loss"] * scale, rel=1e-5)
    assert gradients.keys() == expected["gradients"].keys()
    for name, (norm, projection) in expected["gradients"].items():
        assert norm > 0
        assert gradients[name][0] == pytest.approx(norm * scale, rel=2e-5), name
        assert gradients[name][1] == pytest.approx(projection * scale, abs=5e-5 * norm), name


@pytest.mark.slow
def test_stored_trl_values_are_reproducible() -> None:
    pytest.importorskip("trl")
    expected_results = json.loads(VALUES_FILE.read_text())["combinations"]
    results = compute_trl_values()["combinations"]
    assert len(results) == len(expected_results) == len(COMBINATIONS)
    for result, expected_result in zip(results, expected_results, strict=True):
        assert result["loss"] == pytest.approx(expected_result["loss"], rel=1e-5)
        for name, (norm, projection) in expected_result["gradients"].items():
            assert result["gradients"][name] == pytest.approx([norm, projection], abs=2e-5 * norm)
