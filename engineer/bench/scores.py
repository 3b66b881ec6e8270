"""Benchmark results: files, paired differences and tables."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, ValidationError

from engineer.bench.play import Played
from engineer.bench.version import SIZES, VERSION
from engineer.engineers.controls import CONTROLS, split_control
from engineer.space import FrozenModel, Ratio
from engineer.spent import Count, Seconds
from jaxlake.errors import UserError
from jaxlake.text_tables import format_table

BASELINE = "fixed"
BLIND = ("fixed", "fixed_random", "random", "easy_to_hard", "hard_only")
"""Scripted engineers that ignore the evidence and therefore have no controls."""

NOT_READING = "does not read"


class Entry(FrozenModel):
    """The results of one engineer on the first learners of a track."""

    engineer: str
    groups: int = Field(description="the track")
    final: tuple[Ratio, ...] = Field(
        min_length=2, description="true valid rate after the last stage, by learner"
    )
    designs: Count = Field(description="design phases")
    usable: Count = Field(description="of these, with a usable answer")
    calls: Count = Field(description="answers asked for, retries included")
    tokens: Count
    seconds: Seconds

    @classmethod
    def of(cls, engineer: str, groups: int, played: Played) -> "Entry":
        """Create an entry from played runs; rates are rounded to six decimals."""
        return cls(
            engineer=engineer,
            groups=groups,
            final=tuple(np.round(played.final, 6).tolist()),
            designs=played.designs,
            usable=played.usable,
            calls=played.calls,
            tokens=played.tokens,
            seconds=round(played.seconds, 3),
        )


class Results(FrozenModel):
    """A file of results."""

    benchmark: Annotated[str, Field(pattern="^designbench$")] = "designbench"
    version: str = VERSION
    entries: tuple[Entry, ...]

    def entry(self, engineer: str, groups: int) -> Entry | None:
        """Return the entry of an engineer on a track, or None."""
        return next(
            (one for one in self.entries if (one.engineer, one.groups) == (engineer, groups)), None
        )


class Difference(NamedTuple):
    """A mean paired difference in valid rate, and the half-width of its 95% interval."""

    mean: float
    half: float

    @property
    def is_above_0(self) -> bool:
        """Whether the interval lies above 0."""
        return self.mean - self.half > 0.0

    def __str__(self) -> str:
        """Format the difference in percentage points."""
        return f"{100 * self.mean:+.1f} ±{100 * self.half:.1f}"


def difference(one: Entry, other: Entry) -> Difference:
    """Return the paired difference of two engineers on their common learners (t-interval)."""
    from scipy.stats import t as student

    count = min(len(one.final), len(other.final))
    apart = np.array(one.final[:count]) - np.array(other.final[:count])
    error = float(np.std(apart, ddof=1)) / math.sqrt(count)
    return Difference(float(np.mean(apart)), float(student.ppf(0.975, count - 1)) * error)


def read_results(path: Path) -> Results:
    """Read a file of results.

    Raises:
        UserError: The file can't be read or has another version.
    """
    try:
        results = Results.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a results file"
        problem = f"{path}: can't be read ({why}); `jaxlake designbench --out` writes one"
        raise UserError(problem) from None
    if results.version != VERSION:
        raise UserError(f"{path}: holds version {results.version}, {VERSION} is needed")
    return results


_HEADS = ("engineer", "valid", "less fixed", "less random", "less easy_to_hard")
_COSTS = ("learners", "usable", "calls", "tokens", "seconds")


def results_table(results: Results) -> str:
    """Return one table per track: gains and differences in points with 95% intervals."""
    tables = []
    for groups in SIZES:
        entries = [one for one in results.entries if one.groups == groups]
        if not entries:
            continue
        plain = [one for one in entries if split_control(one.engineer)[0] is None]
        plain.sort(key=lambda one: -sum(one.final) / len(one.final))
        heads = (*_HEADS, *(f"less {prefix}" for prefix in CONTROLS), "", *_COSTS)
        rows = [_row(results, one) for one in plain]
        title = f"{groups} groups, {results.version}; points of valid rate with 95% intervals"
        tables.append(f"{title}\n{format_table(heads, rows, left=1)}")
    return "\n\n".join(tables)


def _row(results: Results, one: Entry) -> tuple[str, ...]:
    others = (BASELINE, "random", "easy_to_hard", *(f"{c}:{one.engineer}" for c in CONTROLS))
    entries = [results.entry(other, one.groups) for other in others]
    apart = [None if e is None or e is one else difference(one, e) for e in entries]
    return (
        one.engineer,
        f"{100 * sum(one.final) / len(one.final):.1f}",
        *("" if value is None else str(value) for value in apart),
        verdict(results, one),
        str(len(one.final)),
        f"{100 * one.usable / max(one.designs, 1):.0f}%",
        str(one.calls),
        str(one.tokens),
        f"{one.seconds:.1f}",
    )


def verdict(results: Results, one: Entry) -> str:
    """Return whether an engineer uses the evidence, that is, beats its shuffled control."""
    if one.engineer in BLIND:
        return "blind"
    shuffled = results.entry(f"shuffled:{one.engineer}", one.groups)
    if shuffled is None:
        return "no control"
    return "reads" if difference(one, shuffled).is_above_0 else NOT_READING


def comparison_table(names: Sequence[str], files: Sequence[Results]) -> str:
    """Return a table of gains over `fixed`, per file, and of the second file over the first.

    The files share their learners, so the last column is a paired difference.
    """
    rows = []
    keys = dict.fromkeys((one.groups, one.engineer) for file in files for one in file.entries)
    for groups, engineer in sorted(keys, key=lambda key: key[0]):
        entries = [file.entry(engineer, groups) for file in files]
        cells = [
            "" if one is None or (fixed := file.entry(BASELINE, groups)) is None
            else str(difference(one, fixed))
            for one, file in zip(entries, files, strict=True)
        ]  # fmt: skip
        first, second = entries
        apart = "" if first is None or second is None else str(difference(second, first))
        rows.append((engineer, str(groups), *cells, apart))
    return format_table(("engineer", "groups", *names, "second less first"), rows, left=1)
