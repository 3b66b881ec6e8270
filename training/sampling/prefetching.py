"""Prefetching: draw the next rollout during an update, one step off-policy (`grpo.prefetch`).

The importance weights of the loss correct for the lag. Prefetched rollouts are saved with each
checkpoint.
"""

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from jaxlake.files import write_text_atomic
from training.errors import UserError
from training.sampling.jax_sampler import JaxSampler
from training.sampling.sampler import Completion, Sampler, SamplingRequest, Tokens
from training.threads import run_in_thread

_ABORT_SECONDS = 5.0
"""Time to wait for an obsolete rollout after its engine is closed."""

_MAX_FILES = 4
"""Number of saved rollouts to keep, which must exceed the number of kept checkpoints."""


@dataclass(frozen=True)
class _DrawnRollout:
    """Completions of a request, and the weights that drew them."""

    request: SamplingRequest
    answers: list[list[Completion]]
    version: str
    num_syncs: int  # number of weight syncs before the draw


class PrefetchingSampler:
    """A `Sampler` that wraps an engine and prefetches the completions of announced requests.

    `expect` announces the next request. A separate thread draws its completions as soon as the
    current request is complete, with the weights at that time. All other calls wait for it.
    """

    def __init__(self, engine: Sampler) -> None:
        """Wrap `engine`, which must not be used elsewhere at the same time."""
        self._engine = engine
        self._next_request: SamplingRequest | None = None
        self._prefetched: Future[_DrawnRollout] | None = None
        self._num_syncs = 0
        self._last: _DrawnRollout | None = None
        self._restored_file: Path | None = None  # source file of the prefetched answers, if read
        self.lag = 0
        """Number of updates between the weights of the last answers and the engine's weights."""

    def expect(self, request: SamplingRequest | None) -> None:
        """Announce the request that follows the next one, or None."""
        self._next_request = request

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        """Return the prefetched answers, or draw them; see `Sampler.sample`."""
        rollout = self._wait_for_rollout()
        if rollout is None or rollout.request != request:
            if self._restored_file is not None:
                raise UserError(
                    f"{self._restored_file}: its prompts and settings differ from those of the "
                    "update after the checkpoint; restore the file, or remove the newest "
                    "checkpoint"
                )
            rollout = self._draw(request)
        self._prefetched, self._last, self.lag = None, rollout, self._num_syncs - rollout.num_syncs
        self._restored_file = None
        if self._next_request is not None:
            self._prefetched = run_in_thread(partial(self._draw, self._next_request), "Prefetch")
            self._next_request = None
        return rollout.answers

    def _draw(self, request: SamplingRequest) -> _DrawnRollout:
        version = self._engine.weight_version
        answers = self._engine.sample(request)
        return _DrawnRollout(request, answers, version, self._num_syncs)

    def _wait_for_rollout(self) -> _DrawnRollout | None:
        return None if self._prefetched is None else self._prefetched.result()

    @property
    def weight_version(self) -> str:
        """The version of the last answers' weights, or of the engine's before any answer."""
        return self._engine.weight_version if self._last is None else self._last.version

    def score(self, sequences: Sequence[Tokens]) -> list[np.ndarray]:
        """See `Sampler.score`."""
        self._wait_for_rollout()
        return self._engine.score(sequences)

    def sync(self, tensors: Iterable[tuple[str, Any]]) -> None:
        """Wait for the prefetched answers, then replace the weights; see `Sampler.sync`."""
        self._wait_for_rollout()
        self._engine.sync(tensors)
        self._num_syncs += 1

    def drop_cache(self) -> None:
        """See `Sampler.drop_cache`."""
        self._wait_for_rollout()
        self._engine.drop_cache()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the rollout in progress.

        On an error, close the engine to abort it; otherwise leave it open. JAX programs can't be
        interrupted, so a batch of `JaxSampler` is completed first.
        """
        if kind is None or self._prefetched is None or self._prefetched.done():
            self.finish()
            return
        with suppress(Exception):  # don't hide the original error
            self._engine.close()
        is_jax = isinstance(self._engine, JaxSampler)
        with suppress(Exception):
            self._prefetched.result(timeout=None if is_jax else _ABORT_SECONDS)

    def finish(self) -> None:
        """Wait for the rollout in progress; the engine stays open."""
        with suppress(Exception):  # its answers are not used
            self._wait_for_rollout()

    def close(self) -> None:
        """Wait for the rollout in progress, then close the engine; see `Sampler.close`."""
        self.finish()
        self._engine.close()

    def save_rollout(self, folder: Path, step: int) -> Path | None:
        """Save the prefetched rollout for the checkpoint of `step`; return the file, if any."""
        file = None
        if (rollout := self._wait_for_rollout()) is not None:
            file = _rollout_file(folder, step)
            folder.mkdir(parents=True, exist_ok=True)
            lag = self._num_syncs - rollout.num_syncs
            write_text_atomic(file, json.dumps(_to_json(rollout, lag)) + "\n")
        for path in sorted(folder.glob("*.json"))[:-_MAX_FILES]:
            path.unlink(missing_ok=True)
        return file

    def restore_rollout(self, folder: Path, step: int) -> None:
        """Read the rollout that `save_rollout` wrote for the checkpoint of `step`.

        Raises:
            UserError: The file is missing or damaged. The answers can't be drawn again, because
                their weights are gone.
        """
        file = _rollout_file(folder, step)
        try:
            rollout = _from_json(json.loads(file.read_text(encoding="utf-8")), self._num_syncs)
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise UserError(
                f"{file}: the prefetched rollout of the update after the checkpoint can't be read "
                f"({error}); restore the file, or remove the newest checkpoint"
            ) from error
        self._prefetched = Future()
        self._prefetched.set_result(rollout)
        self._restored_file = file


def _rollout_file(folder: Path, step: int) -> Path:
    return folder / f"{step:09d}.json"


def _to_json(rollout: _DrawnRollout, lag: int) -> dict[str, Any]:
    """Return plain values for JSON, which represents float32 exactly."""
    groups = [
        [(answer.token_ids, answer.logprobs.tolist(), answer.truncated) for answer in group]
        for group in rollout.answers
    ]
    request, version = asdict(rollout.request), rollout.version
    return {"question": request, "version": version, "lag": lag, "answers": groups}


def _from_json(tree: Any, num_syncs: int) -> _DrawnRollout:
    answers = [
        [
            Completion(tuple(token_ids), np.array(logprobs, np.float32), truncated)
            for token_ids, logprobs, truncated in group
        ]
        for group in tree["answers"]
    ]
    request = SamplingRequest(**tree["question"])
    return _DrawnRollout(request, answers, str(tree["version"]), num_syncs - tree["lag"])
