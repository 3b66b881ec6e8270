"""A language model at hand: the current checkpoint, an old one, the base model, any other."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engineer.engineers.base import Proposal, Task

Generate = Callable[[str, dict[str, Any] | None, int], str]
"""(prompt, JSON schema or None, seed) to the text that a model generates."""


@dataclass(frozen=True)
class GeneratorEngineer:
    """A function that generates text.

    What the function raises is passed on, except that it may raise `EngineerError` to fail one
    attempt.
    """

    generate: Generate
    name: str = "checkpoint"
    count_tokens: Callable[[str], int] | None = None

    def propose(self, task: Task) -> Proposal:
        """Generate an answer that follows the schema."""
        return self._timed(task.context.text, task.schema, task.seed)

    def write(self, prompt: str, seed: int) -> Proposal:
        """Generate freely."""
        return self._timed(prompt, None, seed)

    def _timed(self, prompt: str, schema: dict[str, Any] | None, seed: int) -> Proposal:
        start = time.perf_counter()
        text = self.generate(prompt, schema, seed)
        seconds = time.perf_counter() - start
        return Proposal(text, seconds, self.count_tokens(text) if self.count_tokens else None)
