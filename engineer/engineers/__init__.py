"""Who may write the next configuration, all behind one interface."""

from engineer.engineers.adaptive import (
    FailureProportionalEngineer,
    LearnabilityEngineer,
    ThresholdEngineer,
)
from engineer.engineers.bandit import DumpBanditEngineer, SecBanditEngineer
from engineer.engineers.base import Control, Engineer, EngineerError, Proposal, Task, Writer
from engineer.engineers.catalogue import SCRIPTED, Setup, scripted
from engineer.engineers.computed import ComputedEngineer
from engineer.engineers.constant import CopyPreviousEngineer, FixedEngineer
from engineer.engineers.controls import ShuffledEngineer
from engineer.engineers.endpoint import EndpointEngineer
from engineer.engineers.generator import Generate, Generated, GeneratorEngineer
from engineer.engineers.oracle import OracleEngineer, Probe, ProbeResult
from engineer.engineers.randomised import FixedRandomEngineer, RandomEngineer
from engineer.engineers.rule import RuleEngineer
from engineer.engineers.schedules import EasyToHardEngineer, HardOnlyEngineer

__all__ = [
    "SCRIPTED",
    "ComputedEngineer",
    "Control",
    "CopyPreviousEngineer",
    "DumpBanditEngineer",
    "EasyToHardEngineer",
    "EndpointEngineer",
    "Engineer",
    "EngineerError",
    "FailureProportionalEngineer",
    "FixedEngineer",
    "FixedRandomEngineer",
    "Generate",
    "Generated",
    "GeneratorEngineer",
    "HardOnlyEngineer",
    "LearnabilityEngineer",
    "OracleEngineer",
    "Probe",
    "ProbeResult",
    "Proposal",
    "RandomEngineer",
    "RuleEngineer",
    "SecBanditEngineer",
    "Setup",
    "ShuffledEngineer",
    "Task",
    "ThresholdEngineer",
    "Writer",
    "scripted",
]
