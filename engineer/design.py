"""The Design phase: ask the engineer, review, ask again, else keep the last configuration."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from pydantic import Field, SerializeAsAny

from engineer.attempt import Attempt
from engineer.context.budget import CountTokens, characters_over_three
from engineer.context.build import BLOCKS, BlockName, Context, Style, build_context
from engineer.context.view import EVERYTHING, Detail, View
from engineer.engineers.asking import ask
from engineer.engineers.base import Engineer, Task
from engineer.ledger import Budget, Spent
from engineer.pipeline import Change, Guard, Repair
from engineer.space import Configuration, Frozen, answer_schema

Seed = Callable[[int], int]
"""Attempt to seed."""


class DesignSettings(Frozen):
    """How the engineer is asked."""

    attempts: int = Field(default=3, ge=1, le=20, description="answers asked for before giving up")
    blocks: tuple[BlockName, ...] = BLOCKS
    style: Style = "full"
    max_context_tokens: int | None = Field(
        default=None,
        ge=1,
        description="the prompt is cut to fit; None: any length",
    )
    detail: Detail = Field(default=EVERYTHING, description="how much the blocks show at most")
    guard: Guard = Guard()
    budget: Budget = Budget()


class DesignRecord(Frozen):
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
        """The first prompt; retries add the reason of the refusal to it."""
        return self.attempts[0].context if self.attempts else ""


def context_for(
    view: View, settings: DesignSettings, count_tokens: CountTokens = characters_over_three
) -> Context:
    """The prompt that an engineer is asked with.

    Raises:
        ContextTooLongError: see `build_context`.
    """
    return build_context(
        view,
        blocks=settings.blocks,
        style=settings.style,
        max_tokens=settings.max_context_tokens,
        detail=settings.detail,
        count_tokens=count_tokens,
    )


def design(
    engineer: Engineer,
    view: View,
    settings: DesignSettings,
    *,
    seed: Seed = lambda attempt: attempt,
    count_tokens: CountTokens = characters_over_three,
) -> DesignRecord:
    """Let an engineer write the next configuration, in at most `settings.attempts` answers.

    Args:
        engineer: who answers. An `EngineerError` counts as a failed attempt; other errors are
            passed on.
        view: what the stage that just ended showed, and the configuration in force.
        settings: attempts, the make-up of the context, how far a stage may go, the budget.
        seed: decides what is random about an attempt.
        count_tokens: of the model that reads the context.

    Raises:
        ValueError: if `view.current` lies outside of the space, so that it could not be kept.
        ContextTooLongError: see `build_context`.
    """
    violation = view.domain.space.violation(view.current)
    if violation:
        raise ValueError(f"the current configuration is out of bounds: {violation}")
    start = time.perf_counter()
    schema = answer_schema(view.domain.space)

    def context_of(what: View) -> Context:
        return context_for(what, settings, count_tokens)

    first_seed = seed(0)
    attempts: list[Attempt] = []
    spent = Spent()
    problem = ""
    for number in range(settings.attempts):
        if problem := settings.budget.exhausted(spent) or "":
            break
        task = Task(
            context=context_of(view),
            view=view,
            schema=schema,
            seed=seed(number) if number else first_seed,
            attempt=number,
            first_seed=first_seed,
            budget=settings.budget.left(spent),
            rebuild=context_of,
        )
        asked = ask(engineer, task, settings.guard)
        attempts.append(asked.attempt)
        spent = spent + asked.spent
        decision = asked.decision
        if decision is None:
            continue
        if decision.kind != "rejected" and decision.configuration is not None:
            return DesignRecord(
                stage=view.evidence.stage,
                engineer=engineer.name,
                kind="retried" if number else decision.kind,
                configuration=decision.configuration,
                diff=decision.diff,
                repairs=decision.repairs,
                reason=decision.reason,
                attempts=tuple(attempts),
                spent=spent.model_copy(update={"seconds": time.perf_counter() - start}),
            )
        view = replace(view, refusal=decision.reason)
    why = f"the budget is spent, {problem}" if problem else f"the last: {attempts[-1].reason}"
    return DesignRecord(
        stage=view.evidence.stage,
        engineer=engineer.name,
        kind="kept",
        configuration=view.current,
        diff=(),
        repairs=(),
        reason=f"kept after {len(attempts)} attempts, {why}",
        attempts=tuple(attempts),
        spent=spent.model_copy(update={"seconds": time.perf_counter() - start}),
    )
