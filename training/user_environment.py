"""What a user writes to train on a problem of their own: a class with six methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from engineer.domain import Domain
from engineer.space import Configuration, FrozenModel, KnobSpace

Instance = TypeVar("Instance")


@dataclass(frozen=True)
class Score:
    """What an answer is worth; a `ValueError` if its parts contradict each other."""

    reward: float  # what GRPO learns from; finite
    valid: bool  # whether the answer solves its instance
    failure: str | None = None  # key of its first failure among `Domain.failures`; None if valid
    time: int | None = None  # where in the answer it happens, counted from 0, if that is known
    best: bool | None = None  # no answer is better; None: every valid one is as good as any other
    parsed: bool = True  # whether it can be read as an answer at all
    detail: str | None = None  # for people, such as why it can't be read

    def __post_init__(self) -> None:
        if self.valid == (self.failure is not None):
            raise ValueError(
                f"failure: got {self.failure!r} with valid {self.valid}, allowed is None for a "
                "valid answer and the key of a failure for any other"
            )
        if (self.best or self.valid) and not (self.valid and self.parsed):
            raise ValueError(
                f"best {self.best}, valid {self.valid}, parsed {self.parsed}: an answer that is "
                "best is valid, and a valid one is parsed"
            )


class UserEnvironment(FrozenModel, ABC, Generic[Instance]):
    """An environment whose instances are asked and scored one by one.

    Its fields are its settings: the keys of `environment.settings` in the YAML file, validated by
    pydantic. An instance is any frozen value that equals another one exactly if it is the same
    problem, and that pydantic can write as JSON: a string, a tuple, a dataclass. The loop carries
    instances, takes subsets of them and writes them down. Methods depend on their arguments and the
    settings alone.
    """

    @property
    @abstractmethod
    def space(self) -> KnobSpace:
        """The groups of instances and their knobs, within the settings' bounds."""

    @abstractmethod
    def domain(self, instances: int, held_out: Sequence[Instance]) -> Domain:
        """Describe the environment to the engineer.

        A stage trains on so many `instances`, and never on those `held_out` for validation. Where
        not every configuration of the space has enough instances, `Domain.nearest` says which does.
        """

    @abstractmethod
    def draw(
        self, configuration: Configuration, count: int, seed: int, held_out: Sequence[Instance]
    ) -> Sequence[Instance]:
        """Draw `count` instances in random order, none of them among those `held_out`.

        The shares of the groups are those of the configuration, which `space.make` has made. The
        seed is an integer below 2**63; equal arguments give equal instances.
        """

    @abstractmethod
    def group(self, instance: Instance) -> str:
        """Return the instance's group, as `space.groups` has it."""

    @abstractmethod
    def prompt(self, instance: Instance) -> str:
        """Write the instance as the policy reads it; the answer follows directly."""

    @abstractmethod
    def score(self, instance: Instance, text: str) -> Score:
        """Score any text as an answer; a model may write anything."""

    def demonstration(self, instance: Instance) -> str:
        """Write an answer for the warm start to imitate; without this method there is none."""
        raise NotImplementedError

    def slices(self, instance: Instance) -> dict[str, str]:
        """Return the instance's level of each factor of `Domain.slices`; none by default."""
        return {}

    def statistics(self, instances: Sequence[Instance]) -> dict[str, float]:
        """Say what the training instances of one group are like, by keys of `Domain.statistics`."""
        return {}

    def lines(self, instance: Instance) -> tuple[str, ...]:
        """Write the instance in short lines for people and the engineer; its prompt by default."""
        return tuple(self.prompt(instance).splitlines())

    @property
    def demonstrates(self) -> bool:
        """Whether the class has a method `demonstration` of its own."""
        own: Any = type(self).demonstration
        return own is not UserEnvironment.demonstration
