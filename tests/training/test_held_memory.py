"""What a run holds on its devices: one learner, also after it went on or took a stage back."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import pytest

from tests.paths import TINY
from tests.training.stand_in_sampler import without_vllm
from training import loop
from training.phases import train
from training.schema import load

CONFIG = load(TINY, ["warm_start.steps=10", "stages.count=3"])


@contextmanager
def held_at_updates() -> Iterator[list[int]]:
    """Yield a list that gets the bytes of all arrays at the beginning of every update."""
    held: list[int] = []
    take_update = train.take_update

    def noted(*args: Any, **kwargs: Any) -> Any:
        gc.collect()
        held.append(sum(array.nbytes for array in jax.live_arrays()))
        return take_update(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, without_vllm():
        patch.setattr(train, "take_update", noted)
        yield held


@pytest.mark.slow
def test_a_run_that_went_on_holds_no_more_than_one_that_did_not_stop(tmp_path: Path) -> None:
    with held_at_updates() as whole:
        loop.run(CONFIG, tmp_path / "whole", stop_after=2)
    with held_at_updates() as parts:
        for stage in (1, 2):
            loop.run(CONFIG, tmp_path / "parts", stop_after=stage)
    assert len(whole) == len(parts) == 8
    least = min(whole)
    assert least > 100_000
    # In the last stage the other run had stopped before.
    assert max(parts[5:]) < 1.1 * max(whole[5:])


@pytest.mark.slow
def test_a_stage_that_was_taken_back_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_at_updates() as usual:
        loop.run(CONFIG, tmp_path / "usual")
    monkeypatch.setattr(train, "reference_of", lambda results, _: len(results) - 2)
    with held_at_updates() as taken_back:
        loop.run(CONFIG, tmp_path / "taken_back")
    assert len(usual) == len(taken_back) == 12
    assert max(taken_back[5:8] + taken_back[9:]) < 1.1 * max(usual[5:8] + usual[9:])
