"""What the blocks of a context look at, and how much of it they may show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from engineer.domain import Domain
from engineer.evidence import StageEvidence, StageHistory
from engineer.space import Configuration, percent

Style = Literal["compact", "full"]
"""In sentences, or in whole per cents and few words."""


@dataclass(frozen=True)
class View:
    """Everything that an engineer may be told when a stage has ended.

    Args:
        domain: the environment's knobs and words.
        evidence: what the stage that just ended showed.
        current: the configuration that is in force for the next stage unless it is changed.
        history: the stages before it, oldest first.
        notice: what the loop has to say, such as a rollback; empty if nothing.
        refusal: why the previous answer to this question was refused, on a second attempt.
        trained: what the stage that just ended was trained on; None: what is in force.
    """

    domain: Domain
    evidence: StageEvidence
    current: Configuration
    history: Sequence[StageHistory] = ()
    notice: str = ""
    refusal: str = ""
    trained: Configuration | None = None


class Detail(NamedTuple):
    """How much the blocks show; `engineer.context.budget` cuts it down."""

    failed_cases: int = 4
    history: int = 6  # latest stages
    summary: bool = True
    statistics: bool = True
    slices: bool = True
    times: bool = True
    training: bool = True
    guideline: bool = True
    refusal: bool = True


EVERYTHING = Detail()
"""As much as the blocks ever show."""


class Block(NamedTuple):
    """One part of the prompt in both styles; an empty text leaves it out."""

    full: Callable[[View, Detail], str]
    compact: Callable[[View, Detail], str]


def from_to(before: dict[str, float], after: dict[str, float], group: str) -> str:
    """`12 to 30`: a rate in per cents before and after, `?` where it isn't known."""
    known = (str(percent(rates[group])) if group in rates else "?" for rates in (before, after))
    return " to ".join(known)
