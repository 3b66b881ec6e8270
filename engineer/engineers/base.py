"""What every engineer is: something that answers a task with a configuration in text."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from engineer.attempt import Candidate
from engineer.context.build import Context
from engineer.context.view import View
from engineer.ledger import Budget, Spent


class EngineerError(RuntimeError):
    """An engineer could not answer. The message is fit for logs: it holds no key.

    Args:
        message: why.
        spent: what it cost all the same, but for the time.
        candidates: what those said who were asked for it, if others were.
    """

    def __init__(
        self, message: str, spent: Spent | None = None, candidates: tuple[Candidate, ...] = ()
    ) -> None:
        super().__init__(message)
        self.spent = spent or Spent()
        self.candidates = candidates


@dataclass(frozen=True)
class Task:
    """One question, in words for those that read and as values for those that compute.

    Args:
        context: the prompt, as `build_context` made it.
        view: what the prompt was made from.
        schema: JSON schema of the answer, for decoders that can be constrained.
        seed: decides everything random about the answer; differs by run, stage and attempt.
        attempt: 0 for the first, so that a generator can sample anew on a retry.
        first_seed: the seed of the first attempt, for what stays the same on a retry.
        budget: what may still be spent, which no answer may exceed.
        rebuild: makes the prompt of another view in the same style, for engineers that change what
            another one gets to see.
    """

    context: Context
    view: View
    schema: dict[str, Any]
    seed: int = 0
    attempt: int = 0
    first_seed: int = 0
    budget: Budget = field(default_factory=Budget)
    rebuild: Callable[[View], Context] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Proposal:
    """One answer as it came, before any review."""

    text: str
    seconds: float  # wall-clock time spent on it
    tokens: int | None = 0  # tokens generated, None where unknown
    probe_rollouts: int = 0  # answers drawn to try configurations out
    probe_instances: int = 0  # training instances used to try configurations out
    candidates: tuple[Candidate, ...] = ()  # where others were asked: what each of them said


class Engineer(Protocol):
    """Anything that answers a task with a configuration in text.

    Engineers keep no state between stages: what they need of earlier ones is in
    `task.view.history`, so that a resumed run asks the same and gets the same.
    """

    @property
    def name(self) -> str:
        """How records and reports call it."""
        ...

    def propose(self, task: Task) -> Proposal:
        """Answer a task.

        Raises:
            EngineerError: if no answer could be had.
        """
        ...


@runtime_checkable
class Control(Protocol):
    """An engineer that asks another one about something else than what happened."""

    def shown(self, task: Task) -> Task:
        """The task as the one that answers in the end gets to see it, which records keep."""
        ...


@runtime_checkable
class Writer(Protocol):
    """An engineer that can also write prose, for the Summary block."""

    def write(self, prompt: str, seed: int, max_tokens: int | None = None) -> Proposal:
        """Answer a prompt freely, in at most `max_tokens`; None: as many as it ever writes.

        Raises:
            EngineerError: if no answer could be had.
        """
        ...
