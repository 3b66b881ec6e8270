"""One question to one engineer: asked, reviewed and recorded."""

import time
from dataclasses import replace
from typing import NamedTuple

from engineer.attempt import Attempt, escape_surrogates
from engineer.budget import Spent
from engineer.engineers.base import ControlEngineer, Engineer, EngineerError, Proposal, Task
from engineer.review import Guard, Review, review_answer
from engineer.space import Configuration


class Reply(NamedTuple):
    """What became of a question."""

    attempt: Attempt
    review: Review | None  # None if there was no answer
    spent: Spent

    @property
    def configuration(self) -> Configuration | None:
        """The configuration that the review let pass."""
        return self.review.configuration if self.review else None


def ask_engineer(engineer: Engineer, task: Task, guard: Guard | None) -> Reply:
    """Ask an engineer and review its answer.

    An `EngineerError` makes a failed attempt; other errors are passed on.
    """
    seen = engineer.altered_task(task) if isinstance(engineer, ControlEngineer) else task
    start = time.perf_counter()
    try:
        proposal = engineer.propose(task)
    except EngineerError as error:
        review, reason = None, str(error)
        seconds = error.spent.seconds or time.perf_counter() - start
        spent = error.spent.model_copy(update={"seconds": seconds})
        proposal = Proposal(
            "", spent.seconds, spent.engineer_tokens or None, candidates=error.candidates
        )
    else:
        proposal = replace(proposal, text=escape_surrogates(proposal.text))
        review = review_answer(proposal.text, task.view.current, task.view.domain, guard)
        reason = review.reason
        spent = Spent(
            engineer_tokens=proposal.tokens or 0,
            probe_instances=proposal.probe_instances,
            probe_rollouts=proposal.probe_rollouts,
            seconds=proposal.seconds,
        )
    attempt = Attempt(
        context=seen.context.text,
        cut=seen.context.cut,
        text=proposal.text if review else None,
        kind=review.kind if review else "failed",
        repairs=review.repairs if review else (),
        reason=escape_surrogates(reason),
        seconds=proposal.seconds,
        tokens=proposal.tokens,
        candidates=proposal.candidates,
    )
    return Reply(attempt, review, spent)
