"""A sampler for several processes, in which each engine answers a share of the prompts."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from training.processes import gather_values, require_same
from training.sampling.sampler import Completion, Sampler, SamplingRequest, Tokens

_MIN_LENGTH = 1024
"""Minimum size of exchanged arrays; sizes are powers of two, to limit compilations."""


class SharedSampler:
    """A `Sampler` that all processes call together with the same arguments."""

    def __init__(self, engine: Sampler) -> None:
        self._engine = engine

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        """Draw completions; raise a `PeerError` if a process has another request."""
        require_same("the prompts of a rollout", json.dumps(asdict(request)))
        indices = request.prompt_indices
        local_indices = indices[jax.process_index() :: jax.process_count()]
        local_groups = self._engine.sample(replace(request, chosen=local_indices))
        completions = [completion for group in local_groups for completion in group]
        shares = [iter(share) for share in exchange(completions)]
        groups = []
        for i in range(len(indices)):  # undo the round-robin distribution
            share = shares[i % len(shares)]
            groups.append([next(share) for _ in range(request.n)])
        return groups

    def score(self, sequences: Sequence[Tokens]) -> list[np.ndarray]:
        """Return log-probabilities from this process's engine; see `Sampler.score`."""
        return self._engine.score(sequences)

    def sync(self, tensors: Iterable[tuple[str, Any]]) -> None:
        """Replace the weights of all engines; see `Sampler.sync`."""
        self._engine.sync(tensors)

    @property
    def weight_version(self) -> str:
        """The version of this process's engine; see `Sampler.weight_version`."""
        return self._engine.weight_version

    def drop_cache(self) -> None:
        """Drop the caches of all engines; see `Sampler.drop_cache`."""
        self._engine.drop_cache()

    def close(self) -> None:
        """Free the memory of this process's engine."""
        self._engine.close()


def exchange(completions: Sequence[Completion]) -> list[list[Completion]]:
    """Send this process's completions to all processes, and return the completions by process.

    Tokens and log-probabilities are transferred exactly.
    """
    lengths = [[len(completion.token_ids), int(completion.truncated)] for completion in completions]
    shapes = [
        json.loads(text)
        for text in gather_values("the completions of a rollout", json.dumps(lengths))
    ]
    max_tokens = max(sum(length for length, _ in shape) for shape in shapes)
    buffer = np.zeros((2, max(_MIN_LENGTH, 1 << max(max_tokens - 1, 0).bit_length())), np.int32)
    end = 0
    for completion in completions:
        span = slice(end, end := end + len(completion.token_ids))
        buffer[0, span] = completion.token_ids
        buffer[1, span] = np.asarray(completion.logprobs, np.float32).view(np.int32)
    buffers = multihost_utils.process_allgather(buffer)
    return [_unpack_completions(shape, array) for shape, array in zip(shapes, buffers, strict=True)]


def _unpack_completions(shape: Sequence[Sequence[int]], buffer: np.ndarray) -> list[Completion]:
    """Split one process's array, int32 (2, ...), into completions."""
    completions, end = [], 0
    for length, truncated in shape:
        span = slice(end, end := end + length)
        logprobs = np.ascontiguousarray(buffer[1, span]).view(np.float32)
        completions.append(Completion(tuple(buffer[0, span].tolist()), logprobs, bool(truncated)))
    return completions
