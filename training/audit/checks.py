"""What an audit says of each part of a run: it holds, or what is wrong with it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from engineer.context import ContextTooLongError
from training.audit.chain import canonical
from training.errors import UserError
from training.run.directory import RunDirectory
from training.run.typed_files import JsonFile, JsonLinesFile, TextFile

_AROUND = 16  # characters shown on each side of where two long texts differ
_LONGEST = 600  # characters of a message


@dataclass(frozen=True)
class Check:
    """One part of a run that was looked at."""

    stage: int | None  # None if the part concerns the run as a whole
    part: str  # a field of the stage's link, or the name of a file
    derived: bool = False  # whether the part was derived again; otherwise hashes were compared
    problem: str | None = None  # what is wrong with it

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong with the part."""
        return self.problem is None

    def __str__(self) -> str:
        """Describe the check on one line that any terminal can show."""
        where = "" if self.stage is None else f"stage {self.stage}: "
        how = ", derived again" if self.derived else ""
        text = f"{where}{self.part}{how}: {self.problem or 'holds'}"
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


class BrokenPartError(Exception):
    """Ends an audit at a part that can't be read or derived again; `check` names it."""

    def __init__(self, check: Check) -> None:
        super().__init__(str(check))
        self.check = check


@dataclass(frozen=True)
class Checker:
    """Makes the checks of one stage, or those of the run as a whole (`stage` is None)."""

    directory: RunDirectory
    stage: int | None = None
    derived: bool = False

    def compare(self, part: str, expected: object, found: object) -> Check:
        """Compare two values as JSON."""
        problem = first_difference(to_jsonable_python(expected), to_jsonable_python(found))
        return Check(self.stage, part, self.derived, problem)

    def compare_file(
        self, file: JsonFile[Any] | JsonLinesFile[Any] | TextFile, expected: object
    ) -> Check:
        """Compare what a file must hold with what it holds."""
        return self.compare_read(file.path.name, expected, file.read)

    def compare_read(self, part: str, expected: object, read: Callable[[], object]) -> Check:
        """Compare a value with one that may be impossible to read."""
        with self.naming(part):
            return self.compare(part, expected, read())

    @contextmanager
    def naming(self, part: str) -> Iterator[None]:
        """Name the part that the block reads or derives, if what is wrong are the run's files."""
        try:
            yield
        except (UserError, ContextTooLongError) as error:
            problem = str(error).replace(f"{self.directory.path}/", "")
            # The message may quote anything that a damaged file holds.
            problem = problem.encode("unicode_escape").decode("ascii")
            check = Check(self.stage, part, self.derived, f"can't be read: {problem}")
            raise BrokenPartError(check) from error


def first_difference(expected: Any, found: Any) -> str | None:
    """Say in ASCII where two JSON values first differ, and how; None if they are written alike.

    Numbers are compared as they are written: 1, 1.0 and true differ from each other.
    """
    if canonical(expected) == canonical(found):
        return None
    leaves = [dict(_leaves(value)) for value in (expected, found)]
    written = [{place: canonical(leaf) for place, leaf in one.items()} for one in leaves]
    places = itertools.chain(*leaves)
    place = next(keys for keys in places if written[0].get(keys) != written[1].get(keys))
    keys = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)
    where = json.dumps(keys.removeprefix("."))[1:-1]
    shown = [one.get(place, "nothing") for one in written]
    texts = [text for one in leaves if isinstance(text := one.get(place), str)]
    if len(texts) == 2 and max(map(len, texts)) > 2 * _AROUND:
        one, other = texts
        at = next(at for at in itertools.count() if one[at : at + 1] != other[at : at + 1])
        start = max(at - _AROUND, 0)
        shown = [json.dumps(text[start : start + 2 * _AROUND]) for text in texts]
        where += f", character {at}" if start else ""
    where = where.removeprefix(", ")
    return f"{where}{': ' if where else ''}expected {shown[0]}, found {shown[1]}"


def _leaves(value: Any, *place: str | int) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield every value within that holds no other one, after the keys that lead to it."""
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(inner, *place, key)
    else:
        yield place, value
