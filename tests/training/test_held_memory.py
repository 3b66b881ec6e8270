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


def held_bytes() -> int:
    """Add up the bytes of all arrays; what several of them share, as views do, counts once."""
    shards = [shard.data for array in jax.live_arrays() for shard in array.addressable_shards]
    return sum({shard.unsafe_buffer_pointer(): shard.nbytes for shard in shards}.values())


@contextmanager
def held_at_updates() -> Iterator[list[int]]:
    """Yield a list that gets the bytes of all arrays at the beginning of every update."""
    held_counts: list[int] = []
    take_update = train.take_update

    def noted(run: ActiveRun, *args: Any, **kwargs: Any) -> Any:
        run.checkpoints.wait()  # until then a checkpoint holds the learner that it writes
        gc.collect()
        held_counts.append(held_bytes())
        return take_update(run, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, without_vllm():
        patch.setattr(train, "take_update", noted)
        yield held_counts


@pytest.mark.slow
def test_resumed_run_keeps_the_same_files(tmp_path: Path) -> None:
    with held_at_updates() as uninterrupted:
        loop.run(CONFIG, tmp_path / "whole", stop_after=2)
    with held_at_updates() as parts:
        for stage in (1, 2):
            loop.run(CONFIG, tmp_path / "parts", stop_after=stage)
    assert len(uninterrupted) == len(parts) == 8
    assert min(uninterrupted) > 100_000
    assert max(parts) < 1.1 * min(uninterrupted)


@pytest.mark.slow
def test_rolled_back_stage_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held_at_updates() as usual:
        loop.run(CONFIG, tmp_path / "usual")
    monkeypatch.setattr(train, "get_reference_stage", lambda results, _: len(results) - 2)
    with held_at_updates() as taken_back:
        loop.run(CONFIG, tmp_path / "taken_back")
    assert len(usual) == len(taken_back) == 12
    assert max(taken_back) < 1.1 * min(usual)
