"""The knobs of the lake, per map size: their values, their bounds and how they are written.

Ratios live on a grid (`Bounds.step`, a whole number of per cents), so that answers stay short and
every reviewed configuration is written without loss in at most two decimals.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

KNOBS = ("data_ratio", "hole_ratio", "wait_ratio")
SUM_TOLERANCE = 1e-6

Ratio = Annotated[float, Field(strict=True, ge=0.0, le=1.0, allow_inf_nan=False)]
HoleRatio = Annotated[float, Field(strict=True, ge=0.0, le=0.5, allow_inf_nan=False)]
BoardSize = Annotated[int, Field(ge=2)]


class Frozen(BaseModel):
    """A value: never changed after it was made, and strict about what it is made of."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SizeKnobs(Frozen):
    """What the generator is told about one map size."""

    data_ratio: Ratio = Field(description="share of the stage's instances, 0..1")
    hole_ratio: HoleRatio = Field(description="holes as a share of all cells, 0..0.5")
    wait_ratio: Ratio = Field(
        description="share of the instances that no optimal plan solves without a wait, 0..1"
    )


class LakeConfiguration(Frozen):
    """One stage's environment: knobs by map size, sizes ascending, data ratios that sum to 1."""

    sizes: dict[BoardSize, SizeKnobs] = Field(min_length=1)

    @field_validator("sizes", mode="before")
    @classmethod
    def _each_size_once(cls, sizes: object) -> object:
        if isinstance(sizes, Mapping):
            names = [str(size).strip() for size in sizes]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"map size {', '.join(twice)} is given more than once")
        return sizes

    @field_validator("sizes", mode="after")
    @classmethod
    def _ascending(cls, sizes: dict[int, SizeKnobs]) -> dict[int, SizeKnobs]:
        return dict(sorted(sizes.items()))

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> Self:
        total = math.fsum(knobs.data_ratio for knobs in self.sizes.values())
        if abs(total - 1.0) > SUM_TOLERANCE:
            raise ValueError(f"data_ratio of all sizes must sum to 1, they sum to {total:g}")
        return self


class Bounds(Frozen):
    """What the engineer may ask for. Every configuration that passes review lies within."""

    sizes: tuple[BoardSize, ...] = Field(min_length=1, description="the experiment's map sizes")
    max_hole_ratio: HoleRatio = 0.5
    max_wait_ratio: Ratio = 1.0
    min_share: Ratio = Field(default=0.0, description="least data_ratio that each size keeps")
    step: Ratio = Field(default=0.05, description="grid of all ratios: whole per cents, divides 1")

    @field_validator("sizes", mode="after")
    @classmethod
    def _ascending(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(sizes)) != len(sizes):
            raise ValueError(f"each map size may stand once, got {list(sizes)}")
        return tuple(sorted(sizes))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        per_cents = round(100 * self.step)
        if abs(100 * self.step - per_cents) > 1e-9 or per_cents == 0 or 100 % per_cents:
            raise ValueError(
                f"step must be a whole number of per cents that divides 1, got {self.step:g}"
            )
        for field in ("max_hole_ratio", "max_wait_ratio", "min_share"):
            value = getattr(self, field)
            if abs(value - self.from_units(self.to_units(value))) > 1e-9:
                raise ValueError(f"{field} must be a multiple of {self.step:g}, got {value:g}")
        if len(self.sizes) * self.min_share > 1.0 + 1e-9:
            raise ValueError(
                f"min_share {self.min_share:g} for {len(self.sizes)} map sizes needs more than all"
                f" instances: at most {1 / len(self.sizes):.4g} is possible"
            )
        return self

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
        """Least and largest value of `data_ratio`, `hole_ratio` or `wait_ratio`."""
        others = len(self.sizes) - 1
        top = self.from_units(self.units - others * self.to_units(self.min_share))
        return {
            "data_ratio": (self.min_share, top),
            "hole_ratio": (0.0, self.max_hole_ratio),
            "wait_ratio": (0.0, self.max_wait_ratio),
        }[knob]

    def violation(self, configuration: LakeConfiguration) -> str | None:
        """Say how a configuration leaves the bounds, or None. Being off the grid is allowed."""
        if tuple(configuration.sizes) != self.sizes:
            return f"map sizes must be {list(self.sizes)}, got {list(configuration.sizes)}"
        for size, knobs in configuration.sizes.items():
            for knob in KNOBS:
                low, high = self.limits(knob)
                value = getattr(knobs, knob)
                if not low - 1e-9 <= value <= high + 1e-9:
                    return f"{size}.{knob} must lie in {low:g}..{high:g}, got {value:g}"
        return None


def apportion(weights: Sequence[float], units: int, minimum: int = 0) -> list[int]:
    """Split whole `units` in proportion to weights, each part at least `minimum`.

    Parts below the minimum are lifted to it and the others scaled down; then the largest-remainder
    method (Hamilton) rounds, ties going to the earlier part.

    Args:
        weights: finite, >= 0, not all zero.
        units: what is split, at least `minimum * len(weights)`.
        minimum: least part.

    Raises:
        ValueError: if no weight is positive or the minimum doesn't fit.
    """
    total = math.fsum(weights)
    if not total > 0:
        raise ValueError(f"weights must have a positive sum, got {total:g}")
    if minimum * len(weights) > units:
        raise ValueError(f"{len(weights)} parts of at least {minimum} don't fit into {units}")
    lifted: set[int] = set()
    while True:
        free = [i for i in range(len(weights)) if i not in lifted]
        left = units - minimum * len(lifted)
        mass = math.fsum(weights[i] for i in free)
        parts = [float(minimum)] * len(weights)
        for i in free:
            parts[i] = weights[i] / mass * left if mass > 0 else left / len(free)
        below = {i for i in free if parts[i] < minimum - 1e-9}
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
    return math.floor(100 * ratio + 0.5)


def number_text(value: float) -> str:
    """The shortest decimal of at most two places: 0, 0.05, 0.5, 1."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def ratio_text(value: float) -> str:
    """A ratio with two decimals: 0.00, 0.05, 0.50, 1.00."""
    return f"{value:.2f}"


def answer_text(configuration: LakeConfiguration) -> str:
    """The canonical answer: minified JSON, sizes ascending, every ratio with two decimals.

    All answers about the same sizes have the same length, so that what a small model reads stands
    at a fixed distance from where it writes. `review` reads it back without repairs for every
    configuration on the grid.
    """
    sizes = ",".join(
        f'"{size}":{{'
        + ",".join(f'"{knob}":{ratio_text(getattr(knobs, knob))}' for knob in KNOBS)
        + "}"
        for size, knobs in configuration.sizes.items()
    )
    return "{" + sizes + "}"


def format_configuration(configuration: LakeConfiguration) -> str:
    """One row a size, whole per cents: size, data, holes, waits. What the compact context shows."""
    return "\n".join(
        f"{size} " + " ".join(f"{percent(getattr(knobs, knob)):02d}" for knob in KNOBS)
        for size, knobs in configuration.sizes.items()
    )


def configuration_yaml(configuration: LakeConfiguration) -> str:
    """The configuration as people read and write it, in the layout of `configs/*.yaml`."""
    return yaml.safe_dump(configuration.model_dump(), sort_keys=False)


def answer_schema(bounds: Bounds) -> dict[str, Any]:
    """The JSON schema of an answer: exactly the experiment's sizes, each with its three knobs.

    Numbers are given by range, not by `enum`: xgrammar prints the members of a float enum with 17
    digits and would force "0.050000000000000003". `answer_pattern` holds an answer to the grid as
    well.
    """
    knobs = {
        knob: {"type": "number", "minimum": low, "maximum": high}
        for knob in KNOBS
        for low, high in [bounds.limits(knob)]
    }
    return _closed_object({str(size): _closed_object(knobs) for size in bounds.sizes})


def _closed_object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def answer_pattern(bounds: Bounds) -> str:
    """A regular expression that matches exactly the canonical answers on the grid.

    For decoders that take one (vLLM's `StructuredOutputsParams(regex=...)`): tighter than the
    schema. Neither can hold the sum of the data ratios, so answers are reviewed all the same.
    """
    knobs = ",".join(f'"{knob}":({_alternatives(bounds, knob)})' for knob in KNOBS)
    return r"\{" + ",".join(rf'"{size}":\{{{knobs}\}}' for size in bounds.sizes) + r"\}"


def _alternatives(bounds: Bounds, knob: str) -> str:
    low, high = (bounds.to_units(limit) for limit in bounds.limits(knob))
    return "|".join(
        re.escape(ratio_text(bounds.from_units(steps))) for steps in range(low, high + 1)
    )
