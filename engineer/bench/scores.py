"""Results of DesignBench: files, paired differences and tables."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, ValidationError

from engineer.bench.simulation import LearnerResults
from engineer.bench.version import SIZES, VERSION
from engineer.costs import Count, Seconds
from engineer.engineers.controls import CONTROLS, split_control_name
from engineer.space import FrozenModel, Ratio
from jaxlake.errors import UserError
from jaxlake.text_tables import format_table

BASELINE = "fixed"
"""The engineer with which all others are compared."""
EVIDENCE_FREE = ("fixed", "fixed_random", "random", "easy_to_hard", "hard_only")
"""Scripted engineers that ignore the evidence and therefore have no controls."""

NOT_READING = "does not read"
"""Verdict on an engineer that does not beat its shuffled control."""


class Entry(FrozenModel):
    """The results of one engineer on a number of learners of a track."""

    engineer: str
    groups: int = Field(description="the track")
    final: tuple[Ratio, ...] = Field(
        min_length=2, description="true valid rate after the last stage, by learner"
    )
    designs: Count = Field(description="design phases")
    usable: Count = Field(description="design phases with a usable answer")
    calls: Count = Field(description="requested answers, including retries")
    tokens: Count
    seconds: Seconds

    @classmethod
    def from_result(cls, engineer: str, groups: int, result: LearnerResults) -> "Entry":
        """Create an entry from the results of learners, with rates rounded to six decimals."""
        return cls(
            engineer=engineer,
            groups=groups,
            final=tuple(np.round(result.final_rates, 6).tolist()),
            designs=result.designs,
            usable=result.usable,
            calls=result.calls,
            tokens=result.tokens,
            seconds=round(result.seconds, 3),
        )

    @property
    def rate(self) -> float:
        """The mean final valid rate."""
        return sum(self.final) / len(self.final)


class Results(FrozenModel):
    """A file of results."""

    benchmark: Annotated[str, Field(pattern="^designbench$")] = "designbench"
    version: str = VERSION
    entries: tuple[Entry, ...]

    def entry(self, engineer: str, groups: int) -> Entry | None:
        """Return the entry of an engineer on a track, or None."""
        for entry in self.entries:
            if (entry.engineer, entry.groups) == (engineer, groups):
                return entry
        return None


class Difference(NamedTuple):
    """A mean paired difference in valid rate, and the half-width of its 95% interval."""

    mean: float
    half_width: float

    @property
    def is_positive(self) -> bool:
        """Whether the interval lies above 0."""
        return self.mean - self.half_width > 0.0

    def __str__(self) -> str:
        """Format the difference in percentage points."""
        return f"{100 * self.mean:+.1f} ±{100 * self.half_width:.1f}"


def paired_difference(entry: Entry, baseline: Entry) -> Difference:
    """Return the gain of an engineer over another on their common learners, with a t-interval."""
    from scipy.stats import t as student

    count = min(len(entry.final), len(baseline.final))
    gains = np.array(entry.final[:count]) - np.array(baseline.final[:count])
    standard_error = float(np.std(gains, ddof=1)) / math.sqrt(count)
    return Difference(float(np.mean(gains)), float(student.ppf(0.975, count - 1)) * standard_error)


def read_results(path: Path) -> Results:
    """Read a file of results.

    Raises:
        UserError: The file can't be read or has another version.
    """
    try:
        results = Results.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a results file"
        message = f"{path}: can't be read ({reason}); `jaxlake designbench --out` writes one"
        raise UserError(message) from None
    if results.version != VERSION:
        raise UserError(f"{path}: version must be {VERSION}, got {results.version}")
    return results


_RATE_COLUMNS = ("engineer", "valid", "minus fixed", "minus random", "minus easy_to_hard")
_COST_COLUMNS = ("learners", "usable", "calls", "tokens", "seconds")


def results_table(results: Results) -> str:
    """Return one table per track: gains and differences in points with 95% intervals."""
    tables = []
    for groups in SIZES:
        entries = [entry for entry in results.entries if entry.groups == groups]
        if not entries:
            continue
        ranking = [entry for entry in entries if split_control_name(entry.engineer)[0] is None]
        ranking.sort(key=lambda entry: -entry.rate)
        headings = (*_RATE_COLUMNS, *(f"minus {prefix}" for prefix in CONTROLS), "", *_COST_COLUMNS)
        rows = [_table_row(results, entry) for entry in ranking]
        title = f"{groups} groups, {results.version}; points of valid rate with 95% intervals"
        tables.append(f"{title}\n{format_table(headings, rows, left=1)}")
    return "\n\n".join(tables)


def _table_row(results: Results, entry: Entry) -> tuple[str, ...]:
    controls = [f"{prefix}:{entry.engineer}" for prefix in CONTROLS]
    gains = []
    for name in (BASELINE, "random", "easy_to_hard", *controls):
        baseline = None if name == entry.engineer else results.entry(name, entry.groups)
        gains.append("" if baseline is None else str(paired_difference(entry, baseline)))
    return (
        entry.engineer,
        f"{100 * entry.rate:.1f}",
        *gains,
        verdict(results, entry),
        str(len(entry.final)),
        f"{100 * entry.usable / max(entry.designs, 1):.0f}%",
        str(entry.calls),
        str(entry.tokens),
        f"{entry.seconds:.1f}",
    )


def verdict(results: Results, entry: Entry) -> str:
    """Return whether an engineer uses the evidence, that is, beats its shuffled control."""
    if entry.engineer in EVIDENCE_FREE:
        return "blind"
    shuffled_entry = results.entry(f"shuffled:{entry.engineer}", entry.groups)
    if shuffled_entry is None:
        return "no control"
    return "reads" if paired_difference(entry, shuffled_entry).is_positive else NOT_READING


def comparison_table(names: Sequence[str], files: Sequence[Results]) -> str:
    """Return a table with the gains over `fixed` in two files, and the gain between the files.

    The files share their learners, so the last column is a paired difference.
    """
    rows = []
    keys = dict.fromkeys((entry.groups, entry.engineer) for file in files for entry in file.entries)
    for groups, engineer in sorted(keys, key=lambda key: key[0]):
        first, second = (file.entry(engineer, groups) for file in files)
        baselines = [file.entry(BASELINE, groups) for file in files]
        pairs = [(first, baselines[0]), (second, baselines[1]), (second, first)]
        gains = [
            "" if entry is None or baseline is None else str(paired_difference(entry, baseline))
            for entry, baseline in pairs
        ]
        rows.append((engineer, str(groups), *gains))
    return format_table(("engineer", "groups", *names, "second minus first"), rows, left=1)
