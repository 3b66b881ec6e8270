"""The Design phase: ask the engineer, review its answer, and retry or keep the configuration."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from pydantic import Field, SerializeAsAny, field_serializer

from engineer.context.build import (
    BLOCKS,
    BlockName,
    Context,
    ContextStyle,
    answer_form,
    build_context,
)
from engineer.context.token_limit import CountTokens, estimate_tokens
from engineer.context.view import StageView
from engineer.costs import Costs, Count, Seconds
from engineer.engineers.base import ControlEngineer, Engineer, EngineerError, Proposal, Task
from engineer.quoting import escape_surrogates
from engineer.review import Change, Repair, Review, StepLimit, review_answer
from engineer.space import Configuration, FrozenModel
from jaxlake.errors import UserError

C = TypeVar("C", bound=Configuration)

AttemptSeed = Callable[[int], int]
"""Maps an attempt number to its seed."""


class DesignSettings(FrozenModel):
    """Settings of the design phase."""

    attempts: int = Field(default=3, ge=1, le=20)  # maximum number of answers to request
    blocks: tuple[BlockName, ...] = BLOCKS
    style: ContextStyle = "full"
    max_context_tokens: int | None = Field(default=None, ge=1)
    """Maximum length of the prompt, which is cut to fit; None: no limit."""
    step_limit: StepLimit = StepLimit()


class Attempt(FrozenModel):
    """One prompt with its raw answer: a line of `answers.jsonl`."""

    attempt: Count  # from 0 in each design phase
    context: str  # the prompt, byte for byte
    cut: tuple[str, ...] = ()  # cuts that made the prompt fit
    reasoning: str = ""  # text of the engineer before its answer
    text: str | None  # the raw answer; None if the engineer gave none
    kind: Literal["accepted", "repaired", "unchanged", "rejected", "failed"]
    """`failed`: the engineer gave no answer."""
    repairs: tuple[Repair, ...]
    reason: str
    seconds: Seconds
    tokens: Count | None


class DesignRecord(FrozenModel, Generic[C]):
    """The outcome of a Design phase.

    `decision.json` omits the attempts and times, so that equal runs write equal files.
    """

    stage: int  # the stage whose evidence the engineer read
    engineer: str
    kind: Literal["accepted", "repaired", "unchanged", "retried", "kept"]
    """`unchanged`: the answer equals the current configuration. `retried`: the answer to a retry is
    used, as written or repaired. `kept`: no answer is usable, and the configuration stays."""
    configuration: SerializeAsAny[C]  # configuration of the next stage
    diff: tuple[Change, ...]
    repairs: tuple[Repair, ...]
    reason: str
    spent: Costs
    attempts: tuple[Attempt, ...] = Field(default=(), exclude=True)

    @field_serializer("spent")
    def _serialize_spent(self, spent: Costs) -> dict[str, int]:
        return spent.model_dump(exclude={"seconds"})

    @property
    def context(self) -> str:
        """The first prompt; prompts of retries also explain the rejection."""
        return self.attempts[0].context


def build_stage_context(
    view: StageView, settings: DesignSettings, count_tokens: CountTokens = estimate_tokens
) -> Context:
    """Build the prompt for an engineer from the design settings; raises as `build_context`."""
    return build_context(
        view,
        blocks=settings.blocks,
        style=settings.style,
        max_tokens=settings.max_context_tokens,
        count_tokens=count_tokens,
    )


def run_design(
    engineer: Engineer,
    view: StageView,
    settings: DesignSettings,
    *,
    seed: AttemptSeed = lambda attempt: attempt,
    count_tokens: CountTokens = estimate_tokens,
) -> DesignRecord[Configuration]:
    """Run a design phase: let an engineer write the next configuration.

    An `EngineerError` counts as a failed attempt. Other errors of the engineer propagate.

    Args:
        engineer: The engineer.
        view: The results of the run so far.
        settings: The number of attempts, the prompt and the step limit.
        seed: Maps an attempt number to its seed.
        count_tokens: Counts the tokens of a prompt with the tokenizer of the engineer's model.

    Returns:
        The decision with its attempts. If no answer is usable, the configuration is kept.

    Raises:
        ValueError: `view.current` is out of bounds.
        ContextTooLongError: The prompt exceeds `settings.max_context_tokens` even after all cuts.
        UserError: The engineer returned something other than a `Proposal`.
    """
    if violation := view.domain.space.violation(view.current):
        raise ValueError(f"the current configuration is out of bounds: {violation}")
    start = time.perf_counter()
    form = answer_form(view.domain, settings.style)
    first_seed = seed(0)
    build = partial(build_stage_context, settings=settings, count_tokens=count_tokens)
    attempts: list[Attempt] = []

    def make_record(**outcome: Any) -> DesignRecord[Configuration]:
        tokens = sum(attempt.tokens or 0 for attempt in attempts)
        return DesignRecord(
            stage=view.evidence.stage,
            engineer=engineer.name,
            attempts=tuple(attempts),
            spent=Costs(engineer_tokens=tokens, seconds=time.perf_counter() - start),
            **outcome,
        )

    for attempt_number in range(settings.attempts):
        task = Task(
            context=build(view),
            view=view,
            form=form,
            seed=seed(attempt_number) if attempt_number else first_seed,
            attempt=attempt_number,
            first_seed=first_seed,
            build_context=build,
        )
        attempt, review = _run_attempt(engineer, task, settings.step_limit)
        attempts.append(attempt)
        if review is None:
            continue
        if review.kind != "rejected":
            is_retry = attempt_number and review.kind != "unchanged"
            return make_record(
                kind="retried" if is_retry else review.kind,
                configuration=review.configuration,
                diff=review.diff,
                repairs=review.repairs,
                reason=review.reason,
            )
        view = replace(view, refusal=review.reason, refused_answer=attempt.text or "")
    reasons = "; ".join(dict.fromkeys(attempt.reason for attempt in attempts))
    subject = "1 answer was" if len(attempts) == 1 else f"{len(attempts)} answers were"
    return make_record(
        kind="kept",
        configuration=view.current,
        diff=(),
        repairs=(),
        reason=f"{subject} refused: {reasons}",
    )


def _check_proposal(proposal: Proposal, name: str) -> Proposal:
    if isinstance(proposal, Proposal) and isinstance(proposal.text, str):
        return proposal
    raise UserError(f"propose of engineer {name} must return a Proposal, got {proposal!r:.100}")


def _run_attempt(
    engineer: Engineer, task: Task, step_limit: StepLimit
) -> tuple[Attempt, Review | None]:
    """Request one answer and review it; the review is None if the engineer fails."""
    recorded_task = engineer.alter_task(task) if isinstance(engineer, ControlEngineer) else task
    start = time.perf_counter()
    text, review, reasoning = None, None, ""
    try:
        proposal = _check_proposal(engineer.propose(task), engineer.name)
    except EngineerError as error:
        reason = str(error)
        tokens = error.spent.engineer_tokens or None
        seconds = error.spent.seconds or time.perf_counter() - start
    else:
        text = escape_surrogates(proposal.text)
        reasoning = escape_surrogates(proposal.reasoning)
        review = review_answer(text, task.view.current, task.view.domain, step_limit)
        reason, tokens, seconds = review.reason, proposal.tokens, proposal.seconds
    attempt = Attempt(
        attempt=task.attempt,
        context=recorded_task.context.text,
        cut=recorded_task.context.cut,
        reasoning=reasoning,
        text=text,
        kind=review.kind if review else "failed",
        repairs=review.repairs if review else (),
        reason=escape_surrogates(reason),
        seconds=seconds,
        tokens=tokens,
    )
    return attempt, review
