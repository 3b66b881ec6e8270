"""Check that the engine and the trainer compute the same log-probabilities."""

from typing import Any

from training.run.active_run import ActiveRun
from training.sampling.sampler import Sampler, check_agreement
from training.schema import Sampling
from training.weight_transfer.checksums import SyncError

_PROMPTS = 4


def check_engine(run: ActiveRun, params: Any, sampler: Sampler) -> None:
    """Sync a new engine, and compare it with the trainer on a few validation prompts.

    Prompts are truncated to `sampling.max_num_seqs` tokens, because vLLM reserves memory for that
    many logits.

    Raises:
        SyncError: The log-probabilities differ by more than `sampling.gap_tolerance`.
    """
    settings = run.config.sampling
    longest = max(settings.max_num_seqs, 128)
    assert run.validation_prompts is not None
    prompts = [prompt[:longest] for prompt in run.validation_prompts[:_PROMPTS]]
    sampler.sync(run.policy.tensors(params))
    expected = run.policy.logprobs(params, prompts)
    check_agreement(sampler, prompts, expected, settings.gap_tolerance)
    sampler.drop_cache()  # as after every sync


def check_rollout(settings: Sampling, gap: float, *, lag: int = 0) -> None:
    """Raise a `SyncError` if a rollout's mean log-probability gap exceeds the tolerance.

    `gap` is the mean |engine - trainer| log-probability per token, in nats. The check is skipped if
    the weights of the rollout are older (`lag`).
    """
    if lag == 0 and gap > settings.gap_tolerance:
        raise SyncError(
            f"the engine and the trainer disagree by {gap:.3g} nats on the log-probability of a "
            "sampled token (mean); the limit is sampling.gap_tolerance = "
            f"{settings.gap_tolerance:g}"
        )
