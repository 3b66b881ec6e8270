"""Draw the next rollout while an update is computed: one step off-policy, by option.

The importance weights of the loss correct for it. What is drawn is kept beside each checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from jaxlake.files import write_text_whole
from training.errors import UserError
from training.sampling.jax_sampler import JaxSampler
from training.sampling.sampler import Completion, Question, Sampler, Tokens
from training.threads import in_thread

_SECONDS_TO_END = 5.0
"""How long a rollout that nobody needs any more is waited for once its engine is closed."""

_FILES_KEPT = 4
"""As many as there are checkpoints at a time, and one more."""


@dataclass(frozen=True)
class _Drawn:
    """Answers to a question, and which weights they are of."""

    question: Question
    answers: list[list[Completion]]
    version: str
    syncs: int  # how many the engine had seen then


class PrefetchingSampler:
    """A `Sampler` around another one, which answers a question that is announced ahead of time.

    `expect` announces it. It is drawn in a thread of its own as soon as the question before it is
    answered, with the weights of that moment, and everything else waits for the end of it.
    """

    def __init__(self, engine: Sampler) -> None:
        """Draw with this engine; nobody else may ask it meanwhile."""
        self._engine = engine
        self._expected: Question | None = None
        self._ahead: Future[_Drawn] | None = None
        self._syncs = 0
        self._last: _Drawn | None = None
        self._kept_in: Path | None = None  # the file that what is ahead was read from
        self.lag = 0
        """How many updates older than the engine's weights those of the last answers were."""

    def expect(self, question: Question | None) -> None:
        """Announce what is asked after the next question; None: nothing."""
        self._expected = question

    def sample(self, question: Question) -> list[list[Completion]]:
        """Return the answers that were drawn ahead, or draw them; see `Sampler.sample`.

        Raises:
            UserError: `take_back` read answers to another question.
        """
        drawn = self._wait()
        if drawn is None or drawn.question != question:
            if self._kept_in is not None:
                raise UserError(
                    f"{self._kept_in}: holds a rollout of other prompts or settings than the "
                    "update's after the checkpoint. Restore the file, or remove the newest "
                    "checkpoint"
                )
            drawn = self._draw(question)
        self._ahead, self._last, self.lag = None, drawn, self._syncs - drawn.syncs
        self._kept_in = None
        if self._expected is not None:
            self._ahead = in_thread(partial(self._draw, self._expected), "Prefetch")
            self._expected = None
        return drawn.answers

    def _draw(self, question: Question) -> _Drawn:
        version = self._engine.weight_version
        answers = self._engine.sample(question)
        return _Drawn(question, answers, version, self._syncs)

    def _wait(self) -> _Drawn | None:
        return None if self._ahead is None else self._ahead.result()

    @property
    def weight_version(self) -> str:
        """Name the weights of the last answers, or those that the engine has if there are none."""
        return self._engine.weight_version if self._last is None else self._last.version

    def score(self, sequences: Sequence[Tokens]) -> list[np.ndarray]:
        """See `Sampler.score`."""
        self._wait()
        return self._engine.score(sequences)

    def sync(self, tensors: Iterable[tuple[str, Any]]) -> None:
        """Replace the engine's weights once what is drawn ahead is there; see `Sampler.sync`."""
        self._wait()
        self._engine.sync(tensors)
        self._syncs += 1

    def drop_cache(self) -> None:
        """See `Sampler.drop_cache`."""
        self._wait()
        self._engine.drop_cache()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait until nothing is drawn any more; the engine stays open.

        Where an error or a signal ends the run, the engine is closed, so that it gives up the
        rollout. A program of JAX's can't be ended, so a batch of `JaxSampler` is waited for.
        """
        if kind is None or self._ahead is None or self._ahead.done():
            self.close()
            return
        with suppress(Exception):  # what ends the run is the other error
            self._engine.close()
        own = isinstance(self._engine, JaxSampler)
        with suppress(Exception):
            self._ahead.result(timeout=None if own else _SECONDS_TO_END)

    def close(self) -> None:
        """Wait until nothing is drawn any more; the engine stays open."""
        with suppress(Exception):  # nobody asks for these answers
            self._wait()

    def keep(self, folder: Path, step: int) -> Path | None:
        """Write what was drawn ahead for the checkpoint of this step; return the file, if any."""
        file = None
        if (drawn := self._wait()) is not None:
            file = _file(folder, step)
            folder.mkdir(parents=True, exist_ok=True)
            lag = self._syncs - drawn.syncs
            write_text_whole(file, json.dumps(_written(drawn, lag)) + "\n")
        for path in sorted(folder.glob("*.json"))[:-_FILES_KEPT]:
            path.unlink(missing_ok=True)
        return file

    def take_back(self, folder: Path, step: int) -> None:
        """Read what was drawn ahead when the checkpoint of this step was written.

        Raises:
            UserError: The file is missing or damaged; nobody can draw these answers again.
        """
        file = _file(folder, step)
        try:
            drawn = _read(json.loads(file.read_text(encoding="utf-8")), self._syncs)
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise UserError(
                f"{file}: the rollout that was drawn ahead of the checkpoint's next update can't "
                f"be read ({error}). Restore the file, or remove the newest checkpoint"
            ) from error
        self._ahead = Future()
        self._ahead.set_result(drawn)
        self._kept_in = file


def _file(folder: Path, step: int) -> Path:
    return folder / f"{step:09d}.json"


def _written(drawn: _Drawn, lag: int) -> dict[str, Any]:
    """Return plain values; JSON keeps every bit of a float32."""
    groups = [
        [(one.token_ids, one.logprobs.tolist(), one.truncated) for one in group]
        for group in drawn.answers
    ]
    question, version = asdict(drawn.question), drawn.version
    return {"question": question, "version": version, "lag": lag, "answers": groups}


def _read(tree: Any, syncs: int) -> _Drawn:
    answers = [
        [
            Completion(tuple(token_ids), np.array(logprobs, np.float32), truncated)
            for token_ids, logprobs, truncated in group
        ]
        for group in tree["answers"]
    ]
    question = Question(**tree["question"])
    return _Drawn(question, answers, str(tree["version"]), syncs - tree["lag"])
