"""A language model at hand as an engineer: the current checkpoint, an old one, or any other."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from engineer.engineers.base import EngineerError, Proposal, Task
from engineer.space import AnswerForm
from engineer.spent import Spent
from jaxlake.language.thinking import closing_mark


@dataclass(frozen=True)
class TextRequest:
    """A request for one text of a model."""

    prompt: str
    seed: int = 0
    form: AnswerForm | None = None  # what the text must follow; None: free text
    max_tokens: int | None = None  # None: the longest that the model may write of this kind
    thinking: bool = False  # a chat template with a thinking mode switches it on
    reasoning: str | None = None  # what the model wrote before; the new text continues it


class GeneratedText(NamedTuple):
    """What a model generated."""

    text: str
    tokens: int  # generated, those that end the text included
    reasoning: str = ""  # what a server kept apart from the text
    truncated: bool = False  # a server says that the token limit ended it


GenerateText = Callable[[TextRequest], GeneratedText]


class TextEngineer:
    """An engineer that generates text; what `generate` raises is passed on.

    With `reasoning_tokens` it first writes freely up to that many tokens. A second call continues
    from there and writes the configuration.
    """

    generate: GenerateText
    reasoning_tokens: int

    def propose(self, task: Task) -> Proposal:
        """Generate an answer that follows the form, after reasoning if there is to be any."""
        request = TextRequest(task.context.text, task.seed, task.form)
        if not self.reasoning_tokens:
            return self._timed(request)
        free = replace(request, form=None, max_tokens=self.reasoning_tokens, thinking=True)
        thought = self._timed(free)
        try:
            answer = self._timed(replace(request, thinking=True, reasoning=thought.text))
        except EngineerError as error:
            tokens = (thought.tokens or 0) + error.spent.engineer_tokens
            raise EngineerError(str(error), Spent(engineer_tokens=tokens)) from error
        return Proposal(
            answer.text,
            thought.seconds + answer.seconds,
            (thought.tokens or 0) + (answer.tokens or 0),
            reasoning=thought.text,
        )

    def write(self, prompt: str, seed: int) -> Proposal:
        """Generate free text."""
        return self._timed(TextRequest(prompt, seed))

    def _timed(self, request: TextRequest) -> Proposal:
        start = time.perf_counter()
        generated = self.generate(request)
        apart = f"<think>\n{generated.reasoning}\n</think>\n\n" if generated.reasoning else ""
        text = (apart if request.form is None else "") + generated.text
        return Proposal(text, time.perf_counter() - start, generated.tokens)


@dataclass(frozen=True)
class LanguageModelEngineer(TextEngineer):
    """Asks a function that generates text; it may raise `EngineerError` to fail one attempt."""

    generate: GenerateText
    name: str = "checkpoint"
    reasoning_tokens: int = 0  # longest text before the configuration; 0: none


def close_reasoning(reasoning: str) -> str:
    """Return the text between a model's reasoning and its configuration.

    It first closes a thinking block that the reasoning leaves open.
    """
    mark = closing_mark(reasoning)
    return (f"\n{mark}" if mark else "") + "\n\nConfiguration:\n"
