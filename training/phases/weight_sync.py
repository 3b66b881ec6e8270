"""Whether the engine computes with the trainer's weights what the trainer does."""

from __future__ import annotations

from typing import Any

from training.run.active_run import ActiveRun
from training.sampling.sampler import Sampler, check_agreement
from training.schema import Sampling
from training.weight_transfer.checksums import SyncError

_PROMPTS = 4


def check_engine(run: ActiveRun, params: Any, sampler: Sampler) -> None:
    """Sync an engine that has just started, and compare both on a few validation prompts.

    vLLM has set memory aside for the logits of `sampling.max_num_seqs` tokens, so no longer part of
    a prompt is scored.
    """
    settings = run.config.sampling
    longest = max(settings.max_num_seqs, 128)
    assert run.validation_prompts is not None
    prompts = [prompt[:longest] for prompt in run.validation_prompts[:_PROMPTS]]
    sampler.sync(run.policy.tensors(params))
    expected = run.policy.logprobs(params, prompts)
    check_agreement(sampler, prompts, expected, settings.gap_tolerance)
    sampler.drop_cache()  # as every sync leaves it


def check_rollout(settings: Sampling, gap: float, *, lag: int = 0) -> None:
    """Raise a `SyncError` if a rollout's mean |engine - trainer| log-probability is too large.

    Answers that were drawn `lag` updates before are not checked.
    """
    if lag == 0 and gap > settings.gap_tolerance:
        raise SyncError(
            f"the engine and the trainer disagree by {gap:.3g} nats on the log-probability of a "
            f"sampled token (mean), allowed is sampling.gap_tolerance = {settings.gap_tolerance:g}"
        )
