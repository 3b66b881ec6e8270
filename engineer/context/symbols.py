"""The compact context: one symbol per fact in fixed positions, for models of a million parameters.

    stage next
    n3 valid8 hole none + learn6 data3 = hole4 + wait2 =
    n4 valid3 goal swap - learn8 data4 + hole4 = wait2 =
    edits

Below the first line, each row describes one group:

| position | meaning | block |
|---|---|---|
| 1 | the group | always shown |
| 2 | its valid rate, in tenths | failure_breakdown |
| 3, 4 | the two most frequent kinds of first failure | failure_breakdown |
| 5 | change of its valid rate in the stage, `=` if within noise | history |
| 6 | learnability in the training rollouts, in tenths of its maximum | training_details |
| 7, 9, ... | each knob within its limits, in tenths, the share first | always shown |
| 8, 10, ... | the last edit of that knob | history |

`?` means unknown or omitted. Levels 0 and 10 are reserved for the limits; knobs between them are
shown as 1 to 9. The first line contains `first` before any design, `rolled` after a rollback, and
otherwise `next`, followed by `refused` if the last answer could not be used.

The tokenizer of small models encodes each symbol as one token, including its number
(`training.policy.tokenizer`).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from engineer.context.view import FULL_DETAIL, Detail, StageView
from engineer.domain import Domain
from engineer.edits import edits_between
from engineer.evidence import GroupEvidence
from engineer.space import KnobSpace

TENTHS = 10
"""Largest number in a symbol; ratios are shown in tenths."""
NO_FAILURE = "none"
"""Symbol for positions of a row without a kind of failure."""
MAX_LEARNABILITY = 0.25
"""Maximum of p(1-p)."""
NUM_FAILURES = 2
"""Number of kinds of failure per row."""

State = Literal["first", "next", "rolled"]

_SIGNS = {-1: "-", 0: "=", 1: "+", None: "?"}


@dataclass(frozen=True)
class CompactRow:
    """The symbols of one group; None means unknown or omitted."""

    valid: int | None  # 0..10
    failures: tuple[str, ...] | None  # words, the most frequent kind first
    trend: int | None  # -1, 0 or 1
    learnability: int | None  # 0..10
    levels: Mapping[str, int]  # by knob, the share included: 0..10
    last_edit: Mapping[str, int] | None  # by knob: -1, 0 or 1


@dataclass(frozen=True)
class CompactContext:
    """The content of a compact context."""

    state: State | None
    refused: bool
    groups: Mapping[str, CompactRow]  # in the order of the space


def make_compact_context(
    view: StageView, blocks: Collection[str], detail: Detail = FULL_DETAIL
) -> CompactContext:
    """Reduce a view to a compact context; fields of omitted blocks are None."""
    space = view.domain.space
    show_failures = "failure_breakdown" in blocks
    training = view.evidence.training if "training_details" in blocks and detail.training else None
    show_history = "history" in blocks and detail.history > 0
    edits = None  # the signs of the edits that led to the trained configuration
    if show_history and view.designed_from is not None:
        edits = edits_between(view.designed_from, view.trained or view.current, space)
    levels = view.current.values()
    groups = {}
    for group in space.groups:
        tally = view.evidence.validation.get(group)
        tally = tally if tally and tally.count else None
        visible_tally = tally if show_failures else None
        trained_tally = view.rolled_back_validation.get(group, tally)
        learnability = training.learnability.get(group) if training else None
        groups[group] = CompactRow(
            valid=_tenths(visible_tally.valid / visible_tally.count) if visible_tally else None,
            failures=_most_frequent_failures(view.domain, visible_tally) if visible_tally else None,
            trend=_trend(trained_tally, view.valid_before.get(group))
            if show_history and trained_tally
            else None,
            learnability=None if learnability is None else _tenths(learnability / MAX_LEARNABILITY),
            levels=_levels(space, levels.get(group, {})),
            last_edit=edits[group] if edits else None,
        )
    state: State = "rolled" if view.notice else "first" if view.designed_from is None else "next"
    refused = bool(view.refusal) and detail.refusal
    return CompactContext(state if show_history else None, refused, groups)


def compact_text(context: CompactContext, domain: Domain) -> str:
    """Return the prompt of a compact context, up to the start of the answer."""
    state = ["stage", context.state or "?", *(["refused"] if context.refused else [])]
    rows = (
        " ".join([domain.symbol(group), *_row_symbols(row, domain.space)])
        for group, row in context.groups.items()
    )
    return "\n".join([" ".join(state), *rows, "edits\n"])


def _row_symbols(row: CompactRow, space: KnobSpace) -> list[str]:
    failures = ["?"] * NUM_FAILURES
    if row.failures is not None:
        failures = [*row.failures, *[NO_FAILURE] * NUM_FAILURES][:NUM_FAILURES]
    symbols = ["?" if row.valid is None else f"valid{row.valid}", *failures, _SIGNS[row.trend]]
    symbols.append("?" if row.learnability is None else f"learn{row.learnability}")
    for knob in space.knobs:
        edit = row.last_edit[knob] if row.last_edit else None
        # The symbol of a knob begins with its name up to the first underscore.
        symbols += [f"{knob.partition('_')[0]}{row.levels[knob]}", _SIGNS[edit]]
    return symbols


def _most_frequent_failures(domain: Domain, tally: GroupEvidence) -> tuple[str, ...]:
    """Return the symbols of the most frequent kinds of failure; ties go to the earlier kind."""
    labels = [label for label in domain.failures if tally.failures.get(label.key)]
    labels.sort(key=lambda label: -tally.failures[label.key])
    return tuple(label.word for label in labels[:NUM_FAILURES])


def _trend(tally: GroupEvidence, rate_before: float | None) -> int | None:
    """Return the sign of a valid rate's change if it exceeds one standard error, else 0."""
    if rate_before is None:
        return None
    rate = tally.valid / tally.count
    pooled_rate = ((rate + rate_before) * tally.count + 1.0) / (2.0 * tally.count + 2.0)
    standard_error = math.sqrt(2.0 * pooled_rate * (1.0 - pooled_rate) / tally.count)
    return int(rate - rate_before > standard_error) - int(rate_before - rate > standard_error)


def _tenths(ratio: float) -> int:
    return min(max(math.floor(TENTHS * ratio + 0.5 + 1e-9), 0), TENTHS)


def _levels(space: KnobSpace, knobs: Mapping[str, float]) -> dict[str, int]:
    """Return the level of each knob within its limits; only the limits are 0 and 10."""
    levels = {}
    for knob in space.knobs:
        low, high = space.limits(knob)
        value, span = knobs.get(knob, low), high - low
        tenths = _tenths((value - low) / span) if span > 0.0 else 0
        is_inside = low + 1e-9 < value < high - 1e-9
        levels[knob] = min(max(tenths, 1), TENTHS - 1) if is_inside else tenths
    return levels
