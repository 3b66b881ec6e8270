"""Counterfactual replay: one frozen context before many engineers, their proposals scored.

Nothing is trained. What the scores say, and what they can't, stands in `docs/replay.md`.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field, SerializeAsAny

from engineer.behaviours import Behaviours, behaviours, moves
from engineer.context.budget import CountTokens, characters_over_three
from engineer.context.view import View
from engineer.design import DesignRecord, DesignSettings, Seed, design
from engineer.engineers.base import Engineer
from engineer.learnability import learnability_model
from engineer.pipeline import RepairName, review
from engineer.space import Configuration, Frozen, Ratio

WIDTH = 80
"""Characters in a line of `table`."""


class ExpectedLearnability(Frozen):
    """Mean p(1-p) over the instances of the proposal and of the current configuration."""

    proposal: float = Field(ge=0.0)
    current: float = Field(ge=0.0)

    @property
    def gain(self) -> float:
        """What the proposal adds."""
        return self.proposal - self.current


class Scored(Frozen):
    """One engineer's proposal, and what can be said of it without training."""

    engineer: str
    kind: Literal["accepted", "repaired", "retried", "kept"] = Field(
        description="as in the design's record"
    )
    schema_valid: bool = Field(
        description="the first answer held every group with every knob as a finite number, and some"
        " share above 0"
    )
    repairs: dict[RepairName, int] = Field(description="numbers changed, by the repair's name")
    edit_distance: float = Field(
        ge=0.0, description="steps of the grid: of all knobs, and of the data that moved"
    )
    preserved: Ratio = Field(description="share of all knobs of all groups that stay as they are")
    expected_learnability: ExpectedLearnability
    behaviours: Behaviours
    tokens: int = Field(ge=0, description="generated; 0 where unknown")
    seconds: float = Field(ge=0.0, description="wall-clock time of the design phase")
    configuration: SerializeAsAny[Configuration]
    reason: str


def replay(
    view: View,
    engineers: Sequence[Engineer],
    settings: DesignSettings,
    *,
    seed: Seed = lambda attempt: attempt,
    count_tokens: CountTokens = characters_over_three,
) -> list[Scored]:
    """Put one context before engineers, in turn, and score what they propose.

    Args:
        view: the frozen context.
        engineers: who answers; the order of the result.
        settings: how each of them is asked.
        seed: decides what is random about an attempt, the same for all of them.
        count_tokens: of the model that reads the context.

    Raises:
        ValueError: see `design`.
        ContextTooLongError: likewise.
    """
    return [
        score(view, design(engineer, view, settings, seed=seed, count_tokens=count_tokens))
        for engineer in engineers
    ]


def score(view: View, record: DesignRecord) -> Scored:
    """Score the outcome of a design phase on the view that it was given."""
    model = learnability_model(view)
    return Scored(
        engineer=record.engineer,
        kind=record.kind,
        schema_valid=_schema_valid(view, record),
        repairs=dict(Counter(repair.name for repair in record.repairs)),
        edit_distance=edit_distance(view, record.configuration),
        preserved=preserved(view, record.configuration),
        expected_learnability=ExpectedLearnability(
            proposal=model.expected(record.configuration), current=model.expected(view.current)
        ),
        behaviours=behaviours(view, record.configuration),
        tokens=record.spent.engineer_tokens,
        seconds=record.spent.seconds,
        configuration=record.configuration,
        reason=record.reason,
    )


def edit_distance(view: View, configuration: Configuration) -> float:
    """How far a proposal is from the current configuration, in steps of the grid.

    The sum over groups of |change| of each knob, plus half of that of the shares, which is the data
    that moved from one group to another.
    """
    made = moves(view, configuration)
    return math.fsum(abs(move) for knobs in made.values() for move in knobs.values())


def preserved(view: View, configuration: Configuration) -> float:
    """The share of all knobs of all groups, shares included, that a proposal leaves as they are."""
    same = [move == 0.0 for knobs in moves(view, configuration).values() for move in knobs.values()]
    return sum(same) / len(same)


def _schema_valid(view: View, record: DesignRecord) -> bool:
    """Review the first answer without asking whether such instances can be made."""
    text = record.attempts[0].text if record.attempts else None
    anything = replace(view.domain, nearest=lambda group, knobs: knobs)
    return text is not None and review(text, view.current, anything).kind != "rejected"


_WRITTEN = ("engineer", "kind", "json", "fixes", "edit", "same", "tokens", "sec")
_SCORED = ("engineer", "learn", "gain", "sal", "gran", "caus", "corr", "task")
_LEGEND = (
    "json: the first answer held every number; fixes: repairs; edit: steps from the",
    "current configuration; same: share of its knobs kept; learn: expected p(1-p);",
    "gain: over the current one's; sal, gran, caus, corr, task: salience,",
    "granularity, causality, self-correction, task modelling",
)


def table(rows: Sequence[Scored]) -> str:
    """Proposals as aligned plain text: what was written, then how it scores; `-` says None.

    No line is longer than `WIDTH`; long names are cut.
    """
    written = _aligned([_WRITTEN, *map(_written, rows)])
    scored = _aligned([_SCORED, *map(_scored, rows)])
    return "\n".join([*written, "", *scored, "", *_LEGEND])


def _aligned(cells: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    room = WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1)
    widths[0] = min(widths[0], max(room, len("engineer")))
    return [
        "  ".join(
            [
                _cut(name, widths[0]).ljust(widths[0]),
                *(text.rjust(width) for text, width in zip(others, widths[1:], strict=True)),
            ]
        )
        for name, *others in cells
    ]


def _written(row: Scored) -> tuple[str, ...]:
    return (
        _name(row),
        row.kind,
        "yes" if row.schema_valid else "no",
        str(sum(row.repairs.values())),
        f"{row.edit_distance:g}",
        f"{row.preserved:.2f}",
        str(row.tokens),
        f"{row.seconds:.1f}" if row.seconds < 100 else f"{row.seconds:.0f}",
    )


def _scored(row: Scored) -> tuple[str, ...]:
    scores = row.behaviours
    return (
        _name(row),
        f"{row.expected_learnability.proposal:.3f}",
        f"{row.expected_learnability.gain:+.3f}",
        _shown(scores.salience),
        _shown(scores.granularity),
        _shown(scores.causality),
        _shown(scores.self_correction),
        _shown(scores.task_modelling),
    )


def _name(row: Scored) -> str:
    return " ".join(row.engineer.split())


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 3] + "..."
