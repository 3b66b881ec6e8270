"""The real loop with its own vLLM server, which prefetches rollouts during updates."""

from pathlib import Path

import psutil
import pytest

from tests.paths import TINY
from tests.training.test_prefetched_run import assert_versions_follow_gradients
from training import loop
from training.run.directory import RunDirectory
from training.sampling.server_process import COMMAND
from training.schema import load

OPTIONS = [
    "sampling.engine=server",
    "grpo.prefetch=1",
    "model.pretrained=jaxlake-base",
    "warm_start.learning_rate=1e-4",
    "stages.count=1",
]


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.timeout(1800)
def test_run_updates_and_ends_its_server(tmp_path: Path) -> None:
    loop.run(load(TINY, OPTIONS), tmp_path / "run")
    directory = RunDirectory(tmp_path / "run")
    assert directory.finished()
    updates = directory.updates()
    assert [update.rollout_lag for update in updates] == [0, 1, 1, 1]
    assert_versions_follow_gradients(updates)
    assert updates[0].sampler_gap < 1e-3
    commands = [
        " ".join(process.cmdline()) for process in psutil.Process().children(recursive=True)
    ]
    assert not [command for command in commands if COMMAND[-1] in command]
