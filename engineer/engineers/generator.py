"""A language model at hand: the current checkpoint, an old one, the base model, any other."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from engineer.engineers.base import Proposal, Task


class Generated(NamedTuple):
    """What a model generated."""

    text: str
    tokens: int  # generated, those that end the text included


Generate = Callable[[str, dict[str, Any] | None, int, int | None], Generated]
"""(prompt, JSON schema or None, seed, most tokens or None) to what a model generates."""


@dataclass(frozen=True)
class GeneratorEngineer:
    """A function that generates text.

    What the function raises is passed on, except that it may raise `EngineerError` to fail one
    attempt.
    """

    generate: Generate
    name: str = "checkpoint"

    def propose(self, task: Task) -> Proposal:
        """Generate an answer that follows the schema."""
        most = task.budget.engineer_tokens
        return self._timed(task.context.text, task.schema, task.seed, most)

    def write(self, prompt: str, seed: int, max_tokens: int | None = None) -> Proposal:
        """Generate freely."""
        return self._timed(prompt, None, seed, max_tokens)

    def _timed(
        self, prompt: str, schema: dict[str, Any] | None, seed: int, most: int | None
    ) -> Proposal:
        start = time.perf_counter()
        generated = self.generate(prompt, schema, seed, most)
        return Proposal(generated.text, time.perf_counter() - start, generated.tokens)
