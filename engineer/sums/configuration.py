"""The knobs of column addition, per digit count, and their bounds."""

import math
from typing import Annotated, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from engineer.space import SUM_TOLERANCE, Configuration, Frozen, KnobSpace, Ratio, Values

Digits = Annotated[int, Field(ge=1, le=6)]
"""Digits of each operand. With more of them, sums could no longer be numbered in 64 bits."""


class DigitKnobs(Frozen):
    """What the generator is told about the sums of operands with so many digits."""

    data_ratio: Ratio = Field(description="share of the stage's instances, 0..1")
    carry_ratio: Ratio = Field(
        description="share of the instances in which a column adds up to 10 or more, 0..1"
    )
    third_ratio: Ratio = Field(
        description="share of the instances with three operands instead of two, 0..1"
    )


class SumsConfiguration(Configuration):
    """One stage's environment: knobs by digit count, ascending, data ratios that sum to 1."""

    digits: dict[Digits, DigitKnobs] = Field(min_length=1)

    @field_validator("digits", mode="after")
    @classmethod
    def _ascending(cls, digits: dict[int, DigitKnobs]) -> dict[int, DigitKnobs]:
        return dict(sorted(digits.items()))

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> Self:
        total = math.fsum(knobs.data_ratio for knobs in self.digits.values())
        if abs(total - 1.0) > SUM_TOLERANCE:
            raise ValueError(f"data_ratio of all digits must sum to 1, they sum to {total:g}")
        return self

    def values(self) -> Values:
        """The knobs as plain numbers, fewest digits first."""
        return {str(digits): knobs.model_dump() for digits, knobs in self.digits.items()}


class SumsBounds(KnobSpace):
    """What the engineer may ask for. Every configuration that passes review lies within."""

    digits: tuple[Digits, ...] = Field(min_length=1, description="digits of the operands")
    max_carry_ratio: Ratio = 1.0
    max_third_ratio: Ratio = 1.0

    group_label: ClassVar[str] = "digit count"
    knobs: ClassVar[tuple[str, ...]] = ("data_ratio", "carry_ratio", "third_ratio")

    @field_validator("digits", mode="after")
    @classmethod
    def _ascending(cls, digits: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(digits)) != len(digits):
            raise ValueError(f"each digit count may stand once, got {list(digits)}")
        return tuple(sorted(digits))

    @property
    def groups(self) -> tuple[str, ...]:
        """The digit counts, ascending."""
        return tuple(map(str, self.digits))

    def maximum(self, knob: str) -> float:
        """`max_carry_ratio` or `max_third_ratio`."""
        return {"carry_ratio": self.max_carry_ratio, "third_ratio": self.max_third_ratio}[knob]

    def make(self, values: Values) -> SumsConfiguration:
        """The `SumsConfiguration` of such knobs."""
        return SumsConfiguration(
            digits={int(group): DigitKnobs(**knobs) for group, knobs in values.items()}
        )
