"""A run that draws ahead: which weights answer, and that a kill changes nothing."""

from pathlib import Path
from typing import NoReturn

import pytest

from tests.paths import TINY
from tests.training.killed_run import dying_at
from tests.training.test_resume import files_of
from training import loop
from training.run.directory import RunDirectory
from training.run.records import UpdateMetrics
from training.schema import load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

OPTIONS = ["grpo.prefetch=1", "model.pretrained=jaxlake-base"]
OPTIONS += ["warm_start.learning_rate=1e-4", "stages.count=1", "engineer.kind=rule"]
OPTIONS += ["stages.instances=48"]  # six updates


class KilledError(BaseException):
    """Ends a run in this process; nothing catches it."""


def stop() -> NoReturn:
    raise KilledError


def assert_versions_follow(updates: list[UpdateMetrics]) -> None:
    """An update's answers are of the weights before the update before it.

    Those are others than the ones before, if that update had a gradient.
    """
    assert sum(one.grad_norm > 0 for one in updates) >= 3
    versions = [one.weight_version for one in updates]
    assert versions[0] == versions[1]  # both of the weights before the first update
    for before, now, update in zip(versions[1:], versions[2:], updates, strict=False):
        assert (now != before) == (update.grad_norm > 0)


@pytest.mark.parametrize("engine", ["jax", pytest.param("vllm", marks=pytest.mark.vllm)])
def test_a_killed_run_that_drew_ahead_ends_with_the_same_files(engine: str, tmp_path: Path) -> None:
    config = load(TINY, [*OPTIONS, f"sampling.engine={engine}"])
    loop.run(config, tmp_path / "whole")
    for point in ("rollout", "update", "validation"):
        with dying_at(point, stop), pytest.raises(KilledError):
            loop.run(config, tmp_path / "killed")
    loop.run(config, tmp_path / "killed")
    expected, found = files_of(tmp_path / "whole"), files_of(tmp_path / "killed")
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []
    metrics = RunDirectory(tmp_path / "whole").metrics.read()
    updates = [one for one in metrics if isinstance(one, UpdateMetrics)]
    assert [one.rollout_lag for one in updates] == [0, 1, 1, 1, 1, 1]
    assert_versions_follow(updates)
