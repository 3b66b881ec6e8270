"""Checks that the engine and the trainer compute the same log-probabilities."""

from typing import Any

from training.run.active_run import ActiveRun
from training.sampling.sampler import Sampler, check_agreement
from training.schema import SamplingConfig
from training.weight_transfer.checksums import SyncError

_NUM_PROMPTS = 4


def check_engine(run: ActiveRun, params: Any, sampler: Sampler) -> None:
    """Sync a new engine, and compare it with the trainer on a few validation prompts.

    Prompts are truncated to `sampling.max_num_seqs` tokens, because vLLM reserves memory for that
    many logits.

    Raises:
        SyncError: The log-probabilities differ by more than `sampling.gap_tolerance`.
    """
    settings = run.config.sampling
    max_length = max(settings.max_num_seqs, 128)
    assert run.validation_prompts is not None
    prompts = [prompt[:max_length] for prompt in run.validation_prompts[:_NUM_PROMPTS]]
    sampler.sync(run.policy.tensors(params))
    expected_logprobs = run.policy.logprobs(params, prompts)
    check_agreement(sampler, prompts, expected_logprobs, settings.gap_tolerance)
    sampler.drop_cache()  # as after every sync


def check_rollout(settings: SamplingConfig, gap: float, *, lag: int = 0) -> None:
    """Raise a `SyncError` if a rollout's mean log-probability gap exceeds the tolerance.

    `gap` is the mean |engine - trainer| log-probability per token, in nats. The check is skipped if
    the weights of the rollout are older (`lag`).
    """
    if lag == 0 and gap > settings.gap_tolerance:
        raise SyncError(
            "the mean difference between the log-probabilities of the engine and the trainer must "
            f"be at most sampling.gap_tolerance = {settings.gap_tolerance:g} nats, got {gap:.3g}"
        )
