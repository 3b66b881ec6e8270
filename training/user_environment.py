"""Base class of user-defined environments, which implement six methods."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from engineer.domain import Domain
from engineer.space import Configuration, FrozenModel, KnobSpace

Instance = TypeVar("Instance")


@dataclass(frozen=True)
class Score:
    """The score of an answer.

    Raises:
        ValueError: The fields contradict each other.
    """

    reward: float  # finite reward for GRPO
    valid: bool  # whether the answer solves its instance
    failure: str | None = None  # key of the first failure in `Domain.failures`; None if valid
    failure_position: int | None = None  # step, letter or column of the failure, from 0, if known
    best: bool | None = None  # whether no answer is better; None: true for all valid answers
    parsed: bool = True  # whether the answer can be parsed
    detail: str | None = None  # explanation for people, such as a parse error

    def __post_init__(self) -> None:
        if self.valid == (self.failure is not None):
            raise ValueError(
                "failure must be None for a valid answer and a key of Domain.failures otherwise, "
                f"got {self.failure!r} with valid {self.valid}"
            )
        if (self.best or self.valid) and not (self.valid and self.parsed):
            raise ValueError(
                "best requires valid, and valid requires parsed, got "
                f"best {self.best}, valid {self.valid}, parsed {self.parsed}"
            )


class UserEnvironment(FrozenModel, ABC, Generic[Instance]):
    """An environment that processes instances one by one.

    Its fields are the keys of `environment.settings` in the YAML file, validated by pydantic. An
    instance is a frozen value that pydantic can serialise as JSON, such as a string, a tuple or a
    dataclass. Two instances must be equal exactly if they are the same problem. Methods must depend
    on their arguments and the settings only.
    """

    @property
    @abstractmethod
    def space(self) -> KnobSpace:
        """Return the groups of instances and their knobs, within the settings' bounds."""

    @abstractmethod
    def domain(self, instances: int, held_out: Sequence[Instance]) -> Domain:
        """Return the description of the environment for the engineer.

        Args:
            instances: Number of training instances per stage.
            held_out: Validation instances, which are never trained on.

        Returns:
            The domain. If some configurations have too few instances, `Domain.nearest` must map
            them to feasible ones.
        """

    @abstractmethod
    def draw(
        self, configuration: Configuration, count: int, seed: int, held_out: Sequence[Instance]
    ) -> Sequence[Instance]:
        """Return random instances; equal arguments must give equal instances.

        Args:
            configuration: Shares of the groups and their knobs, created by `space.make`.
            count: Number of instances.
            seed: Integer in [0, 2**63).
            held_out: Validation instances, which must not be drawn.

        Returns:
            `count` instances in random order.
        """

    @abstractmethod
    def group(self, instance: Instance) -> str:
        """Return the instance's group, one of `space.groups`."""

    @abstractmethod
    def prompt(self, instance: Instance) -> str:
        """Return the prompt of an instance; the answer follows directly."""

    @abstractmethod
    def score(self, instance: Instance, text: str) -> Score:
        """Return the score of a text as the answer to an instance; texts are arbitrary."""

    def demonstration(self, instance: Instance) -> str:
        """Return a valid answer to imitate; only a warm start requires this method."""
        raise NotImplementedError

    def factor_levels(self, instance: Instance) -> dict[str, str]:
        """Return the instance's level of each factor of `Domain.factors`; none by default."""
        return {}

    def statistics(self, instances: Sequence[Instance]) -> dict[str, float]:
        """Return statistics of one group's training instances, by keys of `Domain.statistics`."""
        return {}

    def lines(self, instance: Instance) -> tuple[str, ...]:
        """Return lines that show the instance in reports and contexts; by default the prompt."""
        return tuple(self.prompt(instance).splitlines())

    @property
    def demonstrates(self) -> bool:
        """Return whether the class overrides `demonstration`."""
        method: Any = type(self).demonstration
        return method is not UserEnvironment.demonstration
