"""Rollbacks after stages in which the valid rate fell."""

import math
from typing import Literal

from pydantic import Field

from engineer.space import Configuration, FrozenModel, answer_text
from jaxlake.statistics.paired import PairedComparison


class GateSettings(FrozenModel):
    """Settings of rollbacks."""

    rollback: Literal["off", "configuration", "checkpoint"] = Field(
        default="configuration",
        description="what is restored after a stage whose valid rate fell. off: nothing; "
        "configuration: the configuration before its own; checkpoint: also the weights that the "
        "stage began with, with a new optimizer",
    )
    z: float = Field(
        default=1.96,
        gt=0.0,
        description="noise: a fall counts if its one-sided exact McNemar p-value is below that of z"
        " standard deviations",
    )


def has_fallen(comparison: PairedComparison, z: float) -> bool:
    """Return whether the one-sided exact McNemar p-value is below that of z standard deviations."""
    return comparison.p_value_of_fall < 0.5 * math.erfc(z / math.sqrt(2.0))


def rollback_notice(
    comparison: PairedComparison,
    restored: Literal["configuration", "checkpoint"],
    *,
    trained: Configuration,
    current: Configuration,
) -> str:
    """Return the engineer's notice of a rollback.

    Args:
        comparison: The paired comparison of the valid rates before and after the stage.
        restored: Whether the rollback also restored the weights.
        trained: The configuration of the stage that was rolled back.
        current: The restored configuration; equal to `trained` if there was none before.
    """
    text = (
        f"The valid rate fell by {-100 * comparison.difference:.1f} points, more than its noise:"
        f" {comparison.lost} instances were lost, {comparison.gained} gained of {comparison.count}."
    )
    if restored == "checkpoint":
        text += " The weights that the stage began with were restored;"
        text += " the failures shown are theirs."
    if trained == current:
        return f"{text} No other configuration was in force before."
    return (
        f"{text} The configuration before was restored. Write something else than what"
        f" was tried: {answer_text(trained)}"
    )
