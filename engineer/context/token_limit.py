"""Which parts of a context are cut first when it has to fit into a number of tokens."""

import re
from collections.abc import Callable, Iterator

from engineer.context.view import Detail, StageView

CUTS = (
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
"""What is cut, in this order and each as a whole. The opening, the objective, the table of groups,
the failures by group, a notice and the question are never cut."""

_PIECES = re.compile(r"[^\W\d_]{1,8}|\d| (?=\d)|[^\w\s]{1,3}|_|\n")

CountTokens = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens without a tokenizer, a few per cent above Qwen3's.

    Digits are tokens of their own, and so is a blank before one, as in most tokenizers: a table of
    numbers has two characters per token, prose four.
    """
    return len(_PIECES.findall(text))


def cuts(view: StageView, detail: Detail) -> Iterator[tuple[str, Detail]]:
    """Yield smaller and smaller details, each with the name of the cut that was made last."""
    cases = min(detail.failed_cases, len(view.evidence.failed_cases))
    for fewer in range(cases - 1, -1, -1):
        detail = detail._replace(failed_cases=fewer)
        yield CUTS[0], detail
    stages = min(detail.history, len(view.history))
    for fewer in range(stages - 1, 0, -1):
        detail = detail._replace(history=fewer)
        yield CUTS[1], detail
    fields = ("summary", "statistics", "slices", "training", "guideline")
    for name, field in zip(CUTS[2:-2], fields, strict=True):
        detail = detail._replace(**{field: False})
        yield name, detail
    detail = detail._replace(history=0)
    yield CUTS[-2], detail
    yield CUTS[-1], detail._replace(refusal=False)
