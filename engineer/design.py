"""The Design phase: ask the engineer, review, ask again, else keep the last configuration."""

import time
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from engineer.configuration import Bounds, Frozen, LakeConfiguration, answer_schema
from engineer.context import BLOCKS, BlockName, Style, build_context
from engineer.engineers import Engineer, EngineerError
from engineer.evidence import StageEvidence, StageHistory
from engineer.pipeline import MIN_ACCEPTANCE, Acceptance, Change, Repair, review
from engineer.rule import Feasibility
from jaxlake import infeasibility
from jaxlake.generator import acceptance as shipped_acceptance


class DesignSettings(Frozen):
    """How the engineer is asked."""

    bounds: Bounds
    attempts: int = Field(default=3, ge=1, le=20, description="answers asked for before giving up")
    blocks: tuple[BlockName, ...] = BLOCKS
    style: Style = "full"


class Attempt(Frozen):
    """One question and what came back, as they were."""

    context: str = Field(description="the prompt, byte for byte")
    text: str | None = Field(description="the raw answer; None if there was none")
    kind: Literal["accepted", "repaired", "rejected", "failed"] = Field(
        description="failed: the engineer gave no answer"
    )
    repairs: tuple[Repair, ...]
    reason: str
    seconds: float
    tokens: int | None


class DesignRecord(Frozen):
    """The outcome of a Design phase and everything that led to it."""

    stage: int = Field(description="the stage whose evidence was read")
    engineer: str
    kind: Literal["accepted", "repaired", "kept"] = Field(
        description="kept: no answer was usable, the configuration stays"
    )
    configuration: LakeConfiguration = Field(description="of the next stage")
    diff: tuple[Change, ...]
    repairs: tuple[Repair, ...]
    reason: str
    attempts: tuple[Attempt, ...]
    seconds: float = Field(description="wall-clock time of the phase")
    tokens: int | None = Field(description="tokens generated, None where unknown")

    @property
    def context(self) -> str:
        """The first prompt; retries add the reason of the refusal to it."""
        return self.attempts[0].context


def design(
    engineer: Engineer,
    evidence: StageEvidence,
    current: LakeConfiguration,
    history: Sequence[StageHistory],
    *,
    settings: DesignSettings,
    num_agents: int,
    feasibility: Feasibility = infeasibility,
    acceptance: Acceptance | None = shipped_acceptance,
    min_acceptance: float = MIN_ACCEPTANCE,
) -> DesignRecord:
    """Let an engineer write the next configuration, in at most `settings.attempts` answers.

    Args:
        engineer: who answers. An `EngineerError` counts as a failed attempt; other errors are
            passed on.
        evidence: what the stage that just ended showed.
        current: the configuration it was trained on, within the bounds.
        history: the stages before it, oldest first.
        settings: bounds, attempts and the make-up of the context.
        num_agents: agents on the boards to be generated.
        feasibility: see `engineer.pipeline.review`.
        acceptance: likewise.
        min_acceptance: likewise.

    Raises:
        ValueError: if `current` lies outside of the bounds, so that it could not be kept.
    """
    violation = settings.bounds.violation(current)
    if violation:
        raise ValueError(f"the current configuration is out of bounds: {violation}")
    start = time.perf_counter()
    schema = answer_schema(settings.bounds)
    attempts: list[Attempt] = []
    refusal: str | None = None
    for number in range(settings.attempts):
        context = build_context(
            evidence,
            current,
            history,
            bounds=settings.bounds,
            blocks=settings.blocks,
            style=settings.style,
            refusal=refusal,
        )
        asked = time.perf_counter()
        try:
            proposal = engineer.propose(
                context, schema=schema, attempt=number, evidence=evidence, current=current
            )
        except EngineerError as error:
            attempts.append(
                Attempt(
                    context=context,
                    text=None,
                    kind="failed",
                    repairs=(),
                    reason=_writable(str(error)),
                    seconds=time.perf_counter() - asked,
                    tokens=None,
                )
            )
            continue
        decision = review(
            proposal.text,
            current,
            bounds=settings.bounds,
            num_agents=num_agents,
            feasibility=feasibility,
            acceptance=acceptance,
            min_acceptance=min_acceptance,
        )
        attempts.append(
            Attempt(
                context=context,
                text=_writable(proposal.text),
                kind=decision.kind,
                repairs=decision.repairs,
                reason=decision.reason,
                seconds=proposal.seconds,
                tokens=proposal.tokens,
            )
        )
        if decision.kind != "rejected" and decision.configuration is not None:
            return DesignRecord(
                stage=evidence.stage,
                engineer=engineer.name,
                kind=decision.kind,
                configuration=decision.configuration,
                diff=decision.diff,
                repairs=decision.repairs,
                reason=decision.reason,
                attempts=tuple(attempts),
                seconds=time.perf_counter() - start,
                tokens=_total(attempts),
            )
        refusal = decision.reason
    return DesignRecord(
        stage=evidence.stage,
        engineer=engineer.name,
        kind="kept",
        configuration=current,
        diff=(),
        repairs=(),
        reason=f"kept after {len(attempts)} attempts, the last: {attempts[-1].reason}",
        attempts=tuple(attempts),
        seconds=time.perf_counter() - start,
        tokens=_total(attempts),
    )


def _writable(text: str) -> str:
    # A lone surrogate (JSON can carry one) can't be written to any file; it is escaped, all else
    # kept.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _total(attempts: Sequence[Attempt]) -> int | None:
    known = [attempt.tokens for attempt in attempts if attempt.tokens is not None]
    return sum(known) if known else None
