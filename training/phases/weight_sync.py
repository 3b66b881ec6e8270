"""How the trainer's weights reach the engine, and the proof that they arrived.

After every update `sync_weights` hands all tensors to the running engine (`Sampler.sync`, which
with vLLM compares a checksum of each), and then scores a few sequences under both. That shows
whether the engine computes with the weights what the trainer does: `check_sync` returns how their
log-probabilities differ, or raises a `SyncError` that stops the run.

Of a long sequence its beginning is compared. For the log-probabilities of a prompt vLLM makes the
logits of all its tokens at once, in memory that it has not set aside. When it starts it measures
what logits of `sampling.max_num_seqs` tokens take, so no more are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import numpy as np

from training.processes import gather
from training.rollout.rollout import Rollout
from training.run.active_run import ActiveRun
from training.sampling.sampler import LogprobGaps, Sampler, check_sync

_LEAST_COMPARED = 128
"""Tokens of a sequence that are compared, even if fewer sequences are decoded at once."""


def sync_weights(run: ActiveRun, params: Any, sampler: Sampler, rollout: Rollout) -> LogprobGaps:
    """Hand the weights to the engine, then compare a few of the newest sequences under both."""
    completions = rollout.completions
    per_prompt = len(completions) // len(rollout.prompts)
    rows = np.linspace(0, len(completions) - 1, run.config.sampling.sync_sequences).astype(int)
    sequences = [[*rollout.prompts[row // per_prompt], *completions[row].token_ids] for row in rows]
    return _sync_and_compare(run, params, sampler, sequences)


def check_engine(run: ActiveRun, params: Any, sampler: Sampler) -> LogprobGaps:
    """Sync an engine that has just started, then compare both on a few validation prompts.

    So weights that can't be handed over stop the run before its first rollout.
    """
    count = min(run.config.sampling.sync_sequences, len(run.validation))
    texts = run.environment.prompts(run.validation.take(range(count)))
    prompts = [run.policy.encode_prompt(text) for text in texts]
    return _sync_and_compare(run, params, sampler, prompts)


def _sync_and_compare(
    run: ActiveRun, params: Any, sampler: Sampler, sequences: Sequence[Sequence[int]]
) -> LogprobGaps:
    """Hand the weights over while the trainer scores sequences, then let the engine score them."""
    sequences = _beginnings(run, sequences)
    expected = run.policy.start_logprobs(params, sequences)
    sampler.sync(run.policy.tensors(params))
    gaps = check_sync(sampler, sequences, expected(), run.config.sampling.sync_tolerance)
    return _largest_of_all(gaps)


def compare_weights(
    run: ActiveRun, params: Any, sampler: Sampler, sequences: Sequence[Sequence[int]]
) -> LogprobGaps:
    """Score sequences under both; return how these differ, or raise a `SyncError`."""
    sequences = _beginnings(run, sequences)
    expected = run.policy.logprobs(params, sequences)
    gaps = check_sync(sampler, sequences, expected, run.config.sampling.sync_tolerance)
    return _largest_of_all(gaps)


def _largest_of_all(gaps: LogprobGaps) -> LogprobGaps:
    """Return the largest gaps that any process found between its own engine and the trainer.

    They are recorded, and all processes must record the same: with several workers vLLM rounds in
    the order in which requests arrive, so that two engines with the same weights may differ.
    """
    told = gather("the comparison of engine and trainer", json.dumps(astuple(gaps)))
    return LogprobGaps(*map(max, zip(*map(json.loads, told), strict=True)))


def _beginnings(run: ActiveRun, sequences: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    most = max(run.config.sampling.max_num_seqs, _LEAST_COMPARED)
    return [sequence[:most] for sequence in sequences]


def sync_metrics(gaps: LogprobGaps) -> dict[str, float]:
    """Return the fields that records of an update have of `LogprobGaps`, in three digits."""
    values = {"median": gaps.median, "p99": gaps.p99, "max": gaps.largest}
    return {f"sync_{name}_abs_diff": float(f"{value:.3g}") for name, value in values.items()}
