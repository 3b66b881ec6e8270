"""Prefetched rollouts use the weights before the sync and are saved exactly."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from training.errors import UserError
from training.sampling import prefetching
from training.sampling.jax_sampler import JaxSampler
from training.sampling.prefetching import PrefetchingSampler
from training.sampling.sampler import Completion, SamplingRequest

FIELDS: dict[str, Any] = {"n": 2, "temperature": 0.7, "max_tokens": 9, "stop_token_ids": [2]}


class FakeEngine:
    """A sampler that answers with its version and the seed, and records the calling threads.

    Other threads wait until `release_event` is set.
    """

    def __init__(self) -> None:
        self.weight_version = "0"
        self.calls: list[tuple[int, str]] = []  # seeds, and threads
        self.release_event = threading.Event()
        self.release_event.set()
        self.is_closed = False
        self.can_abort = True  # a rollout, once it is closed

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        thread = threading.current_thread()
        assert thread is threading.main_thread() or self.release_event.wait(20)
        self.calls.append((request.seed, thread.name))
        logprob = float(np.pi) * (1 + int(self.weight_version))
        completion = Completion(
            (request.seed, int(self.weight_version)), np.float32([-logprob, -0.1]), False
        )
        return [[completion] * request.n for _ in request.prompts]

    def close(self) -> None:
        self.is_closed = True
        if self.can_abort:
            self.release_event.set()

    def sync(self, tensors: Any) -> None:
        self.weight_version = str(int(self.weight_version) + 1)


def draw_answer(sampler: PrefetchingSampler, seed: int, next_seed: int | None = None) -> Completion:
    if next_seed is not None:
        sampler.expect(SamplingRequest([[3, 4]], seed=next_seed, **FIELDS))
    groups = sampler.sample(SamplingRequest([np.array([3, 4])], seed=seed, **FIELDS))
    assert [len(group) for group in groups] == [2]
    return groups[0][0]


def test_announced_rollouts_use_weights_before_the_sync() -> None:
    engine = FakeEngine()
    sampler = PrefetchingSampler(engine)
    assert draw_answer(sampler, 10, next_seed=11).token_ids == (10, 0)
    assert (sampler.weight_version, sampler.lag) == ("0", 0)
    sampler.sync(())
    assert draw_answer(sampler, 11, next_seed=12).token_ids == (11, 0)
    assert (sampler.weight_version, sampler.lag) == ("0", 1)
    sampler.sync(())
    assert draw_answer(sampler, 12).token_ids == (12, 1)
    assert (sampler.weight_version, sampler.lag) == ("1", 1)
    assert draw_answer(sampler, 13).token_ids == (13, 2)  # which was not announced
    assert (sampler.weight_version, sampler.lag) == ("2", 0)
    main_thread = threading.current_thread().name
    assert engine.calls == [
        (10, main_thread),
        (11, "Prefetch"),
        (12, "Prefetch"),
        (13, main_thread),
    ]


def test_sync_waits_for_a_prefetched_rollout() -> None:
    engine = FakeEngine()
    sampler = PrefetchingSampler(engine)
    engine.release_event.clear()
    assert draw_answer(sampler, 10, next_seed=11).token_ids == (10, 0)
    assert [seed for seed, _ in engine.calls] == [10]  # here the trainer would compute
    threading.Timer(0.3, engine.release_event.set).start()
    sampler.sync(())
    assert [seed for seed, _ in engine.calls] == [10, 11]
    assert draw_answer(sampler, 11).token_ids == (11, 0)


def test_engine_error_is_raised_at_the_next_sample() -> None:
    engine = FakeEngine()
    sampler = PrefetchingSampler(engine)
    sampler.expect(SamplingRequest([[3, 4]], seed=11, **FIELDS))
    sample = engine.sample

    def fail(request: SamplingRequest) -> Any:
        if request.seed == 11:
            raise UserError("the servers are gone")
        return sample(request)

    engine.sample = fail  # type: ignore[method-assign]
    draw_answer(sampler, 10)
    with pytest.raises(UserError, match="the servers are gone"):
        sampler.sync(())


def test_prefetched_rollouts_round_trip_exactly(tmp_path: Path) -> None:
    engine = FakeEngine()
    sampler = PrefetchingSampler(engine)
    draw_answer(sampler, 10, next_seed=11)
    sampler.sync(())
    sampler.save_rollout(tmp_path / "kept", 4)
    expected = draw_answer(sampler, 11)
    resumed_sampler = PrefetchingSampler(resumed_engine := FakeEngine())
    resumed_engine.weight_version = "1"
    resumed_sampler.restore_rollout(tmp_path / "kept", 4)
    completion = draw_answer(resumed_sampler, 11)
    assert completion.token_ids == expected.token_ids
    np.testing.assert_array_equal(completion.logprobs, expected.logprobs)
    assert completion.logprobs.dtype == np.float32
    assert (resumed_sampler.weight_version, resumed_sampler.lag) == ("0", 1)
    assert resumed_engine.calls == []


@pytest.mark.parametrize("text", [None, "{", "{}", '{"question": 3}'])
def test_missing_prefetched_rollout_is_named(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "000000004.json").write_text(text)
    with pytest.raises(
        UserError, match=r"000000004\.json: the prefetched rollout .* can't be read"
    ):
        PrefetchingSampler(FakeEngine()).restore_rollout(tmp_path, 4)


def test_prefetched_rollout_of_other_prompts_is_rejected(tmp_path: Path) -> None:
    sampler = PrefetchingSampler(FakeEngine())
    draw_answer(sampler, 10, next_seed=11)
    sampler.save_rollout(tmp_path, 4)
    resumed_sampler = PrefetchingSampler(resumed_engine := FakeEngine())
    resumed_sampler.restore_rollout(tmp_path, 4)
    with pytest.raises(UserError, match="its prompts and settings differ") as error_info:
        draw_answer(resumed_sampler, 12)
    assert str(error_info.value).startswith(str(tmp_path / "000000004.json"))
    assert resumed_engine.calls == []


class FakeJaxSampler(FakeEngine, JaxSampler):
    weight_version = "0"


def exit_while_prefetching(sampler: PrefetchingSampler) -> None:
    """Be ended while a rollout is drawn ahead."""
    with sampler:
        draw_answer(sampler, 10, next_seed=11)
        raise SystemExit(143)


def test_ended_run_waits_for_the_jax_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends while a program of JAX's runs is aborted, with another exit status."""
    monkeypatch.setattr(prefetching, "_ABORT_SECONDS", 0.0)
    engine = FakeJaxSampler()
    engine.release_event.clear()
    engine.can_abort = False
    threading.Timer(0.3, engine.release_event.set).start()
    with pytest.raises(SystemExit):
        exit_while_prefetching(PrefetchingSampler(engine))
    assert engine.is_closed
    assert [seed for seed, _ in engine.calls] == [10, 11]


@pytest.mark.parametrize("can_abort", [True, False])
def test_ended_run_closes_the_engine(can_abort: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm kills what has not ended by itself two minutes after SIGTERM."""
    monkeypatch.setattr(prefetching, "_ABORT_SECONDS", 0.2)
    engine = FakeEngine()
    engine.release_event.clear()
    engine.can_abort = can_abort
    start = time.monotonic()
    with pytest.raises(SystemExit):
        exit_while_prefetching(PrefetchingSampler(engine))
    assert time.monotonic() - start < 5
    assert engine.is_closed
    engine.release_event.set()
