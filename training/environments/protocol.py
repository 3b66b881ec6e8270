"""Interface of training environments, which `Lake` and `UserEnvironmentAdapter` implement."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import jax
import numpy as np

from engineer import Configuration, Domain

if TYPE_CHECKING:
    from training.run.records import DrawReport, EpisodeRecord


class Instances(ABC):
    """A batch of B instances with a length, indexing and concatenation."""

    @abstractmethod
    def __len__(self) -> int:
        """Return B."""

    @abstractmethod
    def take(self, rows: Sequence[int] | np.ndarray) -> Self:
        """Return the instances at `rows`, in that order; rows may repeat."""

    @abstractmethod
    def concatenate(self, other: Self) -> Self:
        """Return these instances followed by `other`'s."""

    def without(self, rows: Sequence[int] | np.ndarray) -> Self:
        """Return all instances except those at `rows`."""
        return self.take(np.delete(np.arange(len(self)), np.asarray(rows)))

    def batch(self, index: int, size: int) -> Self:
        """Return the instances of batch `index`, from 0, of `size` instances."""
        return self.take(range(index * size, (index + 1) * size))


class StageInstances(Protocol):
    """The training instances of a stage."""

    @property
    def instances(self) -> Instances:
        """The instances, in the order of training."""

    @property
    def statistics(self) -> dict[str, dict[str, float]]:
        """Statistics of the instances for the engineer, by group and name; may be empty."""

    @property
    def shortfalls(self) -> "list[DrawReport]":
        """Requests that the generator could not fulfil; often empty."""


class Scores(NamedTuple):
    """The scores of B answers."""

    rewards: np.ndarray  # float32 (B,), without the length penalty
    valid: np.ndarray  # bool (B,), whether the answer solves its instance
    best: np.ndarray  # bool (B,), whether no answer is better; implies `valid`
    parsed: np.ndarray  # bool (B,), whether the answer can be parsed; implied by `valid`
    failures: np.ndarray  # object (B,), the kind of the first failure; None for valid answers


@dataclass(frozen=True)
class JudgedTexts:
    """The scores of B answers, and data for their records."""

    scores: Scores
    checks: Any  # data for `TrainingEnvironment.episodes`, in any format


class TrainingEnvironment(Protocol):
    """The training environment of one run.

    All draws are deterministic functions of the typed JAX key and the other arguments. Arguments
    named `instances` or `held_out` are of the environment's own subclass of `Instances`.
    """

    @property
    def domain(self) -> Domain:
        """The engineer's description of the environment."""

    def validation_set(self) -> Instances:
        """Return the fixed validation set."""

    def warm_start_set(self, key: jax.Array, count: int, held_out: Any | None) -> Instances:
        """Return about `count` instances for imitation, none of them in `held_out`."""

    def stage_set(
        self, key: jax.Array, configuration: Configuration, count: int, held_out: Any
    ) -> StageInstances:
        """Return the `count` training instances of a stage, none of them in `held_out`."""

    def groups(self, instances: Any) -> np.ndarray:
        """Return the group of each instance, int or str (B,), as in `KnobSpace.groups`."""

    def prompts(self, instances: Any) -> list[str]:
        """Return the prompt of each instance; the answer follows directly."""

    def demonstrations(self, instances: Any) -> list[str]:
        """Return a valid answer to each instance; raise a `UserError` if unsupported."""

    def judge(self, instances: Any, texts: Sequence[str]) -> JudgedTexts:
        """Score each text as the answer to its instance; texts are arbitrary."""

    def episodes(
        self, instances: Any, texts: Sequence[str], judgement: JudgedTexts
    ) -> "tuple[EpisodeRecord, ...]":
        """Return the records of judged answers."""

    def digest_lines(self, instances: Any) -> Iterable[Any]:
        """Yield a JSON value per instance that identifies it in digests."""
