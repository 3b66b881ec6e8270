"""Builds the engineer's prompt of blocks that can be switched by name.

Two styles: `full` in sentences, for large language models (`engineer.context.blocks`), and
`compact` in single symbols, for a model of a million parameters (`engineer.context.symbols`), which
has places for the blocks failure_breakdown, training_details and history alone. Text that a model
wrote is always quoted (`engineer.quoting`), so that no completion can open a block or end the
prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from engineer.context.blocks import PARTS
from engineer.context.symbols import read_out, symbols_text
from engineer.context.token_limit import CountTokens, cuts, estimate_tokens
from engineer.context.view import FULL_DETAIL, ContextStyle, Detail, StageView
from engineer.domain import Domain
from engineer.edits import edits_pattern
from engineer.space import AnswerForm, answer_schema

BlockName = Literal[
    "failure_breakdown",
    "environment_statistics",
    "training_details",
    "rl_details",
    "history",
    "summary",
    "guideline",
]
STYLES: tuple[ContextStyle, ...] = get_args(ContextStyle)
BLOCKS: tuple[BlockName, ...] = get_args(BlockName)


class ContextTooLongError(ValueError):
    """What can't be cut is longer than the limit."""


@dataclass(frozen=True)
class Context:
    """A prompt, and what had to be left out of it."""

    text: str
    cut: tuple[str, ...]  # those of `engineer.context.token_limit.CUTS` that were made
    tokens: int


def build_context(
    view: StageView,
    *,
    blocks: Sequence[BlockName] = BLOCKS,
    style: ContextStyle = "full",
    max_tokens: int | None = None,
    detail: Detail = FULL_DETAIL,
    count_tokens: CountTokens = estimate_tokens,
) -> Context:
    """Build the prompt for the next configuration; a pure function of its arguments.

    The order of the blocks is fixed. Parts are cut in the order of `CUTS` until the prompt has at
    most `max_tokens`, which are counted as the model that will read the prompt counts them.

    Raises:
        ContextTooLongError: even with everything cut the prompt has more than `max_tokens`.
    """
    text = _render(view, detail, blocks, style)
    tokens = count_tokens(text)
    made: dict[str, None] = {}
    smaller = cuts(view, detail)
    while max_tokens is not None and tokens > max_tokens:
        step = next(smaller, None)
        if step is None:
            raise ContextTooLongError(
                f"max_tokens: got {max_tokens}, but the totals, the configuration and the question"
                f" alone need {tokens}"
            )
        name, detail = step  # kept even if the cut changes nothing, since the next builds on it
        shorter = _render(view, detail, blocks, style)
        if shorter != text:
            made[name] = None
            text, tokens = shorter, count_tokens(shorter)
    return Context(text, tuple(made), tokens)


def answer_form(domain: Domain, style: ContextStyle) -> AnswerForm:
    """Return what the answer to a context must follow: edits if it is compact, else JSON."""
    return edits_pattern(domain) if style == "compact" else answer_schema(domain.space)


def _render(
    view: StageView, detail: Detail, blocks: Sequence[BlockName], style: ContextStyle
) -> str:
    if style == "compact":
        return symbols_text(read_out(view, blocks, detail), view.domain)
    names = [name for name in PARTS if name in blocks or name not in BLOCKS]
    return "\n\n".join(part for name in names if (part := PARTS[name](view, detail, blocks)))
