"""What already works is kept: a rollback when the validation falls, floors for what is mastered."""

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from engineer.evidence import StageEvidence
from engineer.space import Configuration, Frozen, KnobSpace, Ratio, answer_text


class GateSettings(Frozen):
    """When a stage is taken back, and what is protected."""

    rollback: Literal["off", "configuration", "checkpoint"] = Field(
        default="configuration",
        description="what is restored when the validation falls: nothing, the last "
        "configuration, or the last weights as well",
    )
    z: float = Field(
        default=1.96,
        gt=0.0,
        description="noise: a fall counts if chance makes one as large less often than a standard"
        " normal number falls below -z",
    )
    protect_from: Ratio = Field(
        default=1.0, description="valid rate from which on a group is protected; 1: none is"
    )
    protect_share: Ratio = Field(
        default=0.0, description="least share that a protected group keeps"
    )


class Comparison(Frozen):
    """Two validations of the same boards, board by board."""

    count: int = Field(ge=1)
    gained: int = Field(ge=0, description="not valid before, valid after")
    lost: int = Field(ge=0, description="valid before, not valid after")

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.gained + self.lost > self.count:
            raise ValueError(
                f"gained {self.gained} + lost {self.lost} must be at most count {self.count}"
            )
        return self

    @property
    def difference(self) -> float:
        """Change of the valid rate."""
        return (self.gained - self.lost) / self.count

    @property
    def p_value(self) -> float:
        """How often at least so many of the instances that changed are lost, if as many are gained.

        McNemar's test in its exact form, one-sided: a binomial tail at one half.
        """
        changed = self.gained + self.lost
        tail = term = math.comb(changed, self.lost)
        for lost in range(self.lost + 1, changed + 1):
            term = term * (changed - lost + 1) // lost
            tail += term
        return tail / 2**changed

    def fell(self, z: float) -> bool:
        """Whether the rate fell by more than its noise, as `GateSettings.z` has it."""
        return self.p_value < 0.5 * math.erfc(z / math.sqrt(2.0))


def notice(
    comparison: Comparison,
    restored: Literal["configuration", "checkpoint"],
    *,
    tried: Configuration,
    current: Configuration,
) -> str:
    """What the engineer is told after a rollback.

    Args:
        comparison: the stage that fell with the one that it started from.
        restored: what was taken back, as in `GateSettings.rollback`.
        tried: the configuration of the stage that fell.
        current: the one in force again; the same where there was none before it.
    """
    lost = (
        f"The valid rate fell by {-100 * comparison.difference:.1f} points, more than its noise:"
        f" {comparison.lost} instances were lost, {comparison.gained} gained of {comparison.count}."
    )
    weights = (
        " The weights that the stage began with were restored; the failures shown are theirs."
        if restored == "checkpoint"
        else ""
    )
    if tried == current:
        return f"{lost}{weights} No other configuration was in force before."
    return (
        f"{lost}{weights} The configuration before was restored. Write something else than what"
        f" was tried: {answer_text(tried)}"
    )


def floors(
    evidence: StageEvidence, current: Configuration, space: KnobSpace, settings: GateSettings
) -> dict[str, float]:
    """The least share of each protected group: `protect_share`, or less if it has less now."""
    values = current.values()
    protected = {}
    for group, tally in evidence.validation.items():
        mastered = tally.count and tally.valid / tally.count >= settings.protect_from
        if group in values and mastered and settings.protect_from < 1.0:
            protected[group] = min(settings.protect_share, values[group][space.share])
    return protected
