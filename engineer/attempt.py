"""What an engineer was asked and what came back, as records keep it."""

from typing import Literal

from pydantic import Field

from engineer.pipeline import Repair
from engineer.space import Frozen


class Attempt(Frozen):
    """One question and what came back, as they were."""

    context: str = Field(description="the prompt that was answered, byte for byte")
    cut: tuple[str, ...] = Field(default=(), description="what was left out to fit the prompt")
    text: str | None = Field(description="the raw answer; None if there was none")
    kind: Literal["accepted", "repaired", "rejected", "failed"] = Field(
        description="failed: the engineer gave no answer"
    )
    repairs: tuple[Repair, ...]
    reason: str
    seconds: float
    tokens: int | None
    candidates: "tuple[Candidate, ...]" = Field(
        default=(), description="where others were asked for the answer: what each of them said"
    )


class Candidate(Attempt):
    """What one of several engineers said, among whose answers one was chosen."""

    engineer: str
    score: float | None = Field(description="of trying it out; None: not tried out")


Attempt.model_rebuild()


def writable(text: str) -> str:
    """Any text as one that files take: a lone surrogate (JSON can carry one) is escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
