"""Keeps what already works: rollbacks when the valid rate falls, floors for mastered groups."""

import math
from typing import Literal

from pydantic import Field

from engineer.evidence import StageEvidence
from engineer.space import Configuration, FrozenModel, KnobSpace, Ratio, answer_text
from jaxlake.statistics.paired import PairedComparison


class GateSettings(FrozenModel):
    """When a stage is rolled back and which groups are protected."""

    rollback: Literal["off", "configuration", "checkpoint"] = Field(
        default="configuration",
        description="what is restored when the valid rate falls: nothing, the last "
        "configuration, or the last weights as well",
    )
    z: float = Field(
        default=1.96,
        gt=0.0,
        description="noise: a fall counts if its one-sided exact McNemar p-value is below that of z"
        " standard deviations",
    )
    protect_from: Ratio = Field(
        default=1.0, description="valid rate from which on a group is protected; 1: no group is"
    )
    protect_share: Ratio = Field(default=0.0, description="least share of a protected group")


def has_fallen(comparison: PairedComparison, z: float) -> bool:
    """Whether the one-sided exact McNemar p-value lies below P(standard normal number < -z)."""
    return comparison.p_value_of_fall < 0.5 * math.erfc(z / math.sqrt(2.0))


def rollback_notice(
    comparison: PairedComparison,
    restored: Literal["configuration", "checkpoint"],
    *,
    tried: Configuration,
    current: Configuration,
) -> str:
    """Return what the engineer is told after a rollback to `current`.

    `tried` is the configuration of the stage that fell, and `current` too if there was none before.
    """
    told = (
        f"The valid rate fell by {-100 * comparison.difference:.1f} points, more than its noise:"
        f" {comparison.lost} instances were lost, {comparison.gained} gained of {comparison.count}."
    )
    if restored == "checkpoint":
        told += " The weights that the stage began with were restored;"
        told += " the failures shown are theirs."
    if tried == current:
        return f"{told} No other configuration was in force before."
    return (
        f"{told} The configuration before was restored. Write something else than what"
        f" was tried: {answer_text(tried)}"
    )


def protected_floors(
    evidence: StageEvidence, current: Configuration, space: KnobSpace, settings: GateSettings
) -> dict[str, float]:
    """Return the floors of the protected groups: `protect_share`, or their share if it is less."""
    values = current.values()
    protected = {}
    for group, tally in evidence.validation.items():
        mastered = tally.count and tally.valid / tally.count >= settings.protect_from
        if group in values and mastered and settings.protect_from < 1.0:
            protected[group] = min(settings.protect_share, values[group][space.share])
    return protected
