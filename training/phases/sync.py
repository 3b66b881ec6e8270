"""The trainer's weights in vLLM, and the proof that they arrived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from training.language.prompts import render
from training.phases.context import Run
from training.phases.rollout import Rollout
from training.sampling.vllm_sampler import VllmSampler


def sync(
    run: Run,
    params: Any,
    sampler: VllmSampler,
    rollout: Rollout,
) -> float:
    """Hand the weights to vLLM, then compare a few of the newest sequences under both.

    Returns: the largest difference in log-probability, nats.
    Raises:
      SyncError: it is above `sampling.sync_tolerance`.
    """
    sampler.sync(run.policy.tensors(params))
    completions = rollout.completions
    each = len(completions) // len(rollout.prompts)
    rows = np.linspace(0, len(completions) - 1, run.config.sampling.sync_sequences).astype(int)
    sequences = [[*rollout.prompts[row // each], *completions[row].token_ids] for row in rows]
    return _compare(run, params, sampler, sequences)


def check_engine(run: Run, params: Any, sampler: VllmSampler) -> float:
    """Compare a fresh engine with the trainer on validation prompts, as `sync` does."""
    grids = run.validation.grids[: run.config.sampling.sync_sequences]
    style = run.config.prompt.style
    return _compare(
        run, params, sampler, [run.policy.encode_prompt(render(grid, style)) for grid in grids]
    )


def _compare(
    run: Run, params: Any, sampler: VllmSampler, sequences: Sequence[Sequence[int]]
) -> float:
    expected = run.policy.logprobs(params, sequences)
    return sampler.check_sync(sequences, expected, run.config.sampling.sync_tolerance)
