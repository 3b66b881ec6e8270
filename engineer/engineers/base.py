"""The interface of engineers, which answer a task with the text of a configuration."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from engineer.context.build import Context
from engineer.context.view import StageView
from engineer.costs import Costs
from engineer.space import AnswerForm


class EngineerError(RuntimeError):
    """An engineer could not answer. The message contains no API key and is safe to log.

    `spent` holds the costs of the failed attempt. If its time is 0, the caller measures it.
    """

    def __init__(self, message: str, spent: Costs | None = None) -> None:
        super().__init__(message)
        self.spent = spent or Costs()


@dataclass(frozen=True)
class Task:
    """One request, as text for language models and as values for computed engineers."""

    context: Context
    view: StageView  # the source of the context
    form: AnswerForm  # format of the answer, for constrained decoding
    seed: int = 0  # seed of all random decisions; differs by run, stage and attempt
    attempt: int = 0  # from 0; retries may sample another answer
    first_seed: int = 0  # seed of the first attempt, for decisions that all attempts share
    build_context: Callable[[StageView], Context] | None = field(default=None, repr=False)
    """Builds the prompt of another view in the same style; used by controls."""


@dataclass(frozen=True)
class Proposal:
    """One unreviewed answer."""

    text: str
    seconds: float  # wall-clock time
    tokens: int | None = 0  # generated tokens, including reasoning; None if unknown
    reasoning: str = ""  # the engineer's text before the answer


class Engineer(Protocol):
    """Protocol of engineers.

    Engineers must be stateless, so that a resumed run gets the same answer to the same task.
    `task.view.history` holds the earlier stages.
    """

    @property
    def name(self) -> str:
        """The name in records and reports."""

    def propose(self, task: Task) -> Proposal:
        """Answer a task; raise `EngineerError` on failure."""


@runtime_checkable
class ControlEngineer(Protocol):
    """Protocol of experimental controls, which ask another engineer about altered evidence."""

    def alter_task(self, task: Task) -> Task:
        """Return the task that the inner engineer answers; its context is recorded."""


@runtime_checkable
class NoteWriter(Protocol):
    """Protocol of engineers that can also write free text for the Summary block."""

    def write(self, prompt: str, seed: int) -> Proposal:
        """Answer a prompt with free text; raises as `Engineer.propose`."""
