"""Where two JSON values differ, in words."""

from __future__ import annotations

import json
from typing import Any

Difference = tuple[str, str]
"""What must be and what is, each with its place; for people, long values are cut."""


def first_difference(expected: Any, found: Any) -> Difference | None:
    """Where two JSON values first differ; None if they are equal. 1, 1.0 and true are not."""
    return None if _same(expected, found) else _difference(expected, found, "")


def _difference(expected: Any, found: Any, where: str) -> Difference:
    """As `first_difference`, of two values that differ and stand at `where`."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in dict.fromkeys([*expected, *found]):
            one, other = (values.get(name, _NOTHING) for values in (expected, found))
            if not _same(one, other):
                return _difference(one, other, f"{where}.{name}" if where else name)
    if isinstance(expected, list) and isinstance(found, list):
        for row in range(max(len(expected), len(found))):
            one, other = (
                values[row] if row < len(values) else _NOTHING for values in (expected, found)
            )
            if not _same(one, other):
                return _difference(one, other, f"{where}[{row}]")
    texts = isinstance(expected, str) and isinstance(found, str)
    if texts and max(len(expected), len(found)) > _SHOWN:
        place = next(
            (at for at, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b),
            min(len(expected), len(found)),
        )
        start = max(place - _AROUND, 0)
        where = f"{where}, character {place}" if where else f"character {place}"
        expected, found = (text[start : place + _AROUND] for text in (expected, found))
    return _shown(where, expected), _shown(where, found)


class _Nothing:
    """Stands for a value that is not there."""

    def __repr__(self) -> str:
        return "nothing"


_NOTHING = _Nothing()
_AROUND = 24  # characters shown on each side of where two texts differ
_SHOWN = 80


def _shown(where: str, value: Any) -> str:
    text = repr(value) if isinstance(value, _Nothing) else json.dumps(value)
    # Texts are short here, and where they differ must be seen.
    if len(text) > _SHOWN and not isinstance(value, str):
        text = text[: _SHOWN - 3] + "..."
    return f"{where}: {text}" if where else text


def _same(one: Any, other: Any) -> bool:
    if one is _NOTHING or other is _NOTHING:
        return one is other
    # Python's 1, 1.0 and True are equal, their texts are not.
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
