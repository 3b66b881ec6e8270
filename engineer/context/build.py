"""Build the engineer's prompt from optional blocks.

There are two styles: `full` in sentences, for large language models (`engineer.context.blocks`),
and `compact` in symbols, for models of a million parameters (`engineer.context.symbols`), which
only supports the blocks failure_breakdown, training_details and history. Model-written text is
always quoted (`engineer.quoting`), so that it cannot open a block or end the prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from engineer.context.blocks import PARTS
from engineer.context.symbols import compact_text, make_compact_context
from engineer.context.token_limit import CountTokens, estimate_tokens, iterate_cuts
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
    """The prompt exceeds the token limit even after all cuts."""


@dataclass(frozen=True)
class Context:
    """A prompt, and the cuts that made it fit."""

    text: str
    cut: tuple[str, ...]  # the cuts made, among `engineer.context.token_limit.CONTEXT_CUTS`
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

    Args:
        view: The results of the run so far.
        blocks: The names of the optional blocks to include; their order is fixed.
        style: `full` or `compact`.
        max_tokens: Parts are cut in the order of `CONTEXT_CUTS` until the prompt fits.
            None means no limit.
        detail: The initial level of detail.
        count_tokens: Counts tokens with the tokenizer of the model that reads the prompt.

    Returns:
        The prompt with the cuts that were made.

    Raises:
        ContextTooLongError: the prompt exceeds `max_tokens` even after all cuts.
    """
    text = _render(view, detail, blocks, style)
    tokens = count_tokens(text)
    cut_names: dict[str, None] = {}
    remaining_cuts = iterate_cuts(view, detail)
    while max_tokens is not None and tokens > max_tokens:
        next_cut = next(remaining_cuts, None)
        if next_cut is None:
            raise ContextTooLongError(
                f"max_tokens: got {max_tokens}, but the totals, the configuration and the question"
                f" alone need {tokens}"
            )
        name, detail = next_cut
        shorter_text = _render(view, detail, blocks, style)
        if shorter_text != text:
            cut_names[name] = None
            text, tokens = shorter_text, count_tokens(shorter_text)
    return Context(text, tuple(cut_names), tokens)


def answer_form(domain: Domain, style: ContextStyle) -> AnswerForm:
    """Return the answer format of a style: rows of edits if compact, else JSON."""
    return edits_pattern(domain) if style == "compact" else answer_schema(domain.space)


def _render(
    view: StageView, detail: Detail, blocks: Sequence[BlockName], style: ContextStyle
) -> str:
    if style == "compact":
        return compact_text(make_compact_context(view, blocks, detail), view.domain)
    names = [name for name in PARTS if name in blocks or name not in BLOCKS]
    return "\n\n".join(part for name in names if (part := PARTS[name](view, detail, blocks)))
