"""The knobs of an environment by group: values, bounds and text format.

A group is a kind of instances with separate knobs, such as one map size of the lake. The first knob
of each group is its share of the training instances; the other knobs make its instances harder as
they grow. Ratios lie on a grid (`KnobSpace.step`, a whole number of percent), so that answers are
short and two decimals represent every reviewed configuration exactly.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

Ratio = Annotated[float, Field(strict=True, ge=0.0, le=1.0, allow_inf_nan=False)]

KnobValues = dict[str, dict[str, float]]
"""Every knob of every group, such as {"3": {"data_ratio": 0.4, ...}, ...}."""

AnswerForm = dict[str, Any] | str
"""The format of an answer for constrained decoding: a JSON schema, or a regular expression that
matches the whole answer."""

KNOB_EDITS = ("+1", "=", "-1")
"""Edits that JSON answers may use instead of numbers: up, unchanged, down."""

_SUM_TOLERANCE = 1e-6


class FrozenModel(BaseModel):
    """Immutable model that rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Configuration(FrozenModel, ABC):
    """The environment of one stage: knobs by group, with shares that sum to 1."""

    @abstractmethod
    def values(self) -> KnobValues:
        """Return the knobs as plain numbers, groups in order and each group's share first."""

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> Self:
        total = math.fsum(next(iter(knobs.values())) for knobs in self.values().values())
        if abs(total - 1.0) > _SUM_TOLERANCE:
            raise ValueError(f"the shares of all groups must sum to 1, they sum to {total:g}")
        return self


class KnobConfiguration(Configuration):
    """A configuration of any environment, as plain numbers by group and knob.

    The field `share` names the share's knob, so the order of knobs in files does not matter.
    """

    share: str = Field(description="the knob that is a group's share of the instances")
    groups: dict[str, Annotated[dict[str, Ratio], Field(min_length=1)]] = Field(min_length=1)

    def values(self) -> KnobValues:
        """Return the knobs by group in the given order, with the share first."""
        return {
            group: {self.share: knobs[self.share], **knobs} for group, knobs in self.groups.items()
        }

    @field_validator("groups", mode="after")
    @classmethod
    def _each_has_a_share(cls, groups: KnobValues, info: ValidationInfo) -> KnobValues:
        share = info.data.get("share")
        for group, knobs in groups.items():
            if share is not None and share not in knobs:
                raise ValueError(f"{group}: has {', '.join(knobs)}, but not its share, {share}")
        return groups


class KnobSpace(FrozenModel, ABC):
    """The space of allowed configurations, which contains every reviewed configuration.

    Each environment defines a subclass with its groups and knobs.
    """

    min_share: Ratio = Field(default=0.0, description="least share of each group")
    step: Ratio = Field(default=0.05, description="grid of all ratios: per cents that divide 1")
    edit_steps: int = Field(
        default=1, ge=1, description="grid steps by which one relative edit moves a knob"
    )

    group_label: ClassVar[str]
    """The word for a group, such as `map size`."""
    knobs: ClassVar[tuple[str, ...]]
    """The names of the knobs of a group, with the share first."""

    @property
    @abstractmethod
    def groups(self) -> tuple[str, ...]:
        """The groups as written in answers, in the environment's order."""

    @abstractmethod
    def maximum(self, knob: str) -> float:
        """Return the maximum of a knob other than the share; the minimum is 0."""

    def make(self, values: KnobValues) -> Configuration:
        """Create a configuration from plain numbers; subclasses may return another class."""
        return KnobConfiguration(share=self.share, groups=values)

    @model_validator(mode="after")
    def _on_the_grid(self) -> Self:
        if len(set(self.groups)) < len(self.groups):
            raise ValueError(
                f"each {self.group_label} may stand once, got {', '.join(self.groups)}"
            )
        per_cents = round(100 * self.step)
        if abs(100 * self.step - per_cents) > 1e-9 or per_cents == 0 or 100 % per_cents:
            raise ValueError(
                f"step must be a whole number of per cents that divides 1, got {self.step:g}"
            )
        limits = {f"max_{knob}": self.maximum(knob) for knob in self.difficulty_knobs}
        for field, value in (limits | {"min_share": self.min_share}).items():
            if abs(value - self.from_units(self.to_units(value))) > 1e-9:
                raise ValueError(f"{field} must be a multiple of {self.step:g}, got {value:g}")
        if len(self.groups) * self.min_share > 1.0 + 1e-9:
            raise ValueError(
                f"min_share {self.min_share:g} for {len(self.groups)} {self.group_label}s needs"
                f" more than all instances: at most {1 / len(self.groups):.4g} is possible"
            )
        return self

    @property
    def share(self) -> str:
        """The name of the knob with a group's share of the instances."""
        return self.knobs[0]

    @property
    def difficulty_knobs(self) -> tuple[str, ...]:
        """The names of the other knobs, whose growth makes instances harder."""
        return self.knobs[1:]

    @property
    def units(self) -> int:
        """The number of grid steps in 1."""
        return 100 // round(100 * self.step)

    def to_units(self, ratio: float) -> int:
        """Return the nearest grid point of a ratio in steps, halves rounded up."""
        return math.floor(ratio * self.units + 0.5 + 1e-9)

    def from_units(self, steps: int) -> float:
        """Return the ratio of a grid point, equal to its shortest decimal representation."""
        return steps * round(100 * self.step) / 100

    def knobs_of(self, configuration: Configuration) -> KnobValues:
        """Return the knobs of every group of this space, with zeros for missing groups."""
        values = configuration.values()
        return {group: values.get(group, dict.fromkeys(self.knobs, 0.0)) for group in self.groups}

    def moved(self, knob: str, value: float, steps: int) -> float:
        """Return the value of a knob moved by a number of grid steps, clipped to its limits."""
        low, high = (self.to_units(limit) for limit in self.limits(knob))
        return self.from_units(min(max(self.to_units(value) + steps, low), high))

    def limits(self, knob: str) -> tuple[float, float]:
        """Return the minimum and the maximum of a knob."""
        if knob != self.share:
            return 0.0, self.maximum(knob)
        others = (len(self.groups) - 1) * self.to_units(self.min_share)
        return self.min_share, self.from_units(self.units - others)

    def violation(self, configuration: Configuration) -> str | None:
        """Return why a configuration is out of bounds, or None; off-grid values are allowed."""
        values = configuration.values()
        if tuple(values) != self.groups:
            return f"{self.group_label}s must be {', '.join(self.groups)}, got {', '.join(values)}"
        for group, knobs in values.items():
            for knob in self.knobs:
                low, high = self.limits(knob)
                if not low - 1e-9 <= knobs[knob] <= high + 1e-9:
                    return f"{group}.{knob} must lie in {low:g}..{high:g}, got {knobs[knob]:g}"
        return None

    def off_grid(self, configuration: Configuration) -> str | None:
        """Return a message about the first off-grid ratio, or None if all are on the grid."""
        for group, knobs in configuration.values().items():
            for knob, value in knobs.items():
                if abs(value - self.from_units(self.to_units(value))) > 1e-9:
                    return f"{group}.{knob} must be a multiple of {self.step:g}, got {value:g}"
        return None


def apportion(weights: Sequence[float], units: int, minimum: int | Sequence[int] = 0) -> list[int]:
    """Split integer units in proportion to weights, with a minimum per part.

    Parts below their minimum are raised to it and the others scaled down. The largest-remainder
    (Hamilton) method rounds the result; ties go to the earlier part.

    Args:
        weights: Finite weights >= 0.
        units: The number of units to split.
        minimum: The minimum of all parts, or one minimum per part.

    Returns:
        The units of each part.

    Raises:
        ValueError: no weight is positive, or the sum of the minima exceeds `units`.
    """
    least = [minimum] * len(weights) if isinstance(minimum, int) else list(minimum)
    total = math.fsum(weights)
    if not total > 0:
        raise ValueError(f"weights must have a positive sum, got {total:g}")
    if sum(least) > units:
        raise ValueError(f"{len(weights)} parts of at least {minimum} don't fit into {units}")
    lifted: set[int] = set()
    while True:
        free = [i for i in range(len(weights)) if i not in lifted]
        remainder = units - sum(least[i] for i in lifted)
        mass = math.fsum(weights[i] for i in free)
        parts = [float(part) for part in least]
        for i in free:
            parts[i] = weights[i] / mass * remainder if mass > 0 else remainder / len(free)
        below = {i for i in free if parts[i] < least[i] - 1e-9}
        if not below:
            break
        lifted |= below
    whole = [math.floor(part + 1e-9) for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda i: (-round(parts[i] - whole[i], 9), i))
    for i in by_remainder[: units - sum(whole)]:
        whole[i] += 1
    return whole


def percent(ratio: float) -> int:
    """Return a ratio as an integer percentage, halves rounded up."""
    return math.floor(100 * ratio + 0.5 + 1e-9)


def number_text(value: float) -> str:
    """Format a number with at most two decimals and no trailing zeros: 0, 0.05, 0.5, 1."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def answer_text(configuration: Configuration) -> str:
    """Return the canonical answer: minified JSON, groups in order, ratios with two decimals.

    All answers about the same groups have the same length, which keeps the distance between the
    inputs and outputs of a small model fixed. `review_answer` reads every on-grid configuration
    back without repairs.
    """
    groups = ",".join(
        f'"{group}":{{' + ",".join(f'"{knob}":{value:.2f}' for knob, value in knobs.items()) + "}"
        for group, knobs in configuration.values().items()
    )
    return "{" + groups + "}"


def answer_schema(space: KnobSpace) -> dict[str, Any]:
    """Return the JSON schema of an answer, for constrained decoding.

    It requires exactly the groups of the space with all their knobs, each a number within bounds or
    an edit. Numbers have a range instead of an enum of grid points, because xgrammar prints float
    enums with 17 digits. References and titles are avoided, because some decoders lack them.
    """
    knobs: dict[str, Any] = {}
    for knob in space.knobs:
        low, high = space.limits(knob)
        number = {"maximum": high, "minimum": low, "type": "number"}
        knobs[knob] = {"anyOf": [number, {"enum": list(KNOB_EDITS), "type": "string"}]}
    return _closed_object({group: _closed_object(knobs) for group in space.groups})


def _closed_object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "additionalProperties": False,
        "properties": properties,
        "required": list(properties),
        "type": "object",
    }
