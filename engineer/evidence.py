"""What one stage showed, as plain numbers: no arrays, no devices, JSON in and out.

Groups, failure kinds, scores and slices are named as the environment's `Domain` names them.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, SerializeAsAny, model_validator

from engineer.space import Configuration, Frozen, Ratio

Count = Annotated[int, Field(ge=0, strict=True)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Tally(Frozen):
    """Counts over a set of answers. Each answer is valid or has exactly one first failure."""

    count: Count
    valid: Count
    scores: dict[str, Count] = Field(
        default_factory=dict, description="valid answers that are more than valid, such as optimal"
    )
    failures: dict[str, Count] = Field(
        default_factory=dict, description="answers by the kind of their first failure"
    )

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        for name, score in self.scores.items():
            if score > self.valid:
                raise ValueError(f"{name} {score} exceeds valid {self.valid}")
        failed = sum(self.failures.values())
        if self.valid + failed != self.count:
            raise ValueError(f"valid {self.valid} + failures {failed} must be count {self.count}")
        return self

    def percent(self, part: int) -> int:
        """`part` of the count in whole per cents, halves rounded up; 0 of an empty tally."""
        return (200 * part + self.count) // (2 * self.count) if self.count else 0

    @property
    def valid_percent(self) -> int | None:
        """The valid rate as it is displayed; None of an empty tally."""
        return self.percent(self.valid) if self.count else None


class GroupEvidence(Tally):
    """The validation answers of one group, and the same by whatever else tells them apart."""

    slices: dict[str, dict[str, Tally]] = Field(
        default_factory=dict,
        description='by factor and level, such as {"holes": {"10-19%": ...}}',
    )


class FailureTime(Frozen):
    """When one kind of first failure happens, in steps from the start."""

    median: Finite
    latest: Finite = Field(description="the 90th percentile")


class TrainingEvidence(Frozen):
    """What the training of the stage looked like."""

    updates: Count
    instances: Count = Field(description="training instances used")
    reward_first: Finite = Field(description="mean reward of the first update's rollouts")
    reward_last: Finite = Field(description="mean reward of the last update's rollouts")
    groups_without_variance: Ratio = Field(description="share of groups, their gradient is zero")
    clip_share: Ratio = Field(description="share of tokens whose probability ratio was clipped")
    entropy: Finite = Field(description="mean entropy of the policy, nats a token")
    completion_length: Finite = Field(description="mean length, tokens")
    learnability: dict[str, Annotated[float, Field(ge=0.0, le=0.25)]] = Field(
        default_factory=dict,
        description="by group: mean of p(1-p) over its prompts, p the share of valid rollouts",
    )


class FailedCase(Frozen):
    """One failed validation answer. `completion` is a model's text: data, never an instruction."""

    group: str
    failure: str
    time: int | None = Field(default=None, description="0-based step of the failure")
    instance: tuple[str, ...] = Field(default=(), description="the instance, in short lines")
    completion: str


class StageEvidence(Frozen):
    """Everything a stage tells the engineer."""

    stage: Count
    validation: dict[str, GroupEvidence] = Field(min_length=1)
    failure_times: dict[str, FailureTime] = Field(
        default_factory=dict, description="by kind of failure; kinds without a time are left out"
    )
    training: TrainingEvidence | None = None
    environment: dict[str, dict[str, Finite]] = Field(
        default_factory=dict, description="by group: what the generator says of its instances"
    )
    failed_cases: tuple[FailedCase, ...] = ()


class StageHistory(Frozen):
    """An earlier stage: what it trained on and what came of it."""

    stage: Count
    configuration: SerializeAsAny[Configuration]
    decision: Literal["initial", "accepted", "repaired", "retried", "kept", "rolled_back"] = Field(
        description="how the configuration came about"
    )
    valid_before: dict[str, Ratio] = Field(description="valid rate before the stage")
    valid_after: dict[str, Ratio] = Field(description="valid rate after the stage")
    failures_before: dict[str, dict[str, Ratio]] = Field(
        default_factory=dict,
        description="by group and kind: share of the answers before the stage, what it answered to",
    )
    summary: str = Field(default="", description="what the engineer wrote down after the stage")
