"""After a sync the beginnings of sequences are scored under both: what vLLM has room for."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from training.phases.weight_sync import check_engine, compare_weights, sync_weights
from training.weight_transfer.checksums import SyncError

LENGTHS = (5, 200, 9000)
SEQUENCES = [list(range(length)) for length in LENGTHS]


class Both:
    """A policy and an engine that score a token by its number; the engine may be off by some."""

    def __init__(self, off: float = 0.0) -> None:
        self.off = off
        self.scored: dict[str, list[int]] = {}
        self.sequences: list[list[int]] = []

    def logprobs(self, params: Any, sequences: Any) -> list[np.ndarray]:
        return self._scores("policy", sequences, 0.0)

    def start_logprobs(self, params: Any, sequences: Any) -> Any:
        return lambda: self.logprobs(params, sequences)

    def score(self, sequences: Any) -> list[np.ndarray]:
        return self._scores("engine", sequences, self.off)

    def tensors(self, params: Any) -> Any:
        return ()

    def sync(self, tensors: Any) -> None:
        assert tensors == ()

    def encode_prompt(self, text: str) -> list[int]:
        return list(range(len(text)))

    def _scores(self, side: str, sequences: Any, off: float) -> list[np.ndarray]:
        self.scored[side] = [len(one) for one in sequences]
        self.sequences = [list(one) for one in sequences]
        return [np.array(one, np.float32) / 1000 - off for one in sequences]


class Boards(list[str]):
    def take(self, places: Any) -> list[str]:
        return [self[place] for place in places]


def run_of(both: Both, max_num_seqs: int) -> Any:
    settings = {"max_num_seqs": max_num_seqs, "sync_tolerance": 1e-3, "sync_sequences": 3}
    return SimpleNamespace(
        policy=both,
        config=SimpleNamespace(sampling=SimpleNamespace(**settings)),
        environment=SimpleNamespace(prompts=list),
        validation=Boards("x" * length for length in LENGTHS),
    )


def compare(run: Any, both: Any) -> Any:
    return compare_weights(run, None, both, SEQUENCES)


def sync(run: Any, both: Any) -> Any:
    answers = [SimpleNamespace(token_ids=tuple(one[2:])) for one in SEQUENCES]
    rollout: Any = SimpleNamespace(prompts=[one[:2] for one in SEQUENCES], completions=answers)
    return sync_weights(run, None, both, rollout)


def start(run: Any, both: Any) -> Any:
    return check_engine(run, None, both)


@pytest.mark.parametrize("call", [compare, sync, start])
@pytest.mark.parametrize(("max_num_seqs", "most"), [(256, 256), (8, 128)])
def test_no_more_tokens_are_scored_than_sequences_are_decoded_at_once(call, max_num_seqs, most):
    both = Both()
    gaps = call(run_of(both, max_num_seqs), both)
    assert both.scored["engine"] == both.scored["policy"] == [5, min(200, most), most]
    assert gaps.largest == 0.0


def test_a_completion_is_scored_after_its_own_prompt():
    both, prompts = Both(), [[1, 2], [3, 4, 5]]
    answers = [SimpleNamespace(token_ids=(10 * row,)) for row in range(1, 9)]
    rollout: Any = SimpleNamespace(prompts=prompts, completions=answers)
    sync_weights(run_of(both, 256), None, both, rollout)  # type: ignore[arg-type]
    assert both.sequences == [[1, 2, 10], [1, 2, 40], [3, 4, 5, 80]]


@pytest.mark.parametrize("call", [compare, sync, start])
def test_an_engine_that_is_off_in_these_tokens_stops_the_run(call):
    both = Both(off=0.002)
    with pytest.raises(SyncError, match=r"allowed is sampling\.sync_tolerance = 0\.001"):
        call(run_of(both, 256), both)
