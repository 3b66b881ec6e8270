"""The interface of training environments; `Lake` and `UserEnvironmentAdapter` implement it."""

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
    """A batch of B instances with a length, indexing and concatenation."""

    @abstractmethod
    def __len__(self) -> int:
        """Return B."""

    @abstractmethod
    def take(self, rows: Sequence[int] | np.ndarray) -> Self:
        """Return the instances at `rows`, in that order; rows may repeat."""

    @abstractmethod
    def joined(self, other: Self) -> Self:
        """Return these instances followed by those of `other`."""

    def without(self, rows: Sequence[int] | np.ndarray) -> Self:
        """Return all instances except those at `rows`."""
        return self.take(np.delete(np.arange(len(self)), np.asarray(rows)))

    def part(self, number: int, count: int) -> Self:
        """Return the instances of update `number`, from 0, with `count` instances per update."""
        return self.take(range(number * count, (number + 1) * count))


class StageInstances(Protocol):
    """The training instances of a stage."""

    @property
    def instances(self) -> Instances:
        """The instances, in the order of training."""

    @property
    def statistics(self) -> dict[str, dict[str, float]]:
        """Statistics of the instances for the engineer, by group and name; may be empty."""

    @property
    def shortfalls(self) -> "list[RequestOutcome]":
        """Requests that the generator could not fulfil; often empty."""


class Scores(NamedTuple):
    """The scores of B answers."""

    rewards: np.ndarray  # float32 (B,), without the length penalty
    valid: np.ndarray  # bool (B,), whether the answer solves its instance
    best: np.ndarray  # bool (B,), whether no answer is better; implies `valid`
    parsed: np.ndarray  # bool (B,), whether the answer can be parsed; implied by `valid`
    failures: np.ndarray  # object (B,), the kind of the first failure; None for valid answers


@dataclass(frozen=True)
class Judged:
    """The scores of B answers, with details for their records."""

    scores: Scores
    details: Any  # data for `TrainingEnvironment.episodes`, in any format


class TrainingEnvironment(Protocol):
    """An environment within one run's configuration.

    All draws are deterministic functions of the typed JAX key and the other arguments. Arguments of
    type `Any` are instances that this environment drew: implementations name their own subclass.
    """

    @property
    def domain(self) -> Domain:
        """The description of the environment for the engineer."""

    def validation_set(self) -> Instances:
        """Return the fixed validation set, which depends on the section `validation` only."""

    def warm_start_set(self, key: jax.Array, count: int, held_out: Any | None) -> Instances:
        """Return about `count` instances to imitate, excluding `held_out`."""

    def stage_set(
        self, key: jax.Array, configuration: Configuration, count: int, held_out: Any
    ) -> StageInstances:
        """Return the `count` training instances of a stage, excluding `held_out`."""

    def groups(self, instances: Any) -> np.ndarray:
        """Return the group of each instance, int or str (B,), as in `KnobSpace.groups`."""

    def prompts(self, instances: Any) -> list[str]:
        """Return the prompt of each instance; the answer follows directly."""

    def demonstrations(self, instances: Any) -> list[str]:
        """Return an answer to imitate for each instance; raise a `UserError` if unsupported."""

    def judge(self, instances: Any, texts: Sequence[str]) -> Judged:
        """Score each text, which may be anything, as the answer to its instance."""

    def episodes(
        self, instances: Any, texts: Sequence[str], judged: Judged
    ) -> "tuple[EpisodeRecord, ...]":
        """Return the records of judged answers."""

    def digest_lines(self, instances: Any) -> Iterable[Any]:
        """Yield a JSON value per instance that identifies it, for digests."""
