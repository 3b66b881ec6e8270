"""The loss and its gradient beside those of TRL's GRPOTrainer, a published trainer.

`python -m tests.training.learner.trl_values` has written what TRL computed.
"""

import json
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from tests.training.learner.trl_values import (
    COMBINATIONS,
    LIMIT,
    TEMPERATURE,
    VALUES,
    case,
    kept,
    settings_of,
    tiny_model,
    trl_values,
)
from training.learner import grpo
from training.learner.packing import pack_groups, scatter_to_targets
from training.policy import huggingface


def ours(combination: dict[str, Any]) -> tuple[float, dict[str, list[float]]]:
    """Return the loss, and the summary of each tensor's gradient by Hugging Face name."""
    settings, data = settings_of(combination), case(combination["masked"])
    groups = pack_groups(
        data.prompts,
        data.completions,
        data.is_trained,
        bundles=2,
        minibatches=1,
        micro_batch_bundles=1,
        width=LIMIT,
        bucket=2,
        pad_id=0,
    )
    flat = np.append(data.advantages.reshape(-1), 0).astype(np.float32)
    scattered = [scatter_to_targets(logprobs, groups) for logprobs in (data.sampler, data.old)]
    reference = scatter_to_targets(data.reference, groups)
    batch = grpo.GrpoBatch(groups, *scattered, flat[groups.completions], reference)
    graphdef, params = nnx.split(tiny_model())

    @jax.jit
    @jax.value_and_grad
    def loss_and_gradient(params: Any) -> jax.Array:
        total, _ = grpo.summed_loss(
            params, batch, graphdef=graphdef, settings=settings, temperature=TEMPERATURE
        )
        return total / grpo.loss_weight(batch, settings)

    loss, gradient = loss_and_gradient(params)
    tensors = huggingface.state_tensors(nnx.merge(graphdef, gradient), untied=True)
    return float(loss), {name: kept(name, np.asarray(tensor)) for name, tensor in tensors}


QUICK = COMBINATIONS[-1]  # masked, GSPO, with a KL term and a constant length


@pytest.mark.parametrize(
    "combination",
    [pytest.param(one, marks=() if one == QUICK else pytest.mark.slow) for one in COMBINATIONS],
    ids=lambda one: "-".join(map(str, one.values())),
)
def test_loss_and_gradient_agree_with_trl(combination: dict[str, Any]) -> None:
    (stored,) = (
        entry
        for entry in json.loads(VALUES.read_text())["combinations"]
        if combination.items() <= entry.items()
    )
    loss, gradients = ours(combination)
    scale = 1.0
    if combination["aggregation"] == "sequence_mean":
        # TRL's mean counts completions that are left out, as completions whose loss is 0.
        is_trained = case(combination["masked"]).is_trained
        scale = is_trained.size / is_trained.sum()
    assert loss == pytest.approx(stored["loss"] * scale, rel=1e-5)
    assert gradients.keys() == stored["gradients"].keys()
    for name, (norm, product) in stored["gradients"].items():
        assert norm > 0
        assert gradients[name][0] == pytest.approx(norm * scale, rel=2e-5), name
        assert gradients[name][1] == pytest.approx(product * scale, abs=5e-5 * norm), name


@pytest.mark.slow
def test_stored_trl_values_are_reproducible() -> None:
    pytest.importorskip("trl")
    again, stored = trl_values()["combinations"], json.loads(VALUES.read_text())["combinations"]
    assert len(again) == len(stored) == len(COMBINATIONS)
    for computed, expected in zip(again, stored, strict=True):
        assert computed["loss"] == pytest.approx(expected["loss"], rel=1e-5)
        for name, (norm, product) in expected["gradients"].items():
            assert computed["gradients"][name] == pytest.approx([norm, product], abs=2e-5 * norm)
