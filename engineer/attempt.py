"""What an engineer was asked and what it answered, as records keep it."""

from typing import Literal

from pydantic import Field

from engineer.budget import Count, Seconds
from engineer.review import Repair
from engineer.space import FrozenModel


class Attempt(FrozenModel):
    """One question and its answer, as they were."""

    context: str = Field(description="the prompt that was answered, byte for byte")
    cut: tuple[str, ...] = Field(default=(), description="what was left out to fit the prompt")
    text: str | None = Field(description="the raw answer; None if there was none")
    kind: Literal["accepted", "repaired", "rejected", "failed"] = Field(
        description="failed: the engineer gave no answer"
    )
    repairs: tuple[Repair, ...]
    reason: str
    seconds: Seconds
    tokens: Count | None
    candidates: "tuple[Candidate, ...]" = Field(
        default=(), description="what other engineers answered, if any were asked"
    )


class Candidate(Attempt):
    """What one of several engineers answered, among whose answers one was chosen."""

    engineer: str
    score: float | None = Field(description="of its probe; None: it was not probed")


Attempt.model_rebuild()


def escape_surrogates(text: str) -> str:
    """Escape lone surrogates, which JSON can carry but files can't."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
