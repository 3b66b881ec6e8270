"""How the trainer's weights reach the engine, and the proof that they arrived.

After every update `sync_weights` hands all tensors to the running engine (`Sampler.sync`), and
then scores a few sequences under both. A difference in log-probability means that it generates
with other weights than those that are trained. The largest one, in nats, is returned; a `SyncError`
stops the run if it is above `sampling.sync_tolerance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from training.rollout.rollout import Rollout
from training.rollout.sampler import Sampler, check_sync
from training.run.active_run import ActiveRun


def sync_weights(run: ActiveRun, params: Any, sampler: Sampler, rollout: Rollout) -> float:
    """Hand the weights to the engine, then compare a few of the newest sequences under both."""
    sampler.sync(run.policy.tensors(params))
    completions = rollout.completions
    per_prompt = len(completions) // len(rollout.prompts)
    rows = np.linspace(0, len(completions) - 1, run.config.sampling.sync_sequences).astype(int)
    sequences = [[*rollout.prompts[row // per_prompt], *completions[row].token_ids] for row in rows]
    return compare_weights(run, params, sampler, sequences)


def check_engine(run: ActiveRun, params: Any, sampler: Sampler) -> float:
    """Compare an engine that has just started with the trainer, on a few validation prompts."""
    count = min(run.config.sampling.sync_sequences, len(run.validation))
    prompts = [run.policy.encode_board(board) for board in run.validation.take(range(count))]
    return compare_weights(run, params, sampler, prompts)


def compare_weights(
    run: ActiveRun, params: Any, sampler: Sampler, sequences: Sequence[Sequence[int]]
) -> float:
    """Score sequences under both; return the largest difference, nats, or raise a `SyncError`."""
    expected = run.policy.logprobs(params, sequences)
    return check_sync(sampler, sequences, expected, run.config.sampling.sync_tolerance)
