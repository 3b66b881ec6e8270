"""The engineers that need nothing but the run's settings, by name."""

from collections.abc import Callable
from dataclasses import dataclass

from engineer.engineers.adaptive import (
    FailureProportionalEngineer,
    LearnabilityEngineer,
    ThresholdEngineer,
)
from engineer.engineers.bandit import DumpBanditEngineer, SecBanditEngineer
from engineer.engineers.base import Engineer
from engineer.engineers.constant import CopyPreviousEngineer, FixedEngineer
from engineer.engineers.controls import ShuffledEngineer
from engineer.engineers.randomised import FixedRandomEngineer, RandomEngineer
from engineer.engineers.rule import RuleEngineer
from engineer.engineers.schedules import EasyToHardEngineer, HardOnlyEngineer
from engineer.space import Configuration, KnobSpace

SHUFFLED = "shuffled:"
"""Before a name: that engineer, with the evidence permuted across groups."""


@dataclass(frozen=True)
class Setup:
    """What a scripted engineer may need to know of a run.

    Args:
        space: the experiment's knobs.
        initial: the configuration of the first stage, within the space.
        stages: how many stages are trained, at least 1.
        seed: the run's, >= 0.

    Raises:
        ValueError: if one of these doesn't hold.
    """

    space: KnobSpace
    initial: Configuration
    stages: int
    seed: int

    def __post_init__(self) -> None:
        if violation := self.space.violation(self.initial):
            raise ValueError(f"initial: {violation}")
        if self.stages < 1:
            raise ValueError(f"stages must be at least 1, got {self.stages}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")


SCRIPTED: dict[str, Callable[[Setup], Engineer]] = {
    "fixed": lambda setup: FixedEngineer(setup.initial),
    "copy_previous": lambda setup: CopyPreviousEngineer(),
    "fixed_random": lambda setup: FixedRandomEngineer(setup.seed),
    "random": lambda setup: RandomEngineer(),
    "easy_to_hard": lambda setup: EasyToHardEngineer(setup.stages),
    "hard_only": lambda setup: HardOnlyEngineer(),
    "failure_proportional": lambda setup: FailureProportionalEngineer(),
    "threshold": lambda setup: ThresholdEngineer(),
    "learnability": lambda setup: LearnabilityEngineer(),
    "sec_bandit": lambda setup: SecBanditEngineer(),
    "dump_bandit": lambda setup: DumpBanditEngineer(),
    "rule": lambda setup: RuleEngineer(),
}


def scripted(name: str, setup: Setup) -> Engineer:
    """The engineer of a name, such as `learnability` or `shuffled:learnability`.

    Args:
        name: a key of `SCRIPTED`, on its own or after `shuffled:`.
        setup: the run's settings.

    Raises:
        ValueError: for any other name.
    """
    plain = name.removeprefix(SHUFFLED)
    if plain not in SCRIPTED:
        raise ValueError(
            f"engineer: got {name!r}, allowed are {', '.join(SCRIPTED)}, each also as"
            f" {SHUFFLED}NAME"
        )
    engineer = SCRIPTED[plain](setup)
    return engineer if plain == name else ShuffledEngineer(engineer)
