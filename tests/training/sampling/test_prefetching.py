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

ARGUMENTS: dict[str, Any] = {"n": 2, "temperature": 0.7, "max_tokens": 9, "stop_token_ids": [2]}


class FakeEngine:
    """A sampler that answers with its version and the seed, and records the calling threads.

    Other threads wait until `held` is set.
    """

    def __init__(self) -> None:
        self.weight_version = "0"
        self.asked: list[tuple[int, str]] = []  # seeds, and threads
        self.held = threading.Event()
        self.held.set()
        self.closed = False
        self.gives_up = True  # a rollout, once it is closed

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        thread = threading.current_thread()
        assert thread is threading.main_thread() or self.held.wait(20)
        self.asked.append((request.seed, thread.name))
        number = float(np.pi) * (1 + int(self.weight_version))
        completion = Completion(
            (request.seed, int(self.weight_version)), np.float32([-number, -0.1]), False
        )
        return [[completion] * request.n for _ in request.prompts]

    def close(self) -> None:
        self.closed = True
        if self.gives_up:
            self.held.set()

    def sync(self, tensors: Any) -> None:
        self.weight_version = str(int(self.weight_version) + 1)


def ask(sampler: PrefetchingSampler, seed: int, ahead: int | None = None) -> Completion:
    if ahead is not None:
        sampler.expect(SamplingRequest([[3, 4]], seed=ahead, **ARGUMENTS))
    groups = sampler.sample(SamplingRequest([np.array([3, 4])], seed=seed, **ARGUMENTS))
    assert [len(group) for group in groups] == [2]
    return groups[0][0]


def test_announced_rollouts_use_weights_before_the_sync() -> None:
    engine = FakeEngine()
    sampler = PrefetchingSampler(engine)
    assert ask(sampler, 10, ahead=11).token_ids == (10, 0)
    assert (sampler.weight_version, sampler.lag) == ("0", 0)
    sampler.sync(())
    assert ask(sampler, 11, ahead=12).token_ids == (11, 0)
    assert (sampler.weight_version, sampler.lag) == ("0", 1)
    sampler.sync(())
    assert ask(sampler, 12).token_ids == (12, 1)
    assert (sampler.weight_version, sampler.lag) == ("1", 1)
    assert ask(sampler, 13).token_ids == (13, 2)  # which was not announced
    assert (sampler.weight_version, sampler.lag) == ("2", 0)
    main_thread = threading.current_thread().name
    assert engine.asked == [
        (10, main_thread),
        (11, "Prefetch"),
        (12, "Prefetch"),
        (13, main_thread),
    ]


def test_sync_waits_for_a_prefetched_rollout() -> None:
    engine = FakeEngine()
    sampler = PrefetchingSampler(engine)
    engine.held.clear()
    assert ask(sampler, 10, ahead=11).token_ids == (10, 0)
    assert [seed for seed, _ in engine.asked] == [10]  # here the trainer would compute
    threading.Timer(0.3, engine.held.set).start()
    sampler.sync(())
    assert [seed for seed, _ in engine.asked] == [10, 11]
    assert ask(sampler, 11).token_ids == (11, 0)


def test_engine_error_is_raised_at_the_next_sample() -> None:
    engine = FakeEngine()
    sampler = PrefetchingSampler(engine)
    sampler.expect(SamplingRequest([[3, 4]], seed=11, **ARGUMENTS))
    first = engine.sample

    def fail(request: SamplingRequest) -> Any:
        if request.seed == 11:
            raise UserError("the servers are gone")
        return first(request)

    engine.sample = fail  # type: ignore[method-assign]
    ask(sampler, 10)
    with pytest.raises(UserError, match="the servers are gone"):
        sampler.sync(())


def test_prefetched_rollouts_round_trip_exactly(tmp_path: Path) -> None:
    engine = FakeEngine()
    sampler = PrefetchingSampler(engine)
    ask(sampler, 10, ahead=11)
    sampler.sync(())
    sampler.save_rollout(tmp_path / "kept", 4)
    expected = ask(sampler, 11)
    resumed = PrefetchingSampler(later := FakeEngine())
    later.weight_version = "1"
    resumed.restore_rollout(tmp_path / "kept", 4)
    completion = ask(resumed, 11)
    assert completion.token_ids == expected.token_ids
    np.testing.assert_array_equal(completion.logprobs, expected.logprobs)
    assert completion.logprobs.dtype == np.float32
    assert (resumed.weight_version, resumed.lag) == ("0", 1)
    assert later.asked == []


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
    ask(sampler, 10, ahead=11)
    sampler.save_rollout(tmp_path, 4)
    resumed = PrefetchingSampler(later := FakeEngine())
    resumed.restore_rollout(tmp_path, 4)
    with pytest.raises(UserError, match="its prompts and settings differ") as caught:
        ask(resumed, 12)
    assert str(caught.value).startswith(str(tmp_path / "000000004.json"))
    assert later.asked == []


class OwnDecoder(FakeEngine, JaxSampler):
    weight_version = "0"


def ended(sampler: PrefetchingSampler) -> None:
    """Be ended while a rollout is drawn ahead."""
    with sampler:
        ask(sampler, 10, ahead=11)
        raise SystemExit(143)


def test_ended_run_waits_for_the_jax_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends while a program of JAX's runs is aborted, with another exit status."""
    monkeypatch.setattr(prefetching, "_ABORT_SECONDS", 0.0)
    engine = OwnDecoder()
    engine.held.clear()
    engine.gives_up = False
    threading.Timer(0.3, engine.held.set).start()
    with pytest.raises(SystemExit):
        ended(PrefetchingSampler(engine))
    assert engine.closed
    assert [seed for seed, _ in engine.asked] == [10, 11]


@pytest.mark.parametrize("gives_up", [True, False])
def test_ended_run_closes_the_engine(gives_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm kills what has not ended by itself two minutes after SIGTERM."""
    monkeypatch.setattr(prefetching, "_ABORT_SECONDS", 0.2)
    engine = FakeEngine()
    engine.held.clear()
    engine.gives_up = gives_up
    start = time.monotonic()
    with pytest.raises(SystemExit):
        ended(PrefetchingSampler(engine))
    assert time.monotonic() - start < 5
    assert engine.closed
    engine.held.set()
