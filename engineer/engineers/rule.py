"""The rule-based engineer, which also teaches small models to design.

GRPO learns from instances whose rollouts have different rewards. An instance that is solved with
probability p contributes p(1-p), which is largest at 1/2 and zero at 0 and 1. The rule therefore
keeps groups at intermediate success rates and moves data to groups with high learnability. It only
reads the symbols of `engineer.context.symbols`:

- Data: one step moves to the group with the highest learnability from the group with the lowest,
  among the groups above their minimum share. Without training evidence, closeness of the valid rate
  to 1/2 replaces learnability.
- Too easy: all knobs of a group go up if its training instances have low learnability and some of
  its validation instances are solved.
- Direction: otherwise a group gets harder from a valid rate of 55% and easier below 15%. Between
  these rates it follows the trend: harder if the rate rises, easier if it falls.
- Only one knob moves, so that its effect is visible. It is the knob that causes the most frequent
  failures (`Domain.causes`). Without such a knob, or if it is at its limit, the rule raises the
  lowest knob or lowers the highest knob.
- Reversal: if the valid rate of a group fell after an edit to its knobs, these edits are reversed
  and no other knob moves. A rollback has already reversed them; the rule then does not repeat them.
"""

from dataclasses import dataclass

from engineer.context.build import BLOCKS
from engineer.context.symbols import TENTHS, CompactContext, CompactRow, make_compact_context
from engineer.context.view import StageView
from engineer.domain import Domain
from engineer.edits import apply_edits
from engineer.engineers.base import Task
from engineer.engineers.computed import ComputedEngineer, make_configuration, ratios_by_group
from engineer.space import Configuration, apportion

EASY = 6
"""Minimum valid rate in tenths at which a group gets harder."""
HARD = 1
"""Maximum valid rate in tenths at which a group gets easier."""
LOW_LEARNABILITY = 3
"""Maximum learnability in tenths that counts as low."""


def compute_rule_edits(context: CompactContext, domain: Domain) -> dict[str, dict[str, int]]:
    """Return the rule's edits for a context: -1, 0 or 1 by group and knob."""
    space = domain.space
    edits = {group: dict.fromkeys(space.knobs, 0) for group in space.groups}
    rolled_back = context.state == "rolled"
    for group, row in context.groups.items():
        edits[group] |= _knob_edits(row, domain, rolled_back=rolled_back)
    if transfer := _find_transfer(context, space.share):
        donor, receiver = transfer
        edits[receiver][space.share], edits[donor][space.share] = 1, -1
    return edits


def _is_too_easy(row: CompactRow) -> bool:
    if row.learnability is None or row.valid is None:
        return False
    return row.learnability <= LOW_LEARNABILITY and row.valid > HARD


def _direction(row: CompactRow) -> int:
    if row.valid is None:
        return 0
    if _is_too_easy(row) or row.valid >= EASY:
        return 1
    if row.valid <= HARD:
        return -1
    return row.trend or 0


def _knob_edits(row: CompactRow, domain: Domain, *, rolled_back: bool) -> dict[str, int]:
    knobs = domain.space.difficulty_knobs
    last_edits = {knob: row.last_edit[knob] if row.last_edit else 0 for knob in knobs}
    if row.trend == -1 and any(last_edits.values()) and not rolled_back:
        return {knob: -edit for knob, edit in last_edits.items()}
    direction = _direction(row)
    limit_level = TENTHS if direction > 0 else 0
    movable = [
        knob
        for knob in knobs
        if direction and domain.space.maximum(knob) > 0.0 and row.levels[knob] != limit_level
    ]
    if rolled_back:
        movable = [knob for knob in movable if last_edits[knob] != direction]
    if _is_too_easy(row):
        return dict.fromkeys(movable, direction)
    if not movable:
        return {}
    causes = {
        label.word: domain.causes[label.key]
        for label in domain.failures
        if label.key in domain.causes
    }
    movable_causes = [causes[word] for word in row.failures or () if causes.get(word) in movable]
    if movable_causes:
        return {movable_causes[0]: direction}
    return {min(movable, key=lambda knob: direction * row.levels[knob]): direction}


def _find_transfer(context: CompactContext, share: str) -> tuple[str, str] | None:
    """Return the donor and the receiver of one step of data, or None if no data moves."""
    scores = {
        group: score
        for group, row in context.groups.items()
        if (score := _learning_score(row)) is not None
    }
    donors = [group for group in scores if context.groups[group].levels[share] > 0]
    if not donors:
        return None
    receiver = max(scores, key=scores.__getitem__)  # the first of equal groups
    donor = min(reversed(donors), key=scores.__getitem__)  # the last of equal groups
    return (donor, receiver) if scores[receiver] > scores[donor] else None


def _learning_score(row: CompactRow) -> int | None:
    """Return the learnability in tenths, or an estimate from the valid rate."""
    if row.learnability is not None:
        return row.learnability
    return None if row.valid is None else TENTHS - 2 * abs(row.valid - TENTHS // 2)


def rule_configuration(view: StageView) -> Configuration:
    """Return the rule's configuration for a view with all blocks, within the bounds."""
    space = view.domain.space
    edits = compute_rule_edits(make_compact_context(view, BLOCKS), view.domain)
    values = apply_edits(edits, view.current, space)
    shares = apportion(
        [values[group][space.share] for group in space.groups],
        space.units,
        space.to_units(space.min_share),
    )
    knobs = {
        group: {knob: values[group][knob] for knob in space.difficulty_knobs}
        for group in space.groups
    }
    return make_configuration(view.domain, ratios_by_group(space, shares), knobs)


@dataclass(frozen=True)
class RuleEngineer(ComputedEngineer):
    """Applies the rule to the evidence; all attempts give the same answer."""

    name: str = "rule"

    def _configuration(self, task: Task) -> Configuration:
        return rule_configuration(task.view)
