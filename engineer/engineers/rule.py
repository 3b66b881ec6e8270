"""The rule-based engineer, which is also the teacher of small models that design.

GRPO learns from groups of rollouts with different rewards: an instance that is solved with
probability p contributes p(1-p), which is largest at 1/2 and zero at 0 and 1. The rule therefore
keeps groups at intermediate success rates and moves data to where the most can be learned. It only
reads the symbols of `engineer.context.symbols`:

- Data: one step moves from the group with the lowest learnability that can spare it to the group
  with the highest. Without training evidence, closeness of the valid rate to 1/2 replaces
  learnability.
- Too easy: if a group's training instances have low learnability although validation is sometimes
  solved, all knobs of the group go up.
- Otherwise, validation sets the direction: a group gets harder from a valid rate of 55% and easier
  below 15%. In between it follows the trend: harder if it rises, easier if it falls.
- Only one knob moves, so that its effect is visible: the knob associated with the most frequent
  failures (`Domain.causes`). Without such a knob, or if it is at its limit, the lowest knob goes up
  or the highest goes down.
- Reversal: if the valid rate of a group fell after an edit to its knobs, these edits are reversed
  and no other knob moves. After a rollback, which has already reversed them, the same edits are not
  repeated. The share of the data only depends on learnability.
"""

from dataclasses import dataclass

from engineer.context.build import BLOCKS
from engineer.context.symbols import TENTHS, GroupReadout, Readout, read_out
from engineer.context.view import StageView
from engineer.domain import Domain
from engineer.edits import apply_edits
from engineer.engineers.base import Task
from engineer.engineers.computed import ComputedEngineer, by_group, compose_configuration
from engineer.space import Configuration, apportion

EASY = 6
"""Minimum valid rate in tenths at which a group gets harder."""
HARD = 1
"""Maximum valid rate in tenths at which a group gets easier."""
DULL = 3
"""Maximum learnability in tenths that counts as low."""


def teacher_edits(readout: Readout, domain: Domain) -> dict[str, dict[str, int]]:
    """Return the rule's edits for a readout: -1, 0 or 1 by group and knob, with balanced shares."""
    space = domain.space
    edits = {group: dict.fromkeys(space.knobs, 0) for group in space.groups}
    rolled = readout.state == "rolled"
    for group, row in readout.groups.items():
        edits[group] |= _knob_edits(row, domain, rolled=rolled)
    takes, gives = _transfer(readout, space.share)
    if takes is not None and gives is not None:
        edits[takes][space.share], edits[gives][space.share] = 1, -1
    return edits


def _too_easy(row: GroupReadout) -> bool:
    if row.learnability is None or row.valid is None:
        return False
    return row.learnability <= DULL and row.valid > HARD


def _direction(row: GroupReadout) -> int:
    if row.valid is None:
        return 0
    if _too_easy(row) or row.valid >= EASY:
        return 1
    if row.valid <= HARD:
        return -1
    return row.trend or 0


def _knob_edits(row: GroupReadout, domain: Domain, *, rolled: bool) -> dict[str, int]:
    knobs = domain.space.difficulty_knobs
    last = {knob: row.last_edit[knob] if row.last_edit else 0 for knob in knobs}
    if row.trend == -1 and any(last.values()) and not rolled:
        return {knob: -edit for knob, edit in last.items()}
    step = _direction(row)
    limit = TENTHS if step > 0 else 0
    movable = [knob for knob in knobs if domain.space.maximum(knob) > 0.0]
    free = [knob for knob in movable if step and row.levels[knob] != limit]
    if rolled:
        free = [knob for knob in free if last[knob] != step]
    if _too_easy(row):
        return dict.fromkeys(free, step)
    if not free:
        return {}
    pointed_at = [domain.cause_of(word) for word in row.failures or ()]
    named = [knob for knob in pointed_at if knob in free]
    chosen = named[0] if named else min(free, key=lambda knob: step * row.levels[knob])
    return {chosen: step}


def _transfer(readout: Readout, share: str) -> tuple[str | None, str | None]:
    """Return the groups that receive and give a step of data, or None for both."""
    worth = {group: _worth(row) for group, row in readout.groups.items()}
    worths = {group: value for group, value in worth.items() if value is not None}
    spare = [group for group in worths if readout.groups[group].levels[share] > 0]
    if not spare:
        return None, None
    takes = max(worths, key=worths.__getitem__)  # ties: the first
    gives = min(reversed(spare), key=worths.__getitem__)  # ties: the last
    return (takes, gives) if worths[takes] > worths[gives] else (None, None)


def _worth(row: GroupReadout) -> int | None:
    if row.learnability is not None:
        return row.learnability
    return None if row.valid is None else TENTHS - 2 * abs(row.valid - TENTHS // 2)


def next_configuration(view: StageView) -> Configuration:
    """Return the rule's configuration for a view with all blocks.

    Shares are rounded to the grid and the bounds, and knobs are moved to the nearest feasible ones.
    """
    space = view.domain.space
    edits = teacher_edits(read_out(view, BLOCKS), view.domain)
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
    return compose_configuration(view, by_group(space, shares), knobs)


@dataclass(frozen=True)
class RuleEngineer(ComputedEngineer):
    """Applies the rule to the evidence; all attempts give the same answer."""

    name: str = "rule"

    def _configuration(self, task: Task) -> Configuration:
        return next_configuration(task.view)
