"""Counterfactual replay: asks many engineers about one frozen context and scores the proposals.

Nothing is trained. `docs/replay.md` says what the scores mean and what they can't see.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field, SerializeAsAny

from engineer.context.token_limit import CountTokens, estimate_tokens
from engineer.context.view import StageView
from engineer.design import DesignRecord, DesignSettings, SeedOfAttempt, run_design
from engineer.engineers.base import Engineer
from engineer.review import RepairName, review_answer
from engineer.scoring.behaviours import Behaviours, grid_moves, score_behaviours
from engineer.scoring.learnability import learnability_model
from engineer.space import Configuration, FrozenModel, Ratio
from jaxlake.text_tables import aligned_text


class ExpectedLearnability(FrozenModel):
    """Mean p(1-p) over the instances of the proposal and of the current configuration."""

    proposal: float = Field(ge=0.0)
    current: float = Field(ge=0.0)

    @property
    def gain(self) -> float:
        """How much the proposal adds."""
        return self.proposal - self.current


class ScoredDesign(FrozenModel):
    """One engineer's proposal and its scores."""

    engineer: str
    kind: Literal["accepted", "repaired", "retried", "kept"] = Field(
        description="as in the design's record"
    )
    schema_valid: bool = Field(
        description="whether the first answer held every knob of every group as a finite number and"
        " a share above 0"
    )
    repairs: dict[RepairName, int] = Field(
        description="how many numbers were changed, by the repair's name"
    )
    edit_distance: float = Field(
        ge=0.0, description="grid steps of all knobs, and of the data that moved"
    )
    preserved: Ratio = Field(description="share of the knobs of all groups that stay the same")
    expected_learnability: ExpectedLearnability
    behaviours: Behaviours
    tokens: int = Field(ge=0, description="generated; 0 where unknown")
    seconds: float = Field(ge=0.0, description="wall-clock time of the design phase")
    configuration: SerializeAsAny[Configuration]
    reason: str


def replay_engineers(
    view: StageView,
    engineers: Sequence[Engineer],
    settings: DesignSettings,
    *,
    seed: SeedOfAttempt = lambda attempt: attempt,
    count_tokens: CountTokens = estimate_tokens,
) -> list[ScoredDesign]:
    """Ask engineers about one frozen context, in turn, with the same seeds; score their proposals.

    Raises as `run_design`.
    """
    return [
        score_design(
            view, run_design(engineer, view, settings, seed=seed, count_tokens=count_tokens)
        )
        for engineer in engineers
    ]


def score_design(view: StageView, record: DesignRecord) -> ScoredDesign:
    """Score the outcome of a design phase on the view that it was given."""
    model = learnability_model(view)
    by_group = grid_moves(view, record.configuration).values()
    moves = [move for knobs in by_group for move in knobs.values()]
    return ScoredDesign(
        engineer=record.engineer,
        kind=record.kind,
        schema_valid=_schema_valid(view, record),
        repairs=dict(Counter(repair.name for repair in record.repairs)),
        edit_distance=math.fsum(map(abs, moves)),
        preserved=moves.count(0.0) / len(moves),
        expected_learnability=ExpectedLearnability(
            proposal=model.expected(record.configuration), current=model.expected(view.current)
        ),
        behaviours=score_behaviours(view, record.configuration),
        tokens=record.spent.engineer_tokens,
        seconds=record.spent.seconds,
        configuration=record.configuration,
        reason=record.reason,
    )


def _schema_valid(view: StageView, record: DesignRecord) -> bool:
    """Review the first answer as if all instances could be made."""
    text = record.attempts[0].text if record.attempts else None
    anything = replace(view.domain, nearest=lambda group, knobs: knobs)
    return text is not None and review_answer(text, view.current, anything).kind != "rejected"


_WRITTEN: tuple[str, ...] = ("engineer", "kind", "json", "fixes", "edit", "same", "tokens", "sec")
_SCORED: tuple[str, ...] = ("engineer", "learn", "gain", "sal", "gran", "caus", "corr", "task")
_LEGEND = """\
json: the first answer held every number; fixes: repairs; edit: steps from the current
configuration; same: share of its knobs kept; learn: expected p(1-p); gain: over the current one's;
sal, gran, caus, corr, task: salience, granularity, causality, self-correction, task modelling"""


def format_scores(rows: Sequence[ScoredDesign]) -> str:
    """Return proposals as aligned plain text: what was written, then the scores; `-` is None."""
    written, scored = list[tuple[str, ...]](), list[tuple[str, ...]]()
    for row in rows:
        name = " ".join(row.engineer.split())
        seconds = f"{row.seconds:.1f}" if row.seconds < 100 else f"{row.seconds:.0f}"
        json = "yes" if row.schema_valid else "no"
        fixes, edit = str(sum(row.repairs.values())), f"{row.edit_distance:g}"
        same = f"{row.preserved:.2f}"
        written.append((name, row.kind, json, fixes, edit, same, str(row.tokens), seconds))
        learn, gain = row.expected_learnability.proposal, row.expected_learnability.gain
        scores = [
            "-" if value is None else f"{value:.2f}" for value in dict(row.behaviours).values()
        ]
        scored.append((name, f"{learn:.3f}", f"{gain:+.3f}", *scores))
    tables = [
        aligned_text(head, cells, left=1)
        for head, cells in ((_WRITTEN, written), (_SCORED, scored))
    ]
    return "\n\n".join([*tables, _LEGEND])
