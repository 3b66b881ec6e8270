"""Engineers that generate text with a language model, such as a checkpoint of the run."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from engineer.costs import Costs
from engineer.engineers.base import EngineerError, Proposal, Task
from engineer.space import AnswerForm
from jaxlake.language.thinking import closing_tag


@dataclass(frozen=True)
class TextRequest:
    """A request for one generated text."""

    prompt: str
    seed: int = 0
    form: AnswerForm | None = None  # required format; None: free text
    max_tokens: int | None = None  # None: the model's limit for this kind of text
    thinking: bool = False  # whether to enable the thinking mode of the chat template
    reasoning: str | None = None  # the model's earlier text, which the new text continues


class GeneratedText(NamedTuple):
    """The output of a model."""

    text: str
    tokens: int  # number of generated tokens, including end tokens
    reasoning: str = ""  # reasoning that the server returned separately
    truncated: bool = False  # whether the server reports that the token limit was reached


GenerateText = Callable[[TextRequest], GeneratedText]


class TextEngineer:
    """Base class of engineers that generate text. Errors of `generate` propagate.

    If `reasoning_tokens` is positive, a first call generates free text of up to that many tokens,
    and a second call continues this text with the configuration.
    """

    generate: GenerateText
    reasoning_tokens: int

    def propose(self, task: Task) -> Proposal:
        """Generate an answer in the required format, after optional reasoning."""
        request = TextRequest(task.context.text, task.seed, task.form)
        if not self.reasoning_tokens:
            return self._propose_once(request)
        reasoning = self._propose_once(
            replace(request, form=None, max_tokens=self.reasoning_tokens, thinking=True)
        )
        try:
            answer = self._propose_once(replace(request, thinking=True, reasoning=reasoning.text))
        except EngineerError as error:
            tokens = (reasoning.tokens or 0) + error.spent.engineer_tokens
            raise EngineerError(str(error), Costs(engineer_tokens=tokens)) from error
        return Proposal(
            answer.text,
            reasoning.seconds + answer.seconds,
            (reasoning.tokens or 0) + (answer.tokens or 0),
            reasoning=reasoning.text,
        )

    def write(self, prompt: str, seed: int) -> Proposal:
        """Generate free text."""
        return self._propose_once(TextRequest(prompt, seed))

    def _propose_once(self, request: TextRequest) -> Proposal:
        start = time.perf_counter()
        output = self.generate(request)
        thinking_block = f"<think>\n{output.reasoning}\n</think>\n\n" if output.reasoning else ""
        text = (thinking_block if request.form is None else "") + output.text
        return Proposal(text, time.perf_counter() - start, output.tokens)


@dataclass(frozen=True)
class LanguageModelEngineer(TextEngineer):
    """Engineer defined by a text generator.

    The generator may raise `EngineerError` to fail an attempt.
    """

    generate: GenerateText
    name: str = "checkpoint"
    reasoning_tokens: int = 0  # maximum length of the reasoning before the answer; 0: none


def make_reasoning_suffix(reasoning: str) -> str:
    """Return the text to insert between a model's reasoning and its configuration.

    The text closes a thinking block that the reasoning leaves open.
    """
    tag = closing_tag(reasoning)
    return (f"\n{tag}" if tag else "") + "\n\nConfiguration:\n"
