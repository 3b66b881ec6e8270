"""The input of the blocks of a context, and the level of detail."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from engineer.domain import Domain
from engineer.evidence import GroupEvidence, StageEvidence, StageHistory
from engineer.space import Configuration

ContextStyle = Literal["compact", "full"]
"""`compact`: symbols, for small models; `full`: sentences."""


@dataclass(frozen=True)
class StageView:
    """All information that an engineer can see at the end of a stage."""

    domain: Domain
    evidence: StageEvidence  # results of the stage that just ended
    current: Configuration  # used by the next stage unless the engineer changes it
    history: Sequence[StageHistory] = ()  # earlier stages, oldest first
    stages_left: int | None = None  # stages to train, including the one to design
    reasoning_tokens: int = 0  # maximum length of the reasoning before the answer; 0: none
    notice: str = ""  # a message of the loop, such as a rollback
    refusal: str = ""  # on a retry, the reason why the previous answer was rejected
    refused_answer: str = ""  # the rejected answer
    trained: Configuration | None = None  # configuration of the ended stage; None: `current`
    designed_from: Configuration | None = None  # the configuration before the stage's design
    valid_before: Mapping[str, float] = field(default_factory=dict)
    """Valid rates by group of the stage's initial weights; empty if unknown."""
    rolled_back_validation: Mapping[str, GroupEvidence] = field(default_factory=dict)
    """Validation answers of the stage's final weights by group, if they were rolled back."""


class Detail(NamedTuple):
    """The level of detail of the blocks, which `engineer.context.token_limit` reduces."""

    failed_cases: int = 4
    history: int = 6  # number of latest stages
    summary: bool = True
    statistics: bool = True
    slices: bool = True
    training: bool = True
    guideline: bool = True
    refusal: bool = True


FULL_DETAIL = Detail()
"""The maximum level of detail."""
