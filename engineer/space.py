"""The knobs of an environment by group: values, bounds and text format.

A group is a kind of task with its own knobs, such as one map size of the lake. The first knob of
each group is its share of the training instances. Instances get harder as the other knobs grow.
All ratios lie on a grid with a step of whole percents (`KnobSpace.step`). Answers are therefore
short, and two decimals represent every reviewed configuration exactly.
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
        """Return the knobs as numbers, with ordered groups and the share of each group first."""

    @model_validator(mode="after")
    def _check_sum_of_shares(self) -> Self:
        total = math.fsum(next(iter(knobs.values())) for knobs in self.values().values())
        if abs(total - 1.0) > _SUM_TOLERANCE:
            raise ValueError(f"the shares of all groups must sum to 1, got a sum of {total:g}")
        return self


class KnobConfiguration(Configuration):
    """A configuration of any environment, as numbers by group and knob.

    The field `share` names the share knob, so the order of the knobs in files does not matter.
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
    def _check_share_knobs(cls, groups: KnobValues, info: ValidationInfo) -> KnobValues:
        share = info.data.get("share")
        for group, knobs in groups.items():
            if share is not None and share not in knobs:
                raise ValueError(f"{group} must contain the knob {share}, got {', '.join(knobs)}")
        return groups


class KnobSpace(FrozenModel, ABC):
    """The space of allowed configurations, which contains every reviewed configuration.

    Each environment defines a subclass with its groups and knobs.
    """

    min_share: Ratio = Field(default=0.0, description="minimum share of each group")
    step: Ratio = Field(
        default=0.05, description="grid of all ratios, a whole percentage that divides 100%"
    )
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
    def _check_bounds(self) -> Self:
        if len(set(self.groups)) < len(self.groups):
            raise ValueError(f"{self.group_label}s must be distinct, got {', '.join(self.groups)}")
        step_percent = round(100 * self.step)
        if abs(100 * self.step - step_percent) > 1e-9 or not step_percent or 100 % step_percent:
            raise ValueError(
                f"step must be a whole percentage that divides 100%, got {self.step:g}"
            )
        limits = {f"max_{knob}": self.maximum(knob) for knob in self.difficulty_knobs}
        for field, value in (limits | {"min_share": self.min_share}).items():
            if abs(value - self.from_units(self.to_units(value))) > 1e-9:
                raise ValueError(f"{field} must be a multiple of {self.step:g}, got {value:g}")
        if len(self.groups) * self.min_share > 1.0 + 1e-9:
            raise ValueError(
                f"min_share must be at most {1 / len(self.groups):.4g} for {len(self.groups)}"
                f" {self.group_label}s, got {self.min_share:g}"
            )
        return self

    @property
    def share(self) -> str:
        """The name of the knob with a group's share of the instances."""
        return self.knobs[0]

    @property
    def difficulty_knobs(self) -> tuple[str, ...]:
        """The names of the other knobs. Instances get harder as they grow."""
        return self.knobs[1:]

    @property
    def units(self) -> int:
        """The number of grid steps in 1."""
        return 100 // round(100 * self.step)

    def to_units(self, ratio: float) -> int:
        """Return a ratio as a number of grid steps, with halves rounded up."""
        return math.floor(ratio * self.units + 0.5 + 1e-9)

    def from_units(self, steps: int) -> float:
        """Return the ratio of a number of grid steps, exact in its shortest decimal form."""
        return steps * round(100 * self.step) / 100

    def knobs_of(self, configuration: Configuration) -> KnobValues:
        """Return the knobs of every group of this space, with zeros for missing groups."""
        values = configuration.values()
        return {group: values.get(group, dict.fromkeys(self.knobs, 0.0)) for group in self.groups}

    def move_knob(self, knob: str, value: float, steps: int) -> float:
        """Return the value of a knob moved by a number of grid steps, clipped to its limits."""
        low, high = (self.to_units(limit) for limit in self.limits(knob))
        return self.from_units(min(max(self.to_units(value) + steps, low), high))

    def limits(self, knob: str) -> tuple[float, float]:
        """Return the minimum and the maximum of a knob."""
        if knob != self.share:
            return 0.0, self.maximum(knob)
        reserved_units = (len(self.groups) - 1) * self.to_units(self.min_share)
        return self.min_share, self.from_units(self.units - reserved_units)

    def violation(self, configuration: Configuration) -> str | None:
        """Return an error message if a configuration is out of bounds, else None.

        Values between grid points are allowed.
        """
        values = configuration.values()
        if tuple(values) != self.groups:
            return f"{self.group_label}s must be {', '.join(self.groups)}, got {', '.join(values)}"
        for group, knobs in values.items():
            for knob in self.knobs:
                low, high = self.limits(knob)
                if not low - 1e-9 <= knobs[knob] <= high + 1e-9:
                    return f"{group}.{knob} must lie in {low:g}..{high:g}, got {knobs[knob]:g}"
        return None

    def grid_violation(self, configuration: Configuration) -> str | None:
        """Return an error message about the first ratio between grid points, or None."""
        for group, knobs in configuration.values().items():
            for knob, value in knobs.items():
                if abs(value - self.from_units(self.to_units(value))) > 1e-9:
                    return f"{group}.{knob} must be a multiple of {self.step:g}, got {value:g}"
        return None


def apportion(weights: Sequence[float], units: int, minimum: int | Sequence[int] = 0) -> list[int]:
    """Split integer units in proportion to weights, with a minimum per part.

    Parts below their minimum are raised to the minimum, and the other parts are scaled down. Parts
    are rounded by the largest-remainder (Hamilton) method. Ties go to the earlier part.

    Args:
        weights: Finite weights >= 0.
        units: The number of units to split.
        minimum: The minimum of all parts, or one minimum per part.

    Returns:
        The units of each part.

    Raises:
        ValueError: No weight is positive, or the sum of the minima exceeds `units`.
    """
    minima = [minimum] * len(weights) if isinstance(minimum, int) else list(minimum)
    total = math.fsum(weights)
    if not total > 0:
        raise ValueError(f"weights must have a positive sum, got {total:g}")
    if sum(minima) > units:
        raise ValueError(f"{len(weights)} parts of at least {minimum} don't fit into {units}")
    fixed: set[int] = set()  # parts at their minima
    while True:
        free = [i for i in range(len(weights)) if i not in fixed]
        free_units = units - sum(minima[i] for i in fixed)
        mass = math.fsum(weights[i] for i in free)
        parts = [float(part) for part in minima]
        for i in free:
            parts[i] = weights[i] / mass * free_units if mass > 0 else free_units / len(free)
        too_small = {i for i in free if parts[i] < minima[i] - 1e-9}
        if not too_small:
            break
        fixed |= too_small
    floors = [math.floor(part + 1e-9) for part in parts]
    order = sorted(range(len(parts)), key=lambda i: (-round(parts[i] - floors[i], 9), i))
    for i in order[: units - sum(floors)]:
        floors[i] += 1
    return floors


def percent(ratio: float) -> int:
    """Return a ratio as an integer percentage, with halves rounded up."""
    return math.floor(100 * ratio + 0.5 + 1e-9)


def number_text(value: float) -> str:
    """Format a number with at most two decimals and no trailing zeros: 0, 0.05, 0.5, 1."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def answer_text(configuration: Configuration) -> str:
    """Return the canonical answer: minified JSON with ordered groups and two decimals per ratio.

    All answers about the same groups have the same length, so each number always stands at the same
    position, which small models learn more easily. `review_answer` accepts the text of every
    configuration on the grid without repairs.
    """
    groups = ",".join(
        f'"{group}":{{' + ",".join(f'"{knob}":{value:.2f}' for knob, value in knobs.items()) + "}"
        for group, knobs in configuration.values().items()
    )
    return "{" + groups + "}"


def answer_schema(space: KnobSpace) -> dict[str, Any]:
    """Return the JSON schema of an answer, for constrained decoding.

    The schema requires exactly the groups of the space with all their knobs. Each knob is a number
    within its limits or an edit. Numbers have a range instead of an enum of grid points, because
    xgrammar prints float enums with 17 digits. The schema contains no references and titles,
    because some decoders do not support them.
    """
    knobs: dict[str, Any] = {}
    for knob in space.knobs:
        low, high = space.limits(knob)
        number = {"maximum": high, "minimum": low, "type": "number"}
        knobs[knob] = {"anyOf": [number, {"enum": list(KNOB_EDITS), "type": "string"}]}
    return _object_schema({group: _object_schema(knobs) for group in space.groups})


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "additionalProperties": False,
        "properties": properties,
        "required": list(properties),
        "type": "object",
    }
