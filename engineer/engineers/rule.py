"""The rule: a design from what a compact context says, and the teacher of models that design.

GRPO learns from groups of rollouts whose rewards differ: an instance that is solved with
probability p contributes p(1-p) to that, most at one half, nothing at 0 and 1. So the rule keeps
each group where it is solved sometimes, and gives data to where most can be learned. It reads the
symbols of `engineer.context.symbols` alone, and every block of them:

- Data: a step goes from the group with the least learnability that can spare one to the group with
  the most. Where the training says nothing, closeness of the valid rate to one half stands for it.
- Too easy: if little can be learned from a group's own instances, and validation solves it now and
  then, every knob of the group goes up. Validation can't tell, for its instances are others.
- Else the direction comes from validation: a group gets harder from a valid rate of 55% on and
  easier below 15%. Between these it follows its trend: harder if it rises, easier if it falls.
- Then one knob moves, so that its effect shows: the knob that the most frequent failures point to
  (`Domain.causes`). If none does, or the knob is at its end, it is the lowest knob on the way up
  and the highest on the way down.
- Taken back: where a group's valid rate fell after an edit to its knobs, these edits are reversed
  and no other knob of it moves. After a rollback, which reversed them already, no edit of a knob
  is tried again. The group's share of the data follows learnability alone.
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
"""Valid rate in tenths from which on a group gets harder."""
HARD = 1
"""Valid rate in tenths up to which a group gets easier."""
DULL = 3
"""Learnability in tenths up to which little can be learned from a group's own instances."""


def teacher_edits(readout: Readout, domain: Domain) -> dict[str, dict[str, int]]:
    """Apply the rule to a readout: -1, 0 or 1 by group and knob, the data's in balance."""
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
    """Return which group takes a step of data and which gives one; None if none does."""
    worth = {group: _worth(row) for group, row in readout.groups.items()}
    known = {group: value for group, value in worth.items() if value is not None}
    spare = [group for group in known if readout.groups[group].levels[share] > 0]
    if not spare:
        return None, None
    takes = max(known, key=known.__getitem__)  # of equal ones the first
    gives = min(reversed(spare), key=known.__getitem__)  # of equal ones the last
    return (takes, gives) if known[takes] > known[gives] else (None, None)


def _worth(row: GroupReadout) -> int | None:
    if row.learnability is not None:
        return row.learnability
    return None if row.valid is None else TENTHS - 2 * abs(row.valid - TENTHS // 2)


def next_configuration(view: StageView) -> Configuration:
    """Apply the rule to all blocks of a view.

    Shares off the grid or below the bounds are rounded first. Knobs go to the nearest ones of which
    instances can be made.
    """
    space = view.domain.space
    edits = teacher_edits(read_out(view, BLOCKS), view.domain)
    asked = apply_edits(edits, view.current, space)
    shares = apportion(
        [asked[group][space.share] for group in space.groups],
        space.units,
        space.to_units(space.min_share),
    )
    knobs = {
        group: {knob: asked[group][knob] for knob in space.difficulty_knobs}
        for group in space.groups
    }
    return compose_configuration(view, by_group(space, shares), knobs)


@dataclass(frozen=True)
class RuleEngineer(ComputedEngineer):
    """Applies the rule to the evidence; its answer is the same for every attempt."""

    name: str = "rule"

    def _configuration(self, task: Task) -> Configuration:
        return next_configuration(task.view)
