"""A language model at hand as an engineer: the current checkpoint, an old one, or any other."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from engineer.engineers.base import Proposal, Task
from engineer.space import AnswerForm


class GeneratedText(NamedTuple):
    """What a model generated."""

    text: str
    tokens: int  # generated, those that end the text included


GenerateText = Callable[[str, AnswerForm | None, int], GeneratedText]
"""Maps (prompt, form of an answer or None for free text, seed) to what a model generates."""


class TextEngineer:
    """An engineer that generates text; what `generate` raises is passed on."""

    generate: GenerateText

    def propose(self, task: Task) -> Proposal:
        """Generate an answer that follows the form."""
        return self._timed(task.context.text, task.form, task.seed)

    def write(self, prompt: str, seed: int) -> Proposal:
        """Generate free text."""
        return self._timed(prompt, None, seed)

    def _timed(self, prompt: str, form: AnswerForm | None, seed: int) -> Proposal:
        start = time.perf_counter()
        generated = self.generate(prompt, form, seed)
        return Proposal(generated.text, time.perf_counter() - start, generated.tokens)


@dataclass(frozen=True)
class LanguageModelEngineer(TextEngineer):
    """Asks a function that generates text; it may raise `EngineerError` to fail one attempt."""

    generate: GenerateText
    name: str = "checkpoint"
