"""The environment engineer: reads where a policy fails and writes the next configuration.

The package works for any environment; only `engineer.lake` names the lake.

- `space` and `domain` say what an environment brings, `evidence` what a stage showed.
- `context/` turns that into a prompt, and `engineers/` answer it.
- `review` turns any answer into a configuration within bounds, and `gate` keeps what works.
- `design` puts these together; `scoring/` compares proposals without training.
"""

from engineer.attempt import Attempt
from engineer.budget import Budget, Spent
from engineer.context import (
    BLOCKS,
    CUTS,
    BlockName,
    Context,
    ContextStyle,
    StageView,
    build_context,
)
from engineer.design import DesignRecord, DesignSettings, run_design
from engineer.domain import Domain, InfeasibleError, Slices, Term
from engineer.engineers.base import Engineer, EngineerError, NoteWriter, Proposal, Task
from engineer.engineers.catalogue import SCRIPTED, RunSettings, scripted_engineer
from engineer.engineers.controls import ShuffledEngineer
from engineer.engineers.endpoint import EndpointEngineer
from engineer.engineers.language_model import GeneratedText, LanguageModelEngineer
from engineer.engineers.oracle import OracleEngineer, Probe, ProbeResult
from engineer.engineers.rule import RuleEngineer
from engineer.evidence import (
    FailedCase,
    FailureTime,
    GroupEvidence,
    StageEvidence,
    StageHistory,
    Tally,
    TrainingEvidence,
)
from engineer.gate import GateSettings
from engineer.review import Change, Guard, Repair, Review, review_answer
from engineer.scoring.behaviours import score_behaviours
from engineer.scoring.replay import ScoredDesign, format_scores, replay_engineers, score_design
from engineer.space import (
    Configuration,
    KnobSpace,
    answer_pattern,
    answer_schema,
    answer_text,
    configuration_yaml,
    format_configuration,
)
from engineer.synthetic_examples import synthetic_example

__all__ = [
    "BLOCKS",
    "CUTS",
    "SCRIPTED",
    "Attempt",
    "BlockName",
    "Budget",
    "Change",
    "Configuration",
    "Context",
    "ContextStyle",
    "DesignRecord",
    "DesignSettings",
    "Domain",
    "EndpointEngineer",
    "Engineer",
    "EngineerError",
    "FailedCase",
    "FailureTime",
    "GateSettings",
    "GeneratedText",
    "GroupEvidence",
    "Guard",
    "InfeasibleError",
    "KnobSpace",
    "LanguageModelEngineer",
    "NoteWriter",
    "OracleEngineer",
    "Probe",
    "ProbeResult",
    "Proposal",
    "Repair",
    "Review",
    "RuleEngineer",
    "RunSettings",
    "ScoredDesign",
    "ShuffledEngineer",
    "Slices",
    "Spent",
    "StageEvidence",
    "StageHistory",
    "StageView",
    "Tally",
    "Task",
    "Term",
    "TrainingEvidence",
    "answer_pattern",
    "answer_schema",
    "answer_text",
    "build_context",
    "configuration_yaml",
    "format_configuration",
    "format_scores",
    "replay_engineers",
    "review_answer",
    "run_design",
    "score_behaviours",
    "score_design",
    "scripted_engineer",
    "synthetic_example",
]
