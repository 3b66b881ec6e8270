"""Knobs of a sweep, the parameters of its boards: their limits and their specified values."""

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
    """Invalid specification or results folder; the message names the field or the file."""


class KnobLimits(NamedTuple):
    """Limits of a knob of `LakeParams`."""

    is_integer: bool
    low: float
    high: float
    default: float | None  # None if the knob is required


KNOBS = {
    "size": KnobLimits(True, MIN_SIZE, MAX_SIZE, None),
    "hole_ratio": KnobLimits(False, 0, 1, 0.2),
    "wait_ratio": KnobLimits(False, 0, 1, 0.0),
    "num_agents": KnobLimits(True, MIN_AGENTS, MAX_AGENTS, 2),
}
"""Knobs in the order of a grid's axes; the last one varies fastest."""


@dataclass(frozen=True)
class Choice:
    """Finite set of values to combine in a grid or to sample from."""

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

    def draw(self, fractions: np.ndarray) -> np.ndarray:
        """Return one value for each number in [0, 1)."""
        values: np.ndarray = self.values[(fractions * self.count).astype(np.int64)]
        return values


@dataclass(frozen=True)
class Range:
    """Interval of numbers to sample from, including both ends."""

    low: float
    high: float
    is_integer: bool

    @property
    def record(self) -> dict[str, float]:
        """The range in JSON types."""
        return {"from": self.low, "to": self.high}

    def draw(self, fractions: np.ndarray) -> np.ndarray:
        """Return one number for each number in [0, 1); ratios have float32 precision."""
        if self.is_integer:
            span = self.high - self.low + 1
            return (self.low + np.floor(fractions * span)).astype(np.int32)
        ratios = self.low + fractions * (self.high - self.low)
        return ratios.astype(np.float32).astype(np.float64)


def parse_grid_axis(field: str, name: str, value: Any) -> Choice:
    """Return the values of a grid's knob; raise a `SweepError` that names an invalid field."""
    knob = KNOBS[name]
    if not isinstance(value, Mapping):
        return _parse_choice(field, knob, value, distinct=True)
    low, high = _parse_interval(field, knob, value, ("from", "to", "count"))
    count = value.get("count")
    if count is None and knob.is_integer:
        count = int(high - low) + 1
    max_count = min(MAX_VALUES, high - low + 1) if knob.is_integer else MAX_VALUES
    if type(count) is not int or not 2 <= count <= max_count:
        raise SweepError(
            f"{field}.count must be a whole number from 2 to {max_count:,.0f}, got {shorten(count)}"
        )
    # Rounding turns values such as 0.30000000000000004 into 0.3.
    values = np.linspace(low, high, count).round(0 if knob.is_integer else 12)
    return Choice(_to_array(knob, values), {"from": low, "to": high, "count": count})


def parse_sample_axis(field: str, name: str, value: Any) -> Choice | Range:
    """Return the distribution of a sampled knob; raise a `SweepError` for an invalid field."""
    knob = KNOBS[name]
    if isinstance(value, Mapping):
        return Range(*_parse_interval(field, knob, value, ("from", "to")), knob.is_integer)
    return _parse_choice(field, knob, value, distinct=False)


def _parse_choice(field: str, knob: KnobLimits, value: Any, *, distinct: bool) -> Choice:
    if value is None:
        if knob.default is None:
            raise SweepError(f"{field} must be {_describe_range(knob)}, got none")
        value = knob.default
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str) or not isinstance(value, Sequence):
        value = [value]
    if not value or len(value) > MAX_VALUES:
        raise SweepError(f"{field} must have 1 to {MAX_VALUES:,} values, got {len(value):,}")
    numbers = [_parse_number(field, knob, item) for item in value]
    if distinct and len(set(numbers)) < len(numbers):
        repeated_number = Counter(numbers).most_common(1)[0][0]
        raise SweepError(f"{field} must have distinct values, got {repeated_number:g} twice")
    return Choice(_to_array(knob, numbers), numbers)


def _parse_interval(
    field: str, knob: KnobLimits, value: Mapping[Any, Any], allowed_keys: Sequence[str]
) -> tuple[float, float]:
    check_keys(field, value, allowed_keys)
    low, high = (_parse_number(f"{field}.{end}", knob, value.get(end)) for end in ("from", "to"))
    if not low < high:
        raise SweepError(f"{field}.from must be below {field}.to, got {low:g} and {high:g}")
    return low, high


def check_keys(field: str, mapping: Mapping[Any, Any], allowed_keys: Sequence[str]) -> None:
    """Raise `SweepError` if a mapping has an unknown key; `field` is empty for a whole file."""
    for key in mapping:
        if key not in allowed_keys:
            keys = f"the keys of {field}" if field else "keys"
            raise SweepError(
                f"{keys} must be among {', '.join(allowed_keys)}, got {key!s:.100}"
                f"{did_you_mean(key, allowed_keys)}"
            )


def _parse_number(field: str, knob: KnobLimits, value: Any) -> float:
    """Return a plain int or float within the limits."""
    if isinstance(value, np.generic):
        value = value.item()
    is_number = isinstance(value, int if knob.is_integer else int | float)
    if not is_number or isinstance(value, bool) or not knob.low <= value <= knob.high:
        raise SweepError(f"{field} must be {_describe_range(knob)}, got {shorten(value)}")
    return value if knob.is_integer else float(value)


def _describe_range(knob: KnobLimits) -> str:
    return f"a {'whole ' if knob.is_integer else ''}number from {knob.low:g} to {knob.high:g}"


def _to_array(knob: KnobLimits, values: Any) -> np.ndarray:
    return np.asarray(values, np.int32 if knob.is_integer else np.float64)
