"""Scripted engineers by name: those that need no language model of the run."""

from collections.abc import Callable
from dataclasses import dataclass

from engineer.engineers.adaptive import LearnabilityEngineer, SecBanditEngineer
from engineer.engineers.base import Engineer
from engineer.engineers.baselines import EasyToHardEngineer, FixedEngineer, RandomEngineer
from engineer.engineers.controls import CONTROL_NAMES, split_control_name
from engineer.engineers.learned import learned_engineer
from engineer.engineers.rule import RuleEngineer
from engineer.space import Configuration, KnobSpace
from jaxlake.errors import did_you_mean


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run that scripted engineers need.

    Raises:
        ValueError: A value is out of range.
    """

    space: KnobSpace
    initial: Configuration  # configuration of the first stage, within the space
    stages: int  # number of trained stages, at least 1
    seed: int  # >= 0

    def __post_init__(self) -> None:
        if violation := self.space.violation(self.initial):
            raise ValueError(f"initial: {violation}")
        if self.stages < 1:
            raise ValueError(f"stages must be at least 1, got {self.stages}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")


SCRIPTED_ENGINEERS: dict[str, Callable[[RunSettings], Engineer]] = {
    "fixed": lambda run: FixedEngineer(run.initial),
    "fixed_random": lambda run: RandomEngineer(run.seed, "fixed_random"),  # one draw for all stages
    "random": lambda run: RandomEngineer(),  # a new draw for each stage
    "easy_to_hard": lambda run: EasyToHardEngineer(run.stages),
    "hard_only": lambda run: EasyToHardEngineer(1, "hard_only"),
    "learnability": lambda run: LearnabilityEngineer(),
    "sec_bandit": lambda run: SecBanditEngineer(),  # Self-Evolving Curriculum
    "rule": lambda run: RuleEngineer(),
    "learned": lambda run: learned_engineer(),  # seven parameters, trained on simulated runs
}


def scripted_engineer(name: str, run: RunSettings) -> Engineer:
    """Return a scripted engineer by name, such as `rule` or `shuffled:rule`.

    Raises:
        ValueError: The name is unknown; the message lists the allowed names.
    """
    control, base_name = split_control_name(name)
    if base_name not in SCRIPTED_ENGINEERS:
        allowed = f"{', '.join(SCRIPTED_ENGINEERS)}, or one of these as {CONTROL_NAMES}"
        hint = did_you_mean(base_name, SCRIPTED_ENGINEERS)
        raise ValueError(f"engineer must be {allowed}, got {name!r}{hint}")
    engineer = SCRIPTED_ENGINEERS[base_name](run)
    return control(engineer) if control else engineer
