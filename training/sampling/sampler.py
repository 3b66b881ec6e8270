"""`Sampler`: what draws completions from the policy, whichever engine does it.

Token ids go in and token ids come out, so that what is trained on is what was sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from engineer.space import AnswerForm
from training.errors import UserError
from training.weight_transfer.checksums import SyncError

Tokens: TypeAlias = Sequence[int]


class PromptTooLongError(UserError):
    """A prompt leaves no room for its answer."""


@dataclass(frozen=True)
class Completion:
    """One sampled answer."""

    token_ids: tuple[int, ...]  # with the end-of-sequence token, if there is one
    logprobs: np.ndarray  # float32 (len(token_ids),), nats, at the sampling temperature
    truncated: bool  # the token limit ended it, not the model


class Sampler(Protocol):
    """An engine that holds weights of the policy and answers prompts with them."""

    def sample(
        self,
        prompts: Sequence[Tokens],
        *,
        n: int,
        temperature: float,
        max_tokens: int,
        stop_token_ids: Sequence[int],
        seed: int,
        form: AnswerForm | None = None,
        chosen: Sequence[int] | None = None,
    ) -> list[list[Completion]]:
        """Draw `n` completions for each prompt; equal arguments and weights give equal answers.

        Temperature 0 is greedy; no other truncation (top-p, top-k) is applied. With a `form`
        decoding is constrained to the texts that it allows. With `chosen`, places of prompts, only
        these are answered, in that order, and with what they are answered with among all.

        Raises:
            PromptTooLongError: A prompt and `max_tokens` don't fit `sampling.max_model_len`.
        """
        ...

    def score(self, sequences: Sequence[Tokens]) -> list[np.ndarray]:
        """Score tokens with the engine's weights, at temperature 1.

        For each sequence float32 (len(sequence),): the log-probability of each token given those
        before it, nats. The first entry is 0.
        """
        ...

    def sync(self, tensors: Iterable[tuple[str, Any]]) -> None:
        """Replace the engine's weights, and drop what it computed with the old ones.

        The tensors are all weights under their Hugging Face names, untied.
        """
        ...

    @property
    def weight_version(self) -> str:
        """Name the engine's weights, by their bits: equal weights of one dtype have one name."""
        ...

    def drop_cache(self) -> None:
        """Drop the keys and values of earlier prompts.

        So the next answers are those of an engine that has answered nothing yet.
        """
        ...

    def close(self) -> None:
        """Free the engine's memory."""
        ...


def require_room(prompts: Sequence[Tokens], max_tokens: int, max_model_len: int) -> None:
    """Raise a `PromptTooLongError` if a prompt and its answer may not fit the engine."""
    longest = max(len(prompt) for prompt in prompts)
    if longest + max_tokens > max_model_len:
        raise PromptTooLongError(
            f"sampling.max_model_len: {max_model_len} is too small for a prompt of {longest} "
            f"tokens and {max_tokens} more"
        )


_FAR_OUT = 10
"""No log-probability may differ by more than so many times the tolerance."""


def check_agreement(
    sampler: Sampler, sequences: Sequence[Tokens], expected: Sequence[np.ndarray], tolerance: float
) -> float:
    """Compare the engine's log-probabilities of `sequences` with the trainer's, `expected`.

    These are in the form in which `Sampler.score` returns them. Rounding alone moves a token out of
    thousands far, so it is an error if more than 1% of the tokens are above the tolerance, or one
    is above ten times that.

    Returns:
        The largest difference, nats.

    Raises:
        SyncError: The differences are that large, or a log-probability is not a finite number.
    """
    pairs = zip(sampler.score(sequences), expected, strict=True)
    # The first entry of each is 0 on both sides.
    gaps = np.abs(np.concatenate([ours[1:] - theirs[1:] for ours, theirs in pairs], dtype=float))
    p99 = largest = float("nan")
    if gaps.size and np.isfinite(gaps).all():
        # An observed value, not one between two: a single outlier would leak into it.
        p99, largest = np.quantile(gaps, [0.99, 1.0], method="inverted_cdf").tolist()
    # Comparisons with NaN are false.
    if not (p99 <= tolerance and largest <= _FAR_OUT * tolerance):
        raise SyncError(
            f"the engine and the trainer disagree by {p99:.3g} nats on the log-probability of a "
            f"token (99th percentile; largest {largest:.3g}), allowed is sampling.gap_tolerance = "
            f"{tolerance:g}, and {_FAR_OUT} times that for the largest: the engine computes "
            "something else than the trainer with these weights"
        )
    return largest
