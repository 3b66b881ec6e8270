"""A sampler for several processes: each answers its share of the prompts with its own engine."""

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
        places = request.places
        mine = places[jax.process_index() :: jax.process_count()]
        answers = self._engine.sample(replace(request, chosen=mine))
        shares = [iter(share) for share in exchange([one for group in answers for one in group])]
        groups = []
        for number in range(len(places)):  # undo the round-robin distribution
            share = shares[number % len(shares)]
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
    """Send this process's completions to all processes, and return those of each.

    Tokens and log-probabilities are transferred exactly.
    """
    lengths = [[len(completion.token_ids), int(completion.truncated)] for completion in completions]
    shapes = [
        json.loads(text)
        for text in gather_values("the completions of a rollout", json.dumps(lengths))
    ]
    longest = max(sum(length for length, _ in shape) for shape in shapes)
    outgoing = np.zeros((2, max(_MIN_LENGTH, 1 << max(longest - 1, 0).bit_length())), np.int32)
    end = 0
    for completion in completions:
        part = slice(end, end := end + len(completion.token_ids))
        outgoing[0, part] = completion.token_ids
        outgoing[1, part] = np.asarray(completion.logprobs, np.float32).view(np.int32)
    received = multihost_utils.process_allgather(outgoing)
    return [_unpack_completions(shape, flat) for shape, flat in zip(shapes, received, strict=True)]


def _unpack_completions(shape: Sequence[Sequence[int]], flat: np.ndarray) -> list[Completion]:
    """Split one process's array, int32 (2, ...), into completions."""
    completions, end = [], 0
    for length, truncated in shape:
        part = slice(end, end := end + length)
        logprobs = np.ascontiguousarray(flat[1, part]).view(np.float32)
        completions.append(Completion(tuple(flat[0, part].tolist()), logprobs, bool(truncated)))
    return completions
