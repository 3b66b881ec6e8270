"""Cut a context to a token limit."""

import re
from collections.abc import Callable, Iterator

from engineer.context.view import Detail, StageView

CONTEXT_CUTS = (
    "failed cases, one at a time",
    "history beyond the latest stage, oldest first",
    "the summary",
    "environment statistics",
    "rates by slices",
    "training details",
    "the guideline",
    "the rest of the history",
    "why the last answer was refused",
)
"""The cuts, in order. The opening, the objective, the table of groups, the failures by group, a
notice and the question are never cut."""

_PIECES = re.compile(r"[^\W\d_]{1,8}|\d| (?=\d)|[^\w\s]{1,3}|_|\n")

CountTokens = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens without a tokenizer, a few percent above Qwen3's count.

    Each digit, and each blank before a digit, counts as a token, as in most tokenizers. Tables of
    numbers have about two characters per token, prose about four.
    """
    return len(_PIECES.findall(text))


def iterate_cuts(view: StageView, detail: Detail) -> Iterator[tuple[str, Detail]]:
    """Yield (name of the cut, detail) for successively smaller levels of detail."""
    num_cases = min(detail.failed_cases, len(view.evidence.failed_cases))
    for count in range(num_cases - 1, -1, -1):
        detail = detail._replace(failed_cases=count)
        yield CONTEXT_CUTS[0], detail
    num_stages = min(detail.history, len(view.history))
    for count in range(num_stages - 1, 0, -1):
        detail = detail._replace(history=count)
        yield CONTEXT_CUTS[1], detail
    fields = ("summary", "statistics", "slices", "training", "guideline")
    for name, field in zip(CONTEXT_CUTS[2:-2], fields, strict=True):
        detail = detail._replace(**{field: False})
        yield name, detail
    detail = detail._replace(history=0)
    yield CONTEXT_CUTS[-2], detail
    yield CONTEXT_CUTS[-1], detail._replace(refusal=False)
