"""Answers as relative edits: one row per group, one sign per knob.

    n3 - = +
    n4 + + =

`+` raises a knob by `KnobSpace.edit_steps`, `-` lowers it and `=` keeps it. The first knob is the
share of the data, which moves from groups with `-` to groups with `+`. Edits take few tokens and do
not depend on the current values, so a model of a million parameters can write them. Large models
may write edits or JSON; `engineer.review` reads both.
"""

import re
from collections.abc import Mapping

from engineer.domain import Domain
from engineer.quoting import quote
from engineer.space import KNOB_EDITS, Configuration, KnobSpace, KnobValues, apportion

SIGNS = {"-": -1, "=": 0, "+": 1}
"""Maps the signs in rows of edits to edits."""

JSON_EDITS = {name: int(name.replace("=", "0")) for name in KNOB_EDITS} | SIGNS
"""Maps the strings that JSON answers may contain to edits."""

Edits = Mapping[str, Mapping[str, int]]
"""Edits by group and knob: -1, 0 or 1."""

_SIGN_OF_EDIT = {edit: sign for sign, edit in SIGNS.items()}
_ROW = re.compile(r"[ \t]*(\S+)((?:[ \t]+[-+=])+)[ \t]*")


class EditError(ValueError):
    """Rows of edits are invalid; the message is the reason."""


def edits_text(edits: Edits, domain: Domain) -> str:
    """Format edits as rows, with groups and knobs in the order of the space."""
    space = domain.space
    rows = (
        [domain.symbol(group), *(_SIGN_OF_EDIT[edits[group][knob]] for knob in space.knobs)]
        for group in space.groups
    )
    return "\n".join(" ".join(row) for row in rows)


def edits_pattern(domain: Domain) -> str:
    """Return a regular expression that matches exactly the outputs of `edits_text`."""
    signs = " [-+=]" * len(domain.space.knobs)
    return "\n".join(re.escape(domain.symbol(group)) + signs for group in domain.space.groups)


def read_edits(text: str, domain: Domain) -> dict[str, dict[str, int]] | None:
    """Parse the last block of edit rows in a text.

    Rows form a block if only blank lines separate them. Groups may be given by symbol or by name.

    Args:
        text: An answer.
        domain: The environment.

    Returns:
        The edits -1, 0 or 1 by group and knob, or None if the text has no rows.

    Raises:
        EditError: A group is missing, unknown or given twice, or a row has too few or many signs.
    """
    space = domain.space
    rows = _read_last_block(text)
    if not rows:
        return None
    group_names = {group: group for group in space.groups}
    group_names |= {domain.symbol(group): group for group in space.groups}
    edits: dict[str, dict[str, int]] = {}
    for name, signs in rows:
        group = group_names.get(name)
        if group is None:
            raise EditError(
                f"{space.group_label} {quote(name, 24)} is not one of {', '.join(space.groups)}"
            )
        if group in edits:
            raise EditError(f"{space.group_label} {group} is given more than once")
        if len(signs) != len(space.knobs):
            raise EditError(
                f"{space.group_label} {group} has {len(signs)} signs, one is needed for each of"
                f" {', '.join(space.knobs)}"
            )
        edits[group] = {knob: SIGNS[sign] for knob, sign in zip(space.knobs, signs, strict=True)}
    if missing_groups := [group for group in space.groups if group not in edits]:
        verb = "is" if len(missing_groups) == 1 else "are"
        raise EditError(f"{space.group_label} {', '.join(missing_groups)} {verb} missing")
    return edits


def apply_edits(edits: Edits, current: Configuration, space: KnobSpace) -> KnobValues:
    """Return the knobs after applying edits to a configuration.

    Difficulty knobs are clipped to their limits. Data moves from groups with `-` to groups with
    `+`. Each donor gives one edit, or less if its share would fall below the minimum. The receivers
    split the total equally. Without donors or receivers the shares do not sum to 1, which
    `review_answer` repairs.
    """
    values = space.knobs_of(current)
    for group, knobs in values.items():
        for knob in space.difficulty_knobs:
            knobs[knob] = space.move_knob(knob, knobs[knob], edits[group][knob] * space.edit_steps)
    shares = {group: space.to_units(knobs[space.share]) for group, knobs in values.items()}
    donors = [group for group in space.groups if edits[group][space.share] < 0]
    receivers = [group for group in space.groups if edits[group][space.share] > 0]
    min_units = space.to_units(space.min_share)
    losses = {group: min(space.edit_steps, max(shares[group] - min_units, 0)) for group in donors}
    gains = dict.fromkeys(receivers, space.edit_steps)
    if donors and receivers:
        parts = apportion([1.0] * len(receivers), sum(losses.values()))
        gains = dict(zip(receivers, parts, strict=True))
    for group in space.groups:
        share = shares[group] + gains.get(group, 0) - losses.get(group, 0)
        values[group][space.share] = space.from_units(share)
    return values


def edits_between(before: Configuration, after: Configuration, space: KnobSpace) -> Edits:
    """Return the sign of every knob's change from one configuration to another."""
    old, new = space.knobs_of(before), space.knobs_of(after)
    return {
        group: {knob: _sign(new[group][knob] - old[group][knob]) for knob in space.knobs}
        for group in space.groups
    }


def _sign(difference: float) -> int:
    return int(difference > 1e-9) - int(difference < -1e-9)


def _read_last_block(text: str) -> list[tuple[str, list[str]]]:
    """Return the group and the signs of each row in the last block."""
    block: list[tuple[str, list[str]]] = []
    in_block = False
    for line in text.split("\n"):
        row = _ROW.fullmatch(line.rstrip("\r"))
        if row is None:
            in_block &= not line.strip()
            continue
        if not in_block:
            block = []
        block.append((row[1], row[2].split()))
        in_block = True
    return block
