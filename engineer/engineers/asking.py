"""One question to one engineer: asked, reviewed and written down."""

import time
from typing import NamedTuple

from engineer.attempt import Attempt, writable
from engineer.engineers.base import Control, Engineer, EngineerError, Task
from engineer.ledger import Spent
from engineer.pipeline import Decision, Guard, review


class Asked(NamedTuple):
    """What became of a question."""

    attempt: Attempt
    decision: Decision | None  # None where there was no answer
    spent: Spent


def ask(engineer: Engineer, task: Task, guard: Guard | None) -> Asked:
    """Ask, and review the answer.

    Args:
        engineer: who is asked. An `EngineerError` is a failed attempt; other errors are passed on.
        task: the question.
        guard: see `review`.
    """
    seen = engineer.shown(task).context if isinstance(engineer, Control) else task.context
    start = time.perf_counter()
    try:
        proposal = engineer.propose(task)
    except EngineerError as error:
        seconds = time.perf_counter() - start
        attempt = Attempt(
            context=seen.text,
            cut=seen.cut,
            text=None,
            kind="failed",
            repairs=(),
            reason=writable(str(error)),
            seconds=seconds,
            tokens=error.spent.engineer_tokens or None,
            candidates=error.candidates,
        )
        return Asked(attempt, None, error.spent.model_copy(update={"seconds": seconds}))
    text = writable(proposal.text)
    decision = review(text, task.view.current, task.view.domain, guard)
    attempt = Attempt(
        context=seen.text,
        cut=seen.cut,
        text=text,
        kind=decision.kind,
        repairs=decision.repairs,
        reason=writable(decision.reason),
        seconds=proposal.seconds,
        tokens=proposal.tokens,
        candidates=proposal.candidates,
    )
    spent = Spent(
        engineer_tokens=proposal.tokens or 0,
        probe_instances=proposal.probe_instances,
        probe_rollouts=proposal.probe_rollouts,
        seconds=proposal.seconds,
    )
    return Asked(attempt, decision, spent)
