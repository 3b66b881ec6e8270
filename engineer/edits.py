"""Answers as relative edits: one row per group, one sign per knob.

    n3 - = +
    n4 + + =

`+` raises a knob by `KnobSpace.edit_steps`, `-` lowers it and `=` keeps it. The first knob is the
share of the data, which moves from groups with `-` to groups with `+`. A model of a million
parameters can write this in a few tokens that do not depend on the current values. Large models
may write edits or JSON; `engineer.review` reads both.
"""

import re
from collections.abc import Iterator, Mapping

from engineer.domain import Domain
from engineer.quoting import quote
from engineer.space import KNOB_EDITS, Configuration, KnobSpace, KnobValues, apportion

SIGNS = {"-": -1, "=": 0, "+": 1}
"""Signs in rows of edits, with the number of edits by which they move a knob."""

SIGNED = {name: int(name.replace("=", "0")) for name in KNOB_EDITS} | SIGNS
"""Edits accepted in JSON, with the number of edits by which they move a knob."""

Edits = Mapping[str, Mapping[str, int]]
"""By group and knob: -1, 0 or 1."""

_NAMES = {value: sign for sign, value in SIGNS.items()}
_ROW = re.compile(r"[ \t]*(\S+)((?:[ \t]+[-+=])+)[ \t]*")


class EditError(ValueError):
    """Rows of edits are invalid; the message is the reason."""


def edits_text(edits: Edits, domain: Domain) -> str:
    """Format edits as rows, with groups and knobs in the order of the space."""
    space = domain.space
    rows = (
        [domain.symbol(group), *(_NAMES[edits[group][knob]] for knob in space.knobs)]
        for group in space.groups
    )
    return "\n".join(" ".join(row) for row in rows)


def edits_pattern(domain: Domain) -> str:
    """Return a regular expression that matches exactly the output of `edits_text`."""
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
    rows = _last_rows(text)
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
    if missing := [group for group in space.groups if group not in edits]:
        verb = "is" if len(missing) == 1 else "are"
        raise EditError(f"{space.group_label} {', '.join(missing)} {verb} missing")
    return edits


def apply_edits(edits: Edits, current: Configuration, space: KnobSpace) -> KnobValues:
    """Return the knobs after applying edits to a configuration.

    Difficulty knobs are kept within their limits. Data moves from groups with `-` to groups with
    `+`: each of the former gives one edit, or as much as it can spare, and the latter split the
    total equally. If no group gives or no group receives, the shares do not sum to 1; the review
    repairs this.
    """
    values = space.knobs_of(current)
    for group, knobs in values.items():
        for knob in space.difficulty_knobs:
            knobs[knob] = space.moved(knob, knobs[knob], edits[group][knob] * space.edit_steps)
    shares = {group: space.to_units(knobs[space.share]) for group, knobs in values.items()}
    gives = [group for group in space.groups if edits[group][space.share] < 0]
    takes = [group for group in space.groups if edits[group][space.share] > 0]
    least = space.to_units(space.min_share)
    spare = {group: min(space.edit_steps, max(shares[group] - least, 0)) for group in gives}
    taken = dict.fromkeys(takes, space.edit_steps)
    if gives and takes:
        parts = apportion([1.0] * len(takes), sum(spare.values()))
        taken = dict(zip(takes, parts, strict=True))
    for group in space.groups:
        moved = shares[group] + taken.get(group, 0) - spare.get(group, 0)
        values[group][space.share] = space.from_units(moved)
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


def _last_rows(text: str) -> list[tuple[str, list[str]]]:
    last: list[tuple[str, list[str]]] = []
    together = False
    for line, row in _rows(text):
        if row is None:
            together &= not line.strip()
            continue
        if not together:
            last = []
        last.append(row)
        together = True
    return last


def _rows(text: str) -> Iterator[tuple[str, tuple[str, list[str]] | None]]:
    for line in text.split("\n"):
        match = _ROW.fullmatch(line.rstrip("\r"))
        yield line, (match[1], match[2].split()) if match else None
