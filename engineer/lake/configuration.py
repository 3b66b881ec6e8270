"""The knobs of the lake by map size, and their bounds."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, ValidatorFunctionWrapHandler, field_validator

from engineer.space import Configuration, FrozenModel, KnobSpace, KnobValues, Ratio

HoleRatio = Annotated[float, Field(strict=True, ge=0.0, le=0.5, allow_inf_nan=False)]
BoardSize = Annotated[int, Field(ge=2)]


class SizeKnobs(FrozenModel):
    """The knobs of one map size."""

    data_ratio: Ratio = Field(description="share of the stage's instances, 0..1")
    hole_ratio: HoleRatio = Field(description="holes as a share of all cells, 0..0.5")
    wait_ratio: Ratio = Field(
        description="share of the instances that no optimal plan solves without a wait, 0..1"
    )


class LakeConfiguration(Configuration):
    """The lakes of one stage: knobs by ascending map size, with data ratios that sum to 1."""

    sizes: dict[BoardSize, SizeKnobs] = Field(min_length=1)

    @field_validator("sizes", mode="wrap")
    @classmethod
    def _check_distinct_sizes(
        cls, sizes: object, validate: ValidatorFunctionWrapHandler
    ) -> dict[int, SizeKnobs]:
        knobs_by_size: dict[int, SizeKnobs] = validate(sizes)
        if isinstance(sizes, Mapping) and len(knobs_by_size) < len(sizes):
            # The same size can be written as 3, "03" or "3.0".
            numbers = [int(str(size).partition(".")[0]) for size in sizes]
            duplicates = sorted(size for size in knobs_by_size if numbers.count(size) > 1)
            raise ValueError(f"map size {', '.join(map(str, duplicates))} is given more than once")
        return dict(sorted(knobs_by_size.items()))

    def values(self) -> KnobValues:
        """Return the knobs as numbers, by ascending size."""
        return {str(size): knobs.model_dump() for size, knobs in self.sizes.items()}


class Bounds(KnobSpace):
    """The space of allowed lake configurations."""

    sizes: tuple[BoardSize, ...] = Field(min_length=1, description="the experiment's map sizes")
    max_hole_ratio: HoleRatio = 0.5
    max_wait_ratio: Ratio = 1.0
    min_share: Ratio = Field(default=0.0, description="minimum data_ratio of each size")

    group_label: ClassVar[str] = "map size"
    knobs: ClassVar[tuple[str, ...]] = ("data_ratio", "hole_ratio", "wait_ratio")

    @field_validator("sizes", mode="after")
    @classmethod
    def _sort_sizes(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(sizes))

    @property
    def groups(self) -> tuple[str, ...]:
        """The map sizes, ascending."""
        return tuple(map(str, self.sizes))

    def maximum(self, knob: str) -> float:
        """Return `max_hole_ratio` or `max_wait_ratio`."""
        return {"hole_ratio": self.max_hole_ratio, "wait_ratio": self.max_wait_ratio}[knob]

    def make(self, values: KnobValues) -> LakeConfiguration:
        """Create a `LakeConfiguration` from plain numbers."""
        return LakeConfiguration(
            sizes={int(group): SizeKnobs(**knobs) for group, knobs in values.items()}
        )
