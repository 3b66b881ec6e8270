"""The benchmark measures an update and rejects unequal updates of the two trainers."""

import json

import jax
import numpy as np
import pytest

from benchmarks.trainee.batches import ROLLOUT_SETS
from benchmarks.trainee.beside import require_equal_updates
from benchmarks.trainee.update import Work, measure_update
from tests.paths import ROOT
from training.policy.architectures import DecoderConfig

TINY_MODEL = DecoderConfig(64, 32, 48, 2, 4, 2, head_dim=8)


@pytest.mark.slow
def test_benchmark_update_changes_weights():
    measurement = measure_update(TINY_MODEL, Work(8, 2, 16, 2), repeats=2)
    assert measurement["device"] == jax.devices()[0].device_kind
    assert measurement["seconds"] > 0
    assert measurement["grad_norm"] > 0
    assert np.isfinite(measurement["loss"])


def test_unequal_updates_are_rejected():
    updates = {"plans": {"loss": -0.25, "grad_norm": 1.5}}
    require_equal_updates({"ours": updates, "TRL": {"plans": {"loss": -0.2501, "grad_norm": 1.5}}})
    for wrong_loss in (-0.26, float("nan")):
        trl_updates = {"plans": {"loss": wrong_loss, "grad_norm": 1.5}}
        with pytest.raises(ValueError, match=r"plans: loss is -0\.25 here"):
            require_equal_updates({"ours": updates, "TRL": trl_updates})


def test_committed_comparison_has_equal_updates():
    result = json.loads((ROOT / "benchmarks/results/grpo-update.json").read_text())
    require_equal_updates(result["first_updates"])
    assert set(result["rollouts"]) == set(ROLLOUT_SETS)
