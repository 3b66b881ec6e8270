"""The weights that answer in a run with prefetching."""

from pathlib import Path

import pytest

from tests.paths import TINY
from training import loop
from training.run.directory import RunDirectory
from training.run.records import UpdateMetrics
from training.schema import load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

OPTIONS = ["grpo.prefetch=1", "model.pretrained=jaxlake-base"]
OPTIONS += ["warm_start.learning_rate=1e-4", "stages.count=1", "engineer.kind=rule"]
OPTIONS += ["stages.instances=48"]  # six updates


def assert_versions_follow_gradients(updates: list[UpdateMetrics]) -> None:
    """An update's answers are of the weights before the update before it.

    Those are others than the ones before, if that update had a gradient.
    """
    assert sum(record.grad_norm > 0 for record in updates) >= 3
    versions = [record.weight_version for record in updates]
    assert versions[0] == versions[1]  # both of the weights before the first update
    for previous_version, version, update in zip(versions[1:], versions[2:], updates, strict=False):
        assert (version != previous_version) == (update.grad_norm > 0)


@pytest.mark.parametrize("engine", ["jax", pytest.param("vllm", marks=pytest.mark.vllm)])
def test_prefetched_answers_lag_by_one_update(engine: str, tmp_path: Path) -> None:
    loop.run(load(TINY, [*OPTIONS, f"sampling.engine={engine}"]), tmp_path)
    updates = RunDirectory(tmp_path).updates()
    assert [update.rollout_lag for update in updates] == [0, 1, 1, 1, 1, 1]
    assert_versions_follow_gradients(updates)
