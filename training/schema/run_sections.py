"""A run as a whole: the sections `stages` and `tracking`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from training.schema.section import Positive, PositiveFloat, Section


class Stages(Section):
    """How many stages, and how many training instances each may use."""

    count: Positive = Field(3, description="passes through Train, Validate, Design")
    instances: Positive = Field(4_000, description="training instances per stage")


class Wandb(Section):
    """A run on Weights & Biases, through its own library (the extra `wandb`)."""

    project: str = Field("jaxlake", description="the project that the run belongs to")
    mode: Literal["online", "offline"] = Field(
        "online", description="offline: into the run's directory alone, for `wandb sync` later"
    )


class Tracking(Section):
    """Who is told of a run beside its own files; nothing of it decides what the run does."""

    tensorboard: bool = Field(
        False, description="write events to RUN/tensorboard (the extra `tensorboard`)"
    )
    wandb: Wandb | None = Field(None, description="null: nothing is told to Weights & Biases")
    profile_updates: tuple[Positive, ...] = Field(
        (), description="updates, counted over all stages from 1, whose trace goes to RUN/profile"
    )
    peak_tflops: PositiveFloat | None = Field(
        None,
        description="most TFLOP/s of a device in model.dtype, for the MFU; null: where it is known",
    )
