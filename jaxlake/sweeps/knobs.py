"""Limits and values of the knobs of a sweep."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jaxlake.board.limits import MAX_AGENTS, MAX_SIZE, MIN_AGENTS, MIN_SIZE
from jaxlake.errors import UserError, did_you_mean, shorten

MAX_VALUES = 1_000_000
"""Largest number of values of one knob."""


class SweepError(UserError, ValueError):
    """Raised for an invalid specification or results folder; names the field or file."""


class Knob(NamedTuple):
    """Limits of a knob of `LakeParams`."""

    whole: bool
    low: float
    high: float
    default: float | None  # None: required


KNOBS = {
    "size": Knob(True, MIN_SIZE, MAX_SIZE, None),
    "hole_ratio": Knob(False, 0, 1, 0.2),
    "wait_ratio": Knob(False, 0, 1, 0.0),
    "num_agents": Knob(True, MIN_AGENTS, MAX_AGENTS, 2),
}
"""Knobs in the order of a grid's axes; the last one varies fastest."""


@dataclass(frozen=True)
class Choice:
    """Values to combine in a grid or to sample from."""

    values: np.ndarray  # int32 or float64 (count,)
    record: Any  # the values as specified, in JSON types

    @property
    def count(self) -> int:
        """The number of values."""
        return len(self.values)

    @property
    def low(self) -> float:
        """The smallest value."""
        return float(self.values.min())

    @property
    def high(self) -> float:
        """The largest value."""
        return float(self.values.max())

    def draw(self, uniform: np.ndarray) -> np.ndarray:
        """Return one value for each number in [0, 1)."""
        values: np.ndarray = self.values[(uniform * self.count).astype(np.int64)]
        return values


@dataclass(frozen=True)
class Range:
    """Interval of numbers, including both ends."""

    low: float
    high: float
    whole: bool

    @property
    def record(self) -> dict[str, float]:
        """The range in JSON types."""
        return {"from": self.low, "to": self.high}

    def draw(self, uniform: np.ndarray) -> np.ndarray:
        """Return one number for each number in [0, 1); ratios have float32 precision."""
        if self.whole:
            span = self.high - self.low + 1
            return (self.low + np.floor(uniform * span)).astype(np.int32)
        ratios = self.low + uniform * (self.high - self.low)
        return ratios.astype(np.float32).astype(np.float64)


def grid_axis(field: str, name: str, value: Any) -> Choice:
    """Return the values of a knob of a grid; raise a `SweepError` that names the invalid field."""
    knob = KNOBS[name]
    if not isinstance(value, Mapping):
        return _choice(field, knob, value, distinct=True)
    low, high = _interval(field, knob, value, ("from", "to", "count"))
    count = value.get("count")
    if count is None and knob.whole:
        count = int(high - low) + 1
    max_count = min(MAX_VALUES, high - low + 1) if knob.whole else MAX_VALUES
    if type(count) is not int or not 2 <= count <= max_count:
        raise SweepError(
            f"{field}.count must be a whole number from 2 to {max_count:,.0f}, got {shorten(count)}"
        )
    # Round, so that linspace gives 0.3 exactly.
    values = np.linspace(low, high, count).round(0 if knob.whole else 12)
    return Choice(_array(knob, values), {"from": low, "to": high, "count": count})


def sample_axis(field: str, name: str, value: Any) -> Choice | Range:
    """Return the distribution of a sampled knob; raise a `SweepError` for an invalid `field`."""
    knob = KNOBS[name]
    if isinstance(value, Mapping):
        return Range(*_interval(field, knob, value, ("from", "to")), knob.whole)
    return _choice(field, knob, value, distinct=False)


def _choice(field: str, knob: Knob, value: Any, *, distinct: bool) -> Choice:
    if value is None:
        if knob.default is None:
            raise SweepError(f"{field} must be {_allowed(knob)}, got none")
        value = knob.default
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str) or not isinstance(value, Sequence):
        value = [value]
    if not value or len(value) > MAX_VALUES:
        raise SweepError(f"{field} must have 1 to {MAX_VALUES:,} values, got {len(value):,}")
    numbers = [_number(field, knob, item) for item in value]
    if distinct and len(set(numbers)) < len(numbers):
        repeated = Counter(numbers).most_common(1)[0][0]
        raise SweepError(f"{field} must have distinct values, got {repeated:g} twice")
    return Choice(_array(knob, numbers), numbers)


def _interval(
    field: str, knob: Knob, value: Mapping[Any, Any], allowed: Sequence[str]
) -> tuple[float, float]:
    for key in value:
        if key not in allowed:
            raise SweepError(
                f"the keys of {field} must be among {', '.join(allowed)}, got {key!s:.100}"
                f"{did_you_mean(key, allowed)}"
            )
    low, high = (_number(f"{field}.{end}", knob, value.get(end)) for end in ("from", "to"))
    if not low < high:
        raise SweepError(f"{field}.from must be below {field}.to, got {low:g} and {high:g}")
    return low, high


def _number(field: str, knob: Knob, value: Any) -> float:
    """Return a plain int or float within the limits."""
    if isinstance(value, np.generic):
        value = value.item()
    is_number = isinstance(value, int if knob.whole else int | float)
    if not is_number or isinstance(value, bool) or not knob.low <= value <= knob.high:
        raise SweepError(f"{field} must be {_allowed(knob)}, got {shorten(value)}")
    return value if knob.whole else float(value)


def _allowed(knob: Knob) -> str:
    return f"a {'whole ' if knob.whole else ''}number from {knob.low:g} to {knob.high:g}"


def _array(knob: Knob, values: Any) -> np.ndarray:
    return np.asarray(values, np.int32 if knob.whole else np.float64)
