"""The environment engineer: it reads where a policy fails and writes the next configuration.

The package works for any environment; only `engineer.lake` is specific to the lake.

- `space` and `domain` describe an environment, and `evidence` holds the results of a stage.
- `context/` builds a prompt from them, and `engineers/` answer it.
- `review` turns answers into configurations within bounds, and `gate` rolls back failed stages.
- `design` runs the whole design phase; `scoring/` compares proposals without training.
- `plug_in` connects another trainer: counts of answers in, a reviewed configuration out.
"""

from engineer.context.build import BLOCKS, BlockName, Context, build_context
from engineer.context.token_limit import CONTEXT_CUTS
from engineer.context.view import ContextStyle, StageView
from engineer.costs import Costs
from engineer.design import Attempt, DesignRecord, DesignSettings, run_design
from engineer.domain import Domain, Factor, InfeasibleError, Label
from engineer.engineers.adaptive import LearnabilityEngineer
from engineer.engineers.base import Engineer, EngineerError, NoteWriter, Proposal, Task
from engineer.engineers.catalogue import SCRIPTED_ENGINEERS, RunSettings, scripted_engineer
from engineer.engineers.controls import ShuffledEngineer, SimulatedEngineer
from engineer.engineers.language_model import (
    GeneratedText,
    LanguageModelEngineer,
    TextRequest,
)
from engineer.engineers.rule import RuleEngineer
from engineer.evidence import (
    AnswerStatistics,
    FailedCase,
    GroupEvidence,
    StageEvidence,
    StageHistory,
    Tally,
    TrainingEvidence,
)
from engineer.gate import GateSettings
from engineer.plug_in import Designer, RowPool, knob_domain, start_configuration
from engineer.review import Change, Repair, Review, StepLimit, review_answer
from engineer.scoring.atlas import AtlasCell, DesignAtlas, atlas_grid
from engineer.space import (
    Configuration,
    KnobConfiguration,
    KnobSpace,
    answer_schema,
    answer_text,
)

__all__ = ["Configuration", "Domain", "InfeasibleError", "KnobConfiguration", "KnobSpace"]
__all__ += ["Factor", "Label"]
__all__ += ["FailedCase", "GroupEvidence", "StageEvidence", "StageHistory", "Tally"]
__all__ += ["AnswerStatistics", "StageView", "TrainingEvidence"]
__all__ += ["BLOCKS", "CONTEXT_CUTS", "BlockName", "Context", "ContextStyle", "build_context"]
__all__ += ["Engineer", "EngineerError", "GeneratedText", "NoteWriter", "Proposal", "Task"]
__all__ += ["TextRequest"]
__all__ += ["LanguageModelEngineer", "LearnabilityEngineer"]
__all__ += ["Designer", "RowPool", "knob_domain", "start_configuration"]
__all__ += ["SCRIPTED_ENGINEERS", "RuleEngineer", "RunSettings", "ShuffledEngineer"]
__all__ += ["SimulatedEngineer", "scripted_engineer"]
__all__ += ["answer_schema", "answer_text"]
__all__ += ["Change", "GateSettings", "Repair", "Review", "StepLimit", "review_answer"]
__all__ += ["AtlasCell", "DesignAtlas", "atlas_grid"]
__all__ += ["Attempt", "Costs", "DesignRecord", "DesignSettings", "run_design"]
