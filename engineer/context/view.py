"""What the blocks of a context read, and how much of it they may show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from engineer.domain import Domain
from engineer.evidence import GroupEvidence, StageEvidence, StageHistory
from engineer.space import Configuration

ContextStyle = Literal["compact", "full"]
"""In single symbols for a small model, or in sentences."""


@dataclass(frozen=True)
class StageView:
    """Everything that an engineer may be told when a stage has ended."""

    domain: Domain
    evidence: StageEvidence  # what the stage that just ended showed
    current: Configuration  # in force, which the next stage uses unless it is changed
    history: Sequence[StageHistory] = ()  # the stages before, oldest first
    stages_left: int | None = None  # to train, the one that is designed included
    reasoning_tokens: int = 0  # longest text that the engineer writes before its answer
    notice: str = ""  # a message of the loop, such as a rollback
    refusal: str = ""  # on a retry, why the previous answer was refused
    refused_answer: str = ""  # that answer
    trained: Configuration | None = None  # what the stage trained on; None: what is in force
    designed_from: Configuration | None = None  # in force when the stage was designed, if it was
    valid_before: Mapping[str, float] = field(default_factory=dict)
    """Valid rates by group with the weights that the stage started from; empty if unknown."""
    taken_back: Mapping[str, GroupEvidence] = field(default_factory=dict)
    """What the weights that the stage made answered, by group, if they are no longer in force."""


class Detail(NamedTuple):
    """How much the blocks show; `engineer.context.token_limit` reduces it."""

    failed_cases: int = 4
    history: int = 6  # latest stages
    summary: bool = True
    statistics: bool = True
    slices: bool = True
    training: bool = True
    guideline: bool = True
    refusal: bool = True


FULL_DETAIL = Detail()
"""The most that the blocks ever show."""
