"""`Sampler`: the protocol of engines that draw completions from the policy.

Inputs and outputs are token ids, so the trainer learns from exactly the sampled tokens.
"""

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

    token_ids: tuple[int, ...]  # including the end-of-sequence token, if any
    logprobs: np.ndarray  # float32 (len(token_ids),), nats, at the sampling temperature
    truncated: bool  # whether the token limit ended it


@dataclass(frozen=True)
class SamplingRequest:
    """A request for completions of prompts; two requests with equal token ids are equal.

    Training answers are drawn with `top_p` 1 and `top_k` 0, because importance ratios need the
    full distribution.
    """

    prompts: Sequence[Tokens]
    n: int  # completions per prompt
    temperature: float  # 0: greedy
    max_tokens: int  # longest completion
    stop_token_ids: Sequence[int]
    seed: int
    form: AnswerForm | None = None  # constrains the text of the completions
    chosen: Sequence[int] | None = None  # indices of the prompts to complete; None: all
    top_p: float = 1.0  # sample from the likeliest tokens of this total probability
    top_k: int = 0  # sample from this many likeliest tokens, applied before top_p; 0: all

    def __post_init__(self) -> None:
        prompts = tuple(tuple(map(int, prompt)) for prompt in self.prompts)
        object.__setattr__(self, "prompts", prompts)
        object.__setattr__(self, "stop_token_ids", tuple(map(int, self.stop_token_ids)))
        if self.chosen is not None:
            object.__setattr__(self, "chosen", tuple(map(int, self.chosen)))

    @property
    def prompt_indices(self) -> Sequence[int]:
        """The indices of the prompts to complete, in the order of the results."""
        return range(len(self.prompts)) if self.chosen is None else self.chosen

    def require_room(self, max_model_len: int) -> None:
        """Raise a `PromptTooLongError` if a prompt and its answer may not fit the engine."""
        max_length = max(len(prompt) for prompt in self.prompts) + self.max_tokens
        if max_length > max_model_len:
            raise PromptTooLongError(
                f"sampling.max_model_len must be at least {max_length}, the length of the longest "
                f"prompt and {self.max_tokens} tokens, got {max_model_len}"
            )


class Sampler(Protocol):
    """An engine that holds the policy's weights and samples completions of prompts."""

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        """Draw completions of each prompt; equal requests and weights give equal completions.

        Returns:
            `n` completions for each prompt in `request.prompt_indices`.

        Raises:
            PromptTooLongError: A prompt and `max_tokens` don't fit `sampling.max_model_len`.
        """
        ...

    def score(self, sequences: Sequence[Tokens]) -> list[np.ndarray]:
        """Return the log-probabilities of tokens under the engine's weights at temperature 1.

        Returns:
            For each sequence, float32 (len(sequence),) in nats: the log-probability of each token
            given the preceding ones. The first entry is 0.
        """
        ...

    def sync(self, tensors: Iterable[tuple[str, Any]]) -> None:
        """Replace the engine's weights by `tensors`, and drop its caches.

        The tensors are all weights, untied, with their Hugging Face names.
        """
        ...

    @property
    def weight_version(self) -> str:
        """A checksum of the engine's weights; equal weights of one dtype have equal versions."""
        ...

    def drop_cache(self) -> None:
        """Drop the keys and values of earlier prompts.

        The next completions are then independent of earlier requests.
        """
        ...

    def close(self) -> None:
        """Free the engine's memory."""
        ...


_OUTLIER_FACTOR = 10
"""Maximum log-probability difference of a single token, as a multiple of the tolerance."""


def check_agreement(
    sampler: Sampler, sequences: Sequence[Tokens], expected: Sequence[np.ndarray], tolerance: float
) -> float:
    """Compare the engine's log-probabilities with the trainer's.

    Rounding alone can cause a few large differences among thousands of tokens. Therefore the check
    fails only if more than 1% of the tokens exceed the tolerance, or one token ten times of it.

    Args:
        sampler: The engine.
        sequences: Token ids.
        expected: The trainer's log-probabilities, in the form of `Sampler.score`.
        tolerance: Allowed difference in nats.

    Returns:
        The largest difference in nats.

    Raises:
        SyncError: The differences are too large, or a log-probability is not finite.
    """
    pairs = zip(sampler.score(sequences), expected, strict=True)
    # The first entry of each is 0 on both sides.
    gaps = np.abs(
        np.concatenate([actual[1:] - wanted[1:] for actual, wanted in pairs], dtype=float)
    )
    p99 = max_gap = float("nan")
    if gaps.size and np.isfinite(gaps).all():
        # Don't interpolate: a single outlier would affect the quantile.
        p99, max_gap = np.quantile(gaps, [0.99, 1.0], method="inverted_cdf").tolist()
    # Comparisons with NaN are false.
    if not (p99 <= tolerance and max_gap <= _OUTLIER_FACTOR * tolerance):
        raise SyncError(
            "log-probabilities of the engine and the trainer must differ by at most "
            f"sampling.gap_tolerance = {tolerance:g} nats (99th percentile) and {_OUTLIER_FACTOR} "
            f"times that (maximum), got {p99:.3g} and {max_gap:.3g}"
        )
    return max_gap
