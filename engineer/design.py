"""The Design phase: asks the engineer, reviews, asks again, or keeps the last configuration."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from pydantic import Field, SerializeAsAny

from engineer.attempt import Attempt
from engineer.budget import Budget, Spent
from engineer.context.build import (
    BLOCKS,
    BlockName,
    Context,
    ContextStyle,
    answer_form,
    build_context,
)
from engineer.context.token_limit import CountTokens, estimate_tokens
from engineer.context.view import FULL_DETAIL, Detail, StageView
from engineer.engineers.asking import ask_engineer
from engineer.engineers.base import Engineer, Task
from engineer.review import Change, Guard, Repair
from engineer.space import Configuration, FrozenModel

SeedOfAttempt = Callable[[int], int]
"""Maps the number of an attempt to its seed."""


class DesignSettings(FrozenModel):
    """How the engineer is asked."""

    attempts: int = Field(default=3, ge=1, le=20, description="answers asked for before giving up")
    blocks: tuple[BlockName, ...] = BLOCKS
    style: ContextStyle = "full"
    max_context_tokens: int | None = Field(
        default=None, ge=1, description="the prompt is cut to fit; None: any length"
    )
    detail: Detail = Field(default=FULL_DETAIL, description="how much the blocks show at most")
    guard: Guard = Guard()
    budget: Budget = Budget()


class DesignRecord(FrozenModel):
    """The outcome of a Design phase and everything that led to it."""

    stage: int = Field(description="the stage whose evidence was read")
    engineer: str
    kind: Literal["accepted", "repaired", "retried", "kept"] = Field(
        description="retried: a later answer was used, as written or repaired; "
        "kept: no answer was usable, the configuration stays"
    )
    configuration: SerializeAsAny[Configuration] = Field(description="of the next stage")
    diff: tuple[Change, ...]
    repairs: tuple[Repair, ...]
    reason: str
    attempts: tuple[Attempt, ...]
    spent: Spent

    @property
    def context(self) -> str:
        """The first prompt; the prompts of retries also hold the reason of the refusal."""
        return self.attempts[0].context if self.attempts else ""


def context_for(
    view: StageView, settings: DesignSettings, count_tokens: CountTokens = estimate_tokens
) -> Context:
    """Build the prompt that an engineer is asked with; raises as `build_context`."""
    return build_context(
        view,
        blocks=settings.blocks,
        style=settings.style,
        max_tokens=settings.max_context_tokens,
        detail=settings.detail,
        count_tokens=count_tokens,
    )


def run_design(
    engineer: Engineer,
    view: StageView,
    settings: DesignSettings,
    *,
    seed: SeedOfAttempt = lambda attempt: attempt,
    count_tokens: CountTokens = estimate_tokens,
) -> DesignRecord:
    """Let an engineer write the next configuration, in at most `settings.attempts` answers.

    An `EngineerError` counts as a failed attempt; other errors of the engineer are passed on.
    Tokens are counted as the model that reads the context counts them.

    Raises:
        ValueError: `view.current` lies outside of the space, so that it could not be kept.
        ContextTooLongError: see `build_context`.
    """
    if violation := view.domain.space.violation(view.current):
        raise ValueError(f"the current configuration is out of bounds: {violation}")
    start = time.perf_counter()
    form = answer_form(view.domain, settings.style)
    first_seed = seed(0)
    rebuild = partial(context_for, settings=settings, count_tokens=count_tokens)
    attempts: list[Attempt] = []
    spent, problem = Spent(), ""

    def record(**outcome: Any) -> DesignRecord:
        return DesignRecord(
            stage=view.evidence.stage,
            engineer=engineer.name,
            attempts=tuple(attempts),
            spent=spent.model_copy(update={"seconds": time.perf_counter() - start}),
            **outcome,
        )

    for number in range(settings.attempts):
        if problem := settings.budget.exhausted(spent) or "":
            break
        task = Task(
            context=rebuild(view),
            view=view,
            form=form,
            seed=seed(number) if number else first_seed,
            attempt=number,
            first_seed=first_seed,
            budget=settings.budget.left(spent),
            rebuild=rebuild,
        )
        attempt, review, cost = ask_engineer(engineer, task, settings.guard)
        attempts.append(attempt)
        spent = spent + cost
        if review is None:
            continue
        if review.kind != "rejected":
            return record(
                kind="retried" if number else review.kind,
                configuration=review.configuration,
                diff=review.diff,
                repairs=review.repairs,
                reason=review.reason,
            )
        view = replace(view, refusal=review.reason)
    why = f"the budget is spent, {problem}" if problem else f"the last: {attempts[-1].reason}"
    return record(
        kind="kept",
        configuration=view.current,
        diff=(),
        repairs=(),
        reason=f"kept after {len(attempts)} attempts, {why}",
    )
