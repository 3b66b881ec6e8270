"""A language model at hand as an engineer: the current checkpoint, an old one, or any other."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from engineer.engineers.base import Proposal, Task


class GeneratedText(NamedTuple):
    """What a model generated."""

    text: str
    tokens: int  # generated, those that end the text included


GenerateText = Callable[[str, dict[str, Any] | None, int, int | None], GeneratedText]
"""Maps (prompt, JSON schema or None, seed, token limit or None) to what a model generates."""


class TextEngineer:
    """An engineer that generates text; what `generate` raises is passed on."""

    generate: GenerateText

    def propose(self, task: Task) -> Proposal:
        """Generate an answer that follows the schema."""
        limit = task.budget.engineer_tokens
        return self._timed(task.context.text, task.schema, task.seed, limit)

    def write(self, prompt: str, seed: int, max_tokens: int | None = None) -> Proposal:
        """Generate free text."""
        return self._timed(prompt, None, seed, max_tokens)

    def _timed(
        self, prompt: str, schema: dict[str, Any] | None, seed: int, limit: int | None
    ) -> Proposal:
        start = time.perf_counter()
        generated = self.generate(prompt, schema, seed, limit)
        return Proposal(generated.text, time.perf_counter() - start, generated.tokens)


@dataclass(frozen=True)
class LanguageModelEngineer(TextEngineer):
    """Asks a function that generates text; it may raise `EngineerError` to fail one attempt."""

    generate: GenerateText
    name: str = "checkpoint"
