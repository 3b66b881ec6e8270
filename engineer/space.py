"""The knobs of an environment, by group: their values, their bounds and how they are written.

A group is a kind of instances that has knobs of its own, such as a map size of the lake. One knob
of each group is its share of the training instances; every other one makes its instances harder as
it grows. Ratios live on a grid (`KnobSpace.step`, a whole number of per cents), so that answers
stay short and every reviewed configuration is written without loss in at most two decimals.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

Ratio = Annotated[float, Field(strict=True, ge=0.0, le=1.0, allow_inf_nan=False)]

Values = dict[str, dict[str, float]]
"""Every knob of every group: {"3": {"data_ratio": 0.4, ...}, ...}."""

SUM_TOLERANCE = 1e-6


class Frozen(BaseModel):
    """A value: never changed after it was made, and strict about what it is made of."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Configuration(Frozen, ABC):
    """One stage's environment: knobs by group, with shares that sum to 1."""

    @abstractmethod
    def values(self) -> Values:
        """The knobs as plain numbers, groups in their order."""


class KnobSpace(Frozen, ABC):
    """What may be asked for. Every configuration that passes review lies within.

    An environment derives its own and says which groups and knobs there are.
    """

    min_share: Ratio = Field(default=0.0, description="least share that each group keeps")
    step: Ratio = Field(default=0.05, description="grid of all ratios: whole per cents, divides 1")

    group_label: ClassVar[str]
    """What a group is called, such as `map size`."""
    knobs: ClassVar[tuple[str, ...]]
    """The names of a group's knobs, its share first."""

    @property
    @abstractmethod
    def groups(self) -> tuple[str, ...]:
        """The groups as they are written in answers, in the environment's order."""

    @abstractmethod
    def maximum(self, knob: str) -> float:
        """The largest value of a knob other than the share; the least is 0."""

    @abstractmethod
    def make(self, values: Values) -> Configuration:
        """The environment's own configuration of such knobs."""

    @model_validator(mode="after")
    def _on_the_grid(self) -> Self:
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
        """The knob that is a group's share of the instances."""
        return self.knobs[0]

    @property
    def difficulty_knobs(self) -> tuple[str, ...]:
        """The others: instances get harder as they grow."""
        return self.knobs[1:]

    @property
    def units(self) -> int:
        """Steps of the grid that make up 1."""
        return 100 // round(100 * self.step)

    def to_units(self, ratio: float) -> int:
        """The grid point nearest to a ratio (halves go up), in steps."""
        return math.floor(ratio * self.units + 0.5 + 1e-9)

    def from_units(self, steps: int) -> float:
        """The ratio at a grid point, exactly as its shortest decimal reads."""
        return steps * round(100 * self.step) / 100

    def limits(self, knob: str) -> tuple[float, float]:
        """Least and largest value of a knob."""
        if knob != self.share:
            return 0.0, self.maximum(knob)
        others = len(self.groups) - 1
        return (
            self.min_share,
            self.from_units(self.units - others * self.to_units(self.min_share)),
        )

    def violation(self, configuration: Configuration) -> str | None:
        """Say how a configuration leaves the bounds, or None. Being off the grid is allowed."""
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
        """Name the first ratio that is not on the grid, or None. Review would round it."""
        for group, knobs in configuration.values().items():
            for knob, value in knobs.items():
                if abs(value - self.from_units(self.to_units(value))) > 1e-9:
                    return f"{group}.{knob} must be a multiple of {self.step:g}, got {value:g}"
        return None


def apportion(weights: Sequence[float], units: int, minimum: int | Sequence[int] = 0) -> list[int]:
    """Split whole `units` in proportion to weights, each part at least its `minimum`.

    Parts below the minimum are lifted to it and the others scaled down; then the largest-remainder
    method (Hamilton) rounds, ties going to the earlier part.

    Args:
        weights: finite, >= 0, not all zero.
        units: what is split, at least the sum of the minima.
        minimum: least part, one for all or one for each.

    Raises:
        ValueError: if no weight is positive or the minima don't fit.
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
        left = units - sum(least[i] for i in lifted)
        mass = math.fsum(weights[i] for i in free)
        parts = [float(part) for part in least]
        for i in free:
            parts[i] = weights[i] / mass * left if mass > 0 else left / len(free)
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
    """A ratio in whole per cents, halves rounded up."""
    return math.floor(100 * ratio + 0.5 + 1e-9)


def number_text(value: float) -> str:
    """The shortest decimal of at most two places: 0, 0.05, 0.5, 1."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def ratio_text(value: float) -> str:
    """A ratio with two decimals: 0.00, 0.05, 0.50, 1.00."""
    return f"{value:.2f}"


def answer_text(configuration: Configuration) -> str:
    """The canonical answer: minified JSON, groups in order, every ratio with two decimals.

    All answers about the same groups have the same length, so that what a small model reads stands
    at a fixed distance from where it writes. `review` reads it back without repairs for every
    configuration on the grid.
    """
    groups = ",".join(
        f'"{group}":{{'
        + ",".join(f'"{knob}":{ratio_text(value)}' for knob, value in knobs.items())
        + "}"
        for group, knobs in configuration.values().items()
    )
    return "{" + groups + "}"


def format_configuration(configuration: Configuration) -> str:
    """One row a group, its knobs in whole per cents. What the compact context shows."""
    return "\n".join(
        f"{group} " + " ".join(f"{percent(value):02d}" for value in knobs.values())
        for group, knobs in configuration.values().items()
    )


def configuration_yaml(configuration: Configuration) -> str:
    """The configuration as people read and write it, in the layout of `configs/*.yaml`."""
    return yaml.safe_dump(configuration.model_dump(), sort_keys=False)


def answer_model(space: KnobSpace) -> type[BaseModel]:
    """What an answer is: exactly the experiment's groups, each with all its knobs, within bounds.

    Numbers are given by range, not by their grid points: xgrammar prints the members of a float
    enum with 17 digits and would force "0.050000000000000003". `answer_pattern` holds an answer to
    the grid as well.
    """
    knobs: dict[str, Any] = {
        knob: (float, Field(ge=low, le=high))
        for knob in space.knobs
        for low, high in [space.limits(knob)]
    }
    closed = ConfigDict(extra="forbid")
    one = create_model("Knobs", __config__=closed, **knobs)
    groups: dict[str, Any] = {
        f"group_{number}": (one, Field(alias=group)) for number, group in enumerate(space.groups)
    }
    return create_model("Answer", __config__=closed, **groups)


def answer_schema(space: KnobSpace) -> dict[str, Any]:
    """The JSON schema of `answer_model`, for decoders that can be constrained.

    It stands alone: references are filled in and titles left out, which not all decoders know.
    """
    schema = answer_model(space).model_json_schema()
    return _inlined(schema, schema.get("$defs", {}))


def _inlined(node: Any, definitions: Mapping[str, Any], *, names: bool = False) -> Any:
    """A schema without references and titles; `names`: its keys are properties, not keywords."""
    if not isinstance(node, dict):
        return node
    if not names and "$ref" in node:
        return _inlined(definitions[node["$ref"].rpartition("/")[2]], definitions)
    return {
        key: _inlined(value, definitions, names=key == "properties")
        for key, value in node.items()
        if names or key not in ("title", "$defs", "description")
    }


def answer_pattern(space: KnobSpace) -> str:
    """A regular expression that matches exactly the canonical answers on the grid.

    For decoders that take one (vLLM's `StructuredOutputsParams(regex=...)`): tighter than the
    schema. Neither can hold the sum of the shares, so answers are reviewed all the same.
    """
    knobs = ",".join(f'"{knob}":({_alternatives(space, knob)})' for knob in space.knobs)
    groups = ",".join(rf'"{re.escape(group)}":\{{{knobs}\}}' for group in space.groups)
    return r"\{" + groups + r"\}"


def _alternatives(space: KnobSpace, knob: str) -> str:
    low, high = (space.to_units(limit) for limit in space.limits(knob))
    return "|".join(re.escape(ratio_text(space.from_units(n))) for n in range(low, high + 1))
