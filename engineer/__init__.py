"""The environment engineer: failures in, the next configuration of the environment out.

Nothing here but `engineer.lake` names the lake. `space.py` and `domain.py` say what an environment
brings, `evidence.py` what a stage showed; `context/` makes the prompt of it, `engineers/` answer,
`pipeline.py` reviews, `gate.py` keeps what works, `design.py` puts these together.
"""

from engineer.attempt import Attempt, Candidate
from engineer.behaviours import Behaviours, behaviours
from engineer.context import BLOCKS, CUTS, BlockName, Context, Style, View, build_context
from engineer.design import DesignRecord, DesignSettings, design
from engineer.domain import Domain, InfeasibleError, Slices, Term
from engineer.engineers import (
    SCRIPTED,
    Control,
    EndpointEngineer,
    Engineer,
    EngineerError,
    GeneratorEngineer,
    OracleEngineer,
    Probe,
    ProbeResult,
    Proposal,
    RuleEngineer,
    Setup,
    ShuffledEngineer,
    Task,
    Writer,
    scripted,
)
from engineer.evidence import (
    FailedCase,
    FailureTime,
    GroupEvidence,
    StageEvidence,
    StageHistory,
    Tally,
    TrainingEvidence,
)
from engineer.gate import Comparison, GateSettings
from engineer.lake import Bounds, LakeConfiguration, SizeKnobs, lake_domain, lake_evidence
from engineer.ledger import Budget, Spent
from engineer.pipeline import Change, Decision, Guard, Repair, review
from engineer.rehearsal import Rehearsal, rehearse
from engineer.replay import Scored, replay, score, table
from engineer.space import (
    Configuration,
    KnobSpace,
    answer_pattern,
    answer_schema,
    answer_text,
    configuration_yaml,
    format_configuration,
)

__all__ = [
    "BLOCKS",
    "CUTS",
    "SCRIPTED",
    "Attempt",
    "Behaviours",
    "BlockName",
    "Bounds",
    "Budget",
    "Candidate",
    "Change",
    "Comparison",
    "Configuration",
    "Context",
    "Control",
    "Decision",
    "DesignRecord",
    "DesignSettings",
    "Domain",
    "EndpointEngineer",
    "Engineer",
    "EngineerError",
    "FailedCase",
    "FailureTime",
    "GateSettings",
    "GeneratorEngineer",
    "GroupEvidence",
    "Guard",
    "InfeasibleError",
    "KnobSpace",
    "LakeConfiguration",
    "OracleEngineer",
    "Probe",
    "ProbeResult",
    "Proposal",
    "Rehearsal",
    "Repair",
    "RuleEngineer",
    "Scored",
    "Setup",
    "ShuffledEngineer",
    "SizeKnobs",
    "Slices",
    "Spent",
    "StageEvidence",
    "StageHistory",
    "Style",
    "Tally",
    "Task",
    "Term",
    "TrainingEvidence",
    "View",
    "Writer",
    "answer_pattern",
    "answer_schema",
    "answer_text",
    "behaviours",
    "build_context",
    "configuration_yaml",
    "design",
    "format_configuration",
    "lake_domain",
    "lake_evidence",
    "rehearse",
    "replay",
    "review",
    "score",
    "scripted",
    "table",
]
