"""What the loop asks of an environment, and what it gets: `Lake` and `OneByOne` implement it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import jax
import numpy as np

from engineer import Configuration, Domain

if TYPE_CHECKING:
    from training.run.records import EpisodeRecord, RequestOutcome


class Instances(ABC):
    """A batch of B instances: the loop counts them, takes some and puts batches together."""

    @abstractmethod
    def __len__(self) -> int:
        """Return B."""

    @abstractmethod
    def take(self, rows: Sequence[int] | np.ndarray) -> Self:
        """Return the instances at `rows`, in that order; a row may come several times."""

    @abstractmethod
    def joined(self, other: Self) -> Self:
        """Return these instances, and those of `other` after them."""

    def without(self, rows: Sequence[int] | np.ndarray) -> Self:
        """Return all instances but those at `rows`."""
        return self.take(np.delete(np.arange(len(self)), np.asarray(rows)))

    def part(self, number: int, count: int) -> Self:
        """Return the instances of one update, counted from 0, of `count` instances each."""
        return self.take(range(number * count, (number + 1) * count))


class StageInstances(Protocol):
    """The training instances of a stage, as many as its budget, in the order of training."""

    @property
    def boards(self) -> Any:
        """The instances (`Instances`)."""

    @property
    def environment(self) -> dict[str, dict[str, float]]:
        """Statistics of the instances by group, for the engineer; may be empty."""

    @property
    def shortfalls(self) -> list[RequestOutcome]:
        """Requests that the generator could not fill; empty where it always can."""


class Scores(NamedTuple):
    """What the loop knows of B answers."""

    rewards: np.ndarray  # float32 (B,), before any penalty for length
    valid: np.ndarray  # bool (B,), the answer solves its instance
    best: np.ndarray  # bool (B,), and no answer is better; implies `valid`
    parsed: np.ndarray  # bool (B,), it can be read as an answer; `valid` implies it
    failures: np.ndarray  # object (B,), the kind of the first failure; None for valid answers


@dataclass(frozen=True)
class Judged:
    """What became of B answers."""

    scores: Scores
    details: Any  # what `TrainingEnvironment.episodes` needs besides, as the environment likes it


class TrainingEnvironment(Protocol):
    """An environment within one run's configuration.

    What is drawn follows from the typed JAX key and the other arguments alone.
    """

    @property
    def domain(self) -> Domain:
        """What the engineer has to know of the environment."""

    def validation_set(self) -> Any:
        """Draw the fixed validation set; it depends on the section `validation`, not the seed."""

    def warm_start_set(self, key: jax.Array, count: int, held_out: Any | None) -> Any:
        """Draw about `count` instances to imitate, none of them `held_out`."""

    def stage_set(
        self, key: jax.Array, configuration: Configuration, count: int, held_out: Any
    ) -> StageInstances:
        """Draw the `count` training instances of a stage, none of them `held_out`."""

    def groups(self, instances: Any) -> np.ndarray:
        """Return the group of each instance, int or str (B,), as `KnobSpace.groups` writes it."""

    def prompts(self, instances: Any) -> list[str]:
        """Write the prompt of each instance; the answer follows it."""

    def demonstrations(self, instances: Any) -> list[str]:
        """Write an answer to imitate for each instance; a `UserError` if it has none to show."""

    def judge(self, instances: Any, texts: Sequence[str]) -> Judged:
        """Score any text as the answer to the instance in the same place."""

    def episodes(
        self, instances: Any, texts: Sequence[str], judged: Judged
    ) -> tuple[EpisodeRecord, ...]:
        """Make the records of answers that were judged."""

    def digest_lines(self, instances: Any) -> Iterable[Any]:
        """Yield a JSON value for each instance that tells it from any other, for digests."""
