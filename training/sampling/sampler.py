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


@dataclass(frozen=True)
class Question:
    """What a sampler is asked. Token ids become plain integers, so that questions can be compared.

    Answers that are learned from are drawn from the whole distribution, as importance ratios need.
    """

    prompts: Sequence[Tokens]
    n: int  # answers to each prompt
    temperature: float  # 0 is greedy
    max_tokens: int  # of an answer
    stop_token_ids: Sequence[int]
    seed: int
    form: AnswerForm | None = None  # only texts that it allows are drawn
    chosen: Sequence[int] | None = None  # only prompts in these places, answered as among all
    top_p: float = 1.0  # total probability of the likeliest tokens that are drawn from
    top_k: int = 0  # how many of the likeliest tokens are drawn from, before top_p; 0: all

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompts", tuple(tuple(map(int, one)) for one in self.prompts))
        object.__setattr__(self, "stop_token_ids", tuple(map(int, self.stop_token_ids)))
        if self.chosen is not None:
            object.__setattr__(self, "chosen", tuple(map(int, self.chosen)))

    @property
    def places(self) -> Sequence[int]:
        """The places of the prompts that are answered, in the order of the answers."""
        return range(len(self.prompts)) if self.chosen is None else self.chosen

    def require_room(self, max_model_len: int) -> None:
        """Raise a `PromptTooLongError` if a prompt and its answer may not fit the engine."""
        longest = max(len(prompt) for prompt in self.prompts)
        if longest + self.max_tokens > max_model_len:
            raise PromptTooLongError(
                f"sampling.max_model_len: {max_model_len} is too small for a prompt of {longest} "
                f"tokens and {self.max_tokens} more"
            )


class Sampler(Protocol):
    """An engine that holds weights of the policy and answers prompts with them."""

    def sample(self, question: Question) -> list[list[Completion]]:
        """Draw `n` completions for each prompt; equal questions and weights give equal answers.

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
