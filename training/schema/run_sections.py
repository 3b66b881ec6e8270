"""A run as a whole: the sections `stages` and `tracking`."""

from __future__ import annotations

from pydantic import Field

from training.schema.section import Positive, Section


class Stages(Section):
    """How many stages, and how many training instances each may use."""

    count: Positive = Field(3, description="passes through Train, Validate, Design")
    instances: Positive = Field(4_000, description="training instances per stage")


class Tracking(Section):
    """Who is told of a run beside its own files; nothing of it decides what the run does."""

    tensorboard: bool = Field(
        False, description="write events to RUN/tensorboard (the extra `tensorboard`)"
    )
    wandb: bool = Field(
        False,
        description="log to Weights & Biases (the extra `wandb`), whose environment variables, "
        "such as WANDB_PROJECT and WANDB_MODE, decide the rest",
    )
    profile_updates: tuple[Positive, ...] = Field(
        (), description="updates, counted over all stages from 1, whose trace goes to RUN/profile"
    )
