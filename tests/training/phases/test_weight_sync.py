"""An engine that disagrees with the trainer stops the run."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from training.phases.weight_sync import check_engine, check_rollout
from training.schema import SamplingConfig
from training.weight_transfer.checksums import SyncError

PROMPTS = [list(range(length)) for length in (5, 200, 9000, 7, 11)]


class PolicyAndEngine:
    """Test double for both: scores tokens by their numbers, the engine's lower by `offset`."""

    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset
        self.scored_lengths: dict[str, list[int]] = {}
        self.calls: list[str] = []

    def logprobs(self, params: Any, sequences: Any) -> list[np.ndarray]:
        return self._scores("policy", sequences, 0.0)

    def score(self, sequences: Any) -> list[np.ndarray]:
        return self._scores("engine", sequences, self.offset)

    def tensors(self, params: Any) -> Any:
        return ()

    def sync(self, tensors: Any) -> None:
        self.calls.append("sync")

    def drop_cache(self) -> None:
        self.calls.append("drop_cache")

    def _scores(self, side: str, sequences: Any, offset: float) -> list[np.ndarray]:
        self.scored_lengths[side] = [len(sequence) for sequence in sequences]
        return [np.array(sequence, np.float32) / 1000 - offset for sequence in sequences]


def run_check(double: PolicyAndEngine, max_num_seqs: int = 256) -> None:
    sampling = SamplingConfig(max_num_seqs=max_num_seqs)
    run: Any = SimpleNamespace(
        policy=double, config=SimpleNamespace(sampling=sampling), validation_prompts=PROMPTS
    )
    check_engine(run, None, double)  # type: ignore[arg-type]


@pytest.mark.parametrize(("max_num_seqs", "max_tokens"), [(256, 256), (8, 128)])
def test_check_engine_scores_no_more_tokens_than_fit_the_engine(max_num_seqs, max_tokens):
    double = PolicyAndEngine()
    run_check(double, max_num_seqs)
    lengths = [5, min(200, max_tokens), max_tokens, 7]
    assert double.scored_lengths == {"engine": lengths, "policy": lengths}
    assert double.calls == ["sync", "drop_cache"]


def test_check_engine_rejects_a_deviating_engine():
    with pytest.raises(SyncError, match=r"sampling\.gap_tolerance = 0\.001"):
        run_check(PolicyAndEngine(offset=0.002))


@pytest.mark.parametrize(
    ("gap", "lag", "is_rejected"), [(9e-4, 0, False), (2e-3, 0, True), (2e-3, 1, False)]
)
def test_check_rollout_ignores_older_answers(gap, lag, is_rejected):
    if is_rejected:
        with pytest.raises(SyncError, match="the mean difference"):
            check_rollout(SamplingConfig(), gap, lag=lag)
    else:
        check_rollout(SamplingConfig(), gap, lag=lag)
