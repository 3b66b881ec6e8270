"""The environment engineer: failures in, the next configuration of the lake out."""

from engineer.configuration import (
    Bounds,
    LakeConfiguration,
    SizeKnobs,
    answer_pattern,
    answer_schema,
    answer_text,
    configuration_yaml,
    format_configuration,
)
from engineer.context import BLOCKS, build_context
from engineer.design import Attempt, DesignRecord, DesignSettings, design
from engineer.engineers import (
    EndpointEngineer,
    Engineer,
    EngineerError,
    GeneratorEngineer,
    Proposal,
    RuleEngineer,
)
from engineer.evidence import (
    FAILURE_KINDS,
    FailedCase,
    SizeEvidence,
    StageEvidence,
    StageHistory,
    Tally,
    TrainingEvidence,
)
from engineer.pipeline import Change, Decision, Repair, review
from engineer.rehearsal import Rehearsal, rehearse

__all__ = [
    "BLOCKS",
    "FAILURE_KINDS",
    "Attempt",
    "Bounds",
    "Change",
    "Decision",
    "DesignRecord",
    "DesignSettings",
    "EndpointEngineer",
    "Engineer",
    "EngineerError",
    "FailedCase",
    "GeneratorEngineer",
    "LakeConfiguration",
    "Proposal",
    "Rehearsal",
    "Repair",
    "RuleEngineer",
    "SizeEvidence",
    "SizeKnobs",
    "StageEvidence",
    "StageHistory",
    "Tally",
    "TrainingEvidence",
    "answer_pattern",
    "answer_schema",
    "answer_text",
    "build_context",
    "configuration_yaml",
    "design",
    "format_configuration",
    "rehearse",
    "review",
]
