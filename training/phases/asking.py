"""An engineer outside of the run, asked by the first of several processes for all of them.

An endpoint or another model may answer each time differently, costs money or memory, and is asked
once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engineer import Engineer, EngineerError, NoteWriter, Spent
from engineer.engineers.base import Proposal, Task
from training.processes import alone, from_first


def asked_by_first(engineer: Engineer) -> Engineer:
    """Return an engineer that tells every process what the first one was answered."""
    if alone():
        return engineer
    return _NoteWriterOfFirst(engineer) if isinstance(engineer, NoteWriter) else _OfFirst(engineer)


@dataclass(frozen=True)
class _OfFirst:
    inner: Engineer

    @property
    def name(self) -> str:
        return self.inner.name

    def propose(self, task: Task) -> Proposal:
        return _told(lambda: self.inner.propose(task))


class _NoteWriterOfFirst(_OfFirst):
    def write(self, prompt: str, seed: int) -> Proposal:
        assert isinstance(self.inner, NoteWriter)
        writer: NoteWriter = self.inner
        return _told(lambda: writer.write(prompt, seed))


def _told(ask: Callable[[], Proposal]) -> Proposal:
    def answer() -> Proposal | tuple[str, Spent]:
        try:
            return ask()
        except EngineerError as error:
            return str(error), error.spent

    told: Proposal | tuple[str, Spent] = from_first("the answer of an engineer", answer)
    if isinstance(told, tuple):
        raise EngineerError(*told)
    return told
