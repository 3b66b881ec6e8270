"""A model behind an OpenAI-compatible server as an engineer."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engineer.engineers.base import Proposal, Task

if TYPE_CHECKING:
    from engineer.engineers.chat_client import ChatClient


@dataclass(frozen=True)
class EndpointEngineer:
    """Asks a server's model for the answer.

    Args:
        client: asks the model, see `engineer.engineers.chat_client`.
        max_tokens: the longest answer.
        note_tokens: the longest notes; None: as `max_tokens`.
        temperature: of the sampling.
        structured: whether the JSON schema is sent; False for servers without `response_format`.
    """

    client: ChatClient
    max_tokens: int = 4096
    note_tokens: int | None = None
    temperature: float = 0.0
    structured: bool = True

    @property
    def name(self) -> str:
        """The model's name."""
        return self.client.model

    def propose(self, task: Task) -> Proposal:
        """Ask for an answer to a task.

        Raises:
            EngineerError: see `ChatClient.complete`.
        """
        fields: dict[str, Any] = {}
        if self.structured:
            schema = {"name": "configuration", "strict": True, "schema": task.schema}
            fields = {"response_format": {"type": "json_schema", "json_schema": schema}}
        return self._ask(task.context.text, self.max_tokens, task.budget.engineer_tokens, **fields)

    def write(self, prompt: str, seed: int, max_tokens: int | None = None) -> Proposal:
        """Ask for free text.

        Args:
            prompt: the question.
            seed: not sent, because few servers keep their promise about it.
            max_tokens: tokens that may still be spent.

        Raises:
            EngineerError: see `ChatClient.complete`.
        """
        del seed
        return self._ask(prompt, self.note_tokens or self.max_tokens, max_tokens)

    def _ask(self, prompt: str, longest: int, budget: int | None, **fields: Any) -> Proposal:
        start = time.perf_counter()
        answer = self.client.complete(
            prompt, max_tokens=longest, budget=budget, temperature=self.temperature, **fields
        )
        return Proposal(answer.text, time.perf_counter() - start, answer.tokens)
