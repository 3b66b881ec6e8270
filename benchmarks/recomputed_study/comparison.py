"""Compare JSON values down to their leaves, and ends of intervals with a bootstrap of our own."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

STANDARD_ERRORS = 4
"""How far apart the shares of resamples below an end of an interval may be in two bootstraps."""


@dataclass(frozen=True)
class Resampled:
    """The values that an interval belongs to: one row per seed, one column per board."""

    rows: list[list[int]]


@dataclass
class Comparison:
    """Counts what is compared and says in words what differs."""

    resamples: int  # of our bootstrap
    theirs: int  # of the study's
    confidence: float
    compared: int = 0
    found: list[str] = field(default_factory=list)

    def tree(self, where: str, told: Any, expected: Any) -> None:
        """Compare JSON values down to their leaves; `expected` may contain `Resampled` values."""
        if isinstance(expected, Resampled):
            self._interval(where, told, expected.rows)
        elif isinstance(expected, dict):
            if self.keys(where, told, expected):
                for key, value in expected.items():
                    self.tree(f"{where}.{key}", told[key], value)
        elif isinstance(expected, list):
            if not isinstance(told, list) or len(told) != len(expected):
                self.found.append(f"{where}: got {told!r}, expected {len(expected)} entries")
                return
            for place, (one, other) in enumerate(zip(told, expected, strict=True)):
                self.tree(f"{where}[{place}]", one, other)
        else:
            self._leaf(where, told, expected)

    def keys(self, where: str, told: Any, expected: Object) -> bool:
        """Say whether both have the same keys."""
        if isinstance(told, dict) and set(told) == set(expected):
            return True
        keys = sorted(told) if isinstance(told, dict) else told
        self.found.append(f"{where}: got {keys!r}, expected the keys {sorted(expected)}")
        return False

    def _leaf(self, where: str, told: Any, expected: Any) -> None:
        if isinstance(expected, float):
            self.compared += 1
            number = isinstance(told, int | float) and not isinstance(told, bool)
            same = number and math.isclose(told, expected, rel_tol=1e-9, abs_tol=1e-9)
        else:
            self.compared += isinstance(expected, int) and not isinstance(expected, bool)
            same = told == expected and isinstance(told, bool) == isinstance(expected, bool)
        if not same:
            self.found.append(f"{where}: got {told!r}, expected {expected!r}")

    def _interval(self, where: str, told: Any, rows: list[list[int]]) -> None:
        """Compare the value and `beyond` exactly, and the ends with a bootstrap of our own.

        An end must lie between two of our quantiles: those four standard errors of a share below
        and above its own. One step of the lattice on which the means lie is allowed in addition.
        """
        if not self.keys(where, told, dict.fromkeys(("value", "low", "high", "beyond"))):
            return
        self._leaf(f"{where}.value", told["value"], mean([x for row in rows for x in row]))
        beyond = int(told["low"] > 0) - int(told["high"] < 0)
        self._leaf(f"{where}.beyond", told["beyond"], beyond)
        means = resampled_means(rows, self.resamples, random.Random(where))
        step = 1 / (len(rows) * len(rows[0])) + 1e-9
        for end, sign in (("low", -1), ("high", 1)):
            self.compared += 1
            share = (1 + sign * self.confidence) / 2
            variance = share * (1 - share) * (1 / self.resamples + 1 / self.theirs)
            slack = STANDARD_ERRORS * math.sqrt(variance)
            least = quantile(means, share - slack) - step
            most = quantile(means, share + slack) + step
            if not least <= told[end] <= most:
                expected = f"expected a value from {least:.5f} to {most:.5f}"
                self.found.append(f"{where}.{end}: got {told[end]!r}, {expected}")


def mean(values: Sequence[float]) -> float:
    """Return the mean, rounded once."""
    return math.fsum(values) / len(values)


def spread(values: Sequence[float]) -> Object:
    """Return mean, least and largest of one value per seed."""
    return {"mean": mean(values), "low": float(min(values)), "high": float(max(values))}


def quantile(ordered: Sequence[float], share: float) -> float:
    """Interpolate linearly between order statistics; shares outside 0..1 give infinity."""
    if not 0 <= share <= 1:
        return math.copysign(math.inf, share)
    place = share * (len(ordered) - 1)
    before = int(place)
    after = min(before + 1, len(ordered) - 1)
    return ordered[before] + (place - before) * (ordered[after] - ordered[before])


def resampled_means(rows: list[list[int]], resamples: int, rng: random.Random) -> list[float]:
    """Return the ascending means of resampled seeds that all answer the same resampled boards."""
    boards = len(rows[0])
    means = []
    for _ in range(resamples):
        seeds = rng.choices(rows, k=len(rows))
        by_board = [sum(answers) for answers in zip(*seeds, strict=True)]
        means.append(sum(rng.choices(by_board, k=boards)) / (len(rows) * boards))
    return sorted(means)
