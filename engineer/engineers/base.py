"""The interface of every engineer: it answers a task with a configuration in text."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from engineer.context.build import Context
from engineer.context.view import StageView
from engineer.space import AnswerForm
from engineer.spent import Spent


class EngineerError(RuntimeError):
    """An engineer could not answer. The message is fit for logs: it holds no key.

    `spent` is what the attempt cost nevertheless (its time is measured if none is given).
    """

    def __init__(self, message: str, spent: Spent | None = None) -> None:
        super().__init__(message)
        self.spent = spent or Spent()


@dataclass(frozen=True)
class Task:
    """One question, as text for engineers that read and as values for engineers that compute."""

    context: Context
    view: StageView  # what the context was made from
    form: AnswerForm  # of the answer, for decoders that can be constrained
    seed: int = 0  # decides everything random about the answer; differs by run, stage and attempt
    attempt: int = 0  # from 0, so that a model can sample anew on a retry
    first_seed: int = 0  # the seed of the first attempt, for what stays the same on a retry
    rebuild: Callable[[StageView], Context] | None = field(default=None, repr=False)
    """Makes the prompt of another view in the same style, for engineers that alter the evidence."""


@dataclass(frozen=True)
class Proposal:
    """One answer as it came, before any review."""

    text: str
    seconds: float  # wall-clock time spent on it
    tokens: int | None = 0  # tokens generated, reasoning included; None if unknown
    reasoning: str = ""  # what the engineer wrote before the answer


class Engineer(Protocol):
    """Anything that answers a task with a configuration in text.

    Engineers keep no state between stages: what they need of earlier stages is in
    `task.view.history`, so that a resumed run asks the same question and gets the same answer.
    """

    @property
    def name(self) -> str:
        """The name in records and reports."""

    def propose(self, task: Task) -> Proposal:
        """Answer a task; an `EngineerError` says that no answer could be had."""


@runtime_checkable
class ControlEngineer(Protocol):
    """A control of an experiment: it asks another engineer about altered evidence."""

    def altered_task(self, task: Task) -> Task:
        """Return the task that the other engineer answers; records keep its context."""


@runtime_checkable
class NoteWriter(Protocol):
    """An engineer that can also write free text, for the Summary block."""

    def write(self, prompt: str, seed: int) -> Proposal:
        """Answer a prompt freely; raises as `Engineer.propose`."""
