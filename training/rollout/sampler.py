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

Tokens: TypeAlias = Sequence[int]


class SyncError(UserError):
    """The engine's log-probabilities are not the trainer's: it generates with other weights."""


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
    ) -> list[list[Completion]]:
        """Draw `n` completions for each prompt; equal arguments and weights give equal answers.

        Temperature 0 is greedy; no other truncation (top-p, top-k) is applied. With a `form`
        decoding is constrained to the texts that it allows.

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


def check_sync(
    sampler: Sampler, sequences: Sequence[Tokens], expected: Sequence[np.ndarray], tolerance: float
) -> float:
    """Return the largest difference to the trainer's log-probabilities of `sequences`, nats.

    These are `expected`, in the form in which `Sampler.score` returns them.

    Raises:
        SyncError: The difference is above `tolerance`, or not a number.
    """
    pairs = zip(sampler.score(sequences), expected, strict=True)
    # Of numpy, unlike max, the largest of numbers and NaN is NaN.
    worst = float(np.max([np.max(np.abs(ours - theirs)) for ours, theirs in pairs]))
    if not worst <= tolerance:
        raise SyncError(
            f"the engine and the trainer disagree by {worst:.3g} nats on the log-probability of a "
            f"token, allowed is sampling.sync_tolerance = {tolerance:g}: the engine "
            "generates with other weights than the trainer's"
        )
    return worst
