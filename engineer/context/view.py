"""What the blocks of a context read, and how much of it they may show."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from engineer.domain import Domain
from engineer.evidence import StageEvidence, StageHistory
from engineer.space import Configuration

ContextStyle = Literal["compact", "full"]
"""In whole per cents and few words, or in sentences."""


@dataclass(frozen=True)
class StageView:
    """Everything that an engineer may be told when a stage has ended.

    Args:
        domain: the environment's knobs and words.
        evidence: what the stage that just ended showed.
        current: the configuration in force, which the next stage uses unless it is changed.
        history: the stages before the one that just ended, oldest first.
        notice: a message of the loop, such as a rollback; empty if there is none.
        refusal: on a retry, why the previous answer was refused.
        trained: what the stage that just ended was trained on; None: the configuration in force.
    """

    domain: Domain
    evidence: StageEvidence
    current: Configuration
    history: Sequence[StageHistory] = ()
    notice: str = ""
    refusal: str = ""
    trained: Configuration | None = None


class Detail(NamedTuple):
    """How much the blocks show; `engineer.context.token_limit` reduces it."""

    failed_cases: int = 4
    history: int = 6  # latest stages
    summary: bool = True
    statistics: bool = True
    slices: bool = True
    times: bool = True
    training: bool = True
    guideline: bool = True
    refusal: bool = True


FULL_DETAIL = Detail()
"""The most that the blocks ever show."""
