"""A run holds one learner on its devices, also after it resumes or rolls a stage back."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import pytest

from tests.paths import TINY
from tests.training.fake_run import without_vllm
from training import loop
from training.phases import train
from training.run.active_run import ActiveRun
from training.schema import load

CONFIG = load(TINY, ["warm_start.steps=10", "stages.count=3"])


def count_live_bytes() -> int:
    """Add up the bytes of all arrays; what several of them share, as views do, counts once."""
    shards = [shard.data for array in jax.live_arrays() for shard in array.addressable_shards]
    return sum({shard.unsafe_buffer_pointer(): shard.nbytes for shard in shards}.values())


@contextmanager
def record_live_bytes() -> Iterator[list[int]]:
    """Yield a list that gets the bytes of all arrays at the beginning of every update."""
    live_bytes: list[int] = []
    take_update = train.take_update

    def record_and_update(run: ActiveRun, *args: Any, **kwargs: Any) -> Any:
        run.checkpoints.wait()  # until then a checkpoint holds the learner that it writes
        gc.collect()
        live_bytes.append(count_live_bytes())
        return take_update(run, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, without_vllm():
        patch.setattr(train, "take_update", record_and_update)
        yield live_bytes


@pytest.mark.slow
def test_resumed_run_holds_one_learner(tmp_path: Path) -> None:
    with record_live_bytes() as uninterrupted_bytes:
        loop.run(CONFIG, tmp_path / "whole", stop_after=2)
    with record_live_bytes() as resumed_bytes:
        for stage in (1, 2):
            loop.run(CONFIG, tmp_path / "parts", stop_after=stage)
    assert len(uninterrupted_bytes) == len(resumed_bytes) == 8
    assert min(uninterrupted_bytes) > 100_000
    assert max(resumed_bytes) < 1.1 * min(uninterrupted_bytes)


@pytest.mark.slow
def test_rolled_back_stage_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with record_live_bytes() as usual_bytes:
        loop.run(CONFIG, tmp_path / "usual")
    monkeypatch.setattr(train, "get_reference_stage", lambda results, _: len(results) - 2)
    with record_live_bytes() as rollback_bytes:
        loop.run(CONFIG, tmp_path / "taken_back")
    assert len(usual_bytes) == len(rollback_bytes) == 12
    assert max(rollback_bytes) < 1.1 * min(usual_bytes)
