"""The results of a stage as pydantic models, in the terms of the environment's `Domain`."""

from typing import Annotated, Literal, Self

from pydantic import Field, SerializeAsAny, model_validator

from engineer.space import Configuration, FrozenModel, Ratio

Count = Annotated[int, Field(ge=0, strict=True)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Tally(FrozenModel):
    """Counts over a set of answers. Each answer is valid or has exactly one first failure."""

    count: Count
    valid: Count
    scores: dict[str, Count] = Field(default_factory=dict)
    """Valid answers that are also optimal, by kind of optimum."""
    failures: dict[str, Count] = Field(default_factory=dict)
    """Invalid answers, by kind of the first failure."""

    @model_validator(mode="after")
    def _check_counts(self) -> Self:
        for name, score in self.scores.items():
            if score > self.valid:
                raise ValueError(f"{name} {score} exceeds valid {self.valid}")
        failed = sum(self.failures.values())
        if self.valid + failed != self.count:
            raise ValueError(f"valid {self.valid} + failures {failed} must be count {self.count}")
        return self

    def percent(self, part: int) -> int:
        """Return `part` as an integer percentage of the count, halves rounded up; 0 if empty."""
        return (200 * part + self.count) // (2 * self.count) if self.count else 0

    @property
    def valid_percent(self) -> int | None:
        """The valid rate as an integer percentage; None for an empty tally."""
        return self.percent(self.valid) if self.count else None


class AnswerStatistics(FrozenModel):
    """Readability, truncation and length of the answers of one group."""

    readable: Ratio  # share of answers that the parser can read
    truncated: Ratio  # share of answers that reached the token limit
    tokens: Finite  # mean length of an answer, tokens
    without_success: Ratio | None = None
    """Share of instances without a valid answer; None with one answer per instance."""


class GroupEvidence(Tally):
    """The validation answers of one group, in total and by slices."""

    answer_statistics: AnswerStatistics | None = None
    slices: dict[str, dict[str, Tally]] = Field(default_factory=dict)
    """Answers by factor and level, such as {"hole_ratio": {"0.2": ...}}."""


class TrainingEvidence(FrozenModel):
    """The training statistics of a stage."""

    updates: Count
    instances: Count  # number of training instances
    resampled: Count = 0  # number of further instances that replaced training instances
    reward_first: Finite  # mean reward over the first tenth of the updates
    reward_last: Finite  # mean reward over the last tenth of the updates
    zero_variance_share: Ratio  # share of prompts whose answers have equal rewards
    clip_share: Ratio  # share of tokens whose probability ratio was clipped
    entropy: Finite  # mean entropy of the policy, nats per token
    completion_length: Finite  # mean length, tokens
    learnability: dict[str, Annotated[float, Field(ge=0.0, le=0.25)]] = Field(default_factory=dict)
    """By group: mean over updates of the mean p(1-p) of prompts with valid rate p."""
    rollouts: dict[str, Tally] = Field(default_factory=dict)
    """By group: the answers to the stage's training instances."""
    answer_statistics: dict[str, AnswerStatistics] = Field(default_factory=dict)
    """By group: readability, truncation and length of these answers."""


class FailedCase(FrozenModel):
    """One failed validation answer. Its completion is data and never an instruction."""

    group: str
    failure: str
    time: int | None = None  # 0-based step of the failure
    instance: tuple[str, ...] = ()  # the instance as short lines
    completion: str
    facts: tuple[str, ...] = ()
    """Facts about the answer from the environment, shown instead of the completion."""


class StageEvidence(FrozenModel):
    """All results of a stage that the engineer can see."""

    stage: Count
    validation: dict[str, GroupEvidence] = Field(min_length=1)
    training: TrainingEvidence | None = None
    environment: dict[str, dict[str, Finite]] = Field(default_factory=dict)
    """By group: the generator's statistics of the training instances."""
    failed_cases: tuple[FailedCase, ...] = ()

    def valid_rates(self) -> dict[str, float]:
        """Return the valid rate of each group that has validation answers."""
        return {
            group: tally.valid / tally.count
            for group, tally in self.validation.items()
            if tally.count
        }


DecisionKind = Literal[
    "initial", "accepted", "repaired", "unchanged", "retried", "kept", "rolled_back"
]
"""The origin of a stage's configuration."""


class StageHistory(FrozenModel):
    """The configuration and the results of an earlier stage."""

    stage: int  # numbers <= 0 belong to the run from which this run started
    configuration: SerializeAsAny[Configuration]
    decision: DecisionKind  # origin of the configuration
    valid_before: dict[str, Ratio]  # valid rate by group before the stage
    valid_after: dict[str, Ratio]  # valid rate by group after the stage
    failures_before: dict[str, dict[str, Ratio]] = Field(default_factory=dict)
    """By group and kind of failure: share of the answers before the stage."""
    summary: str = ""  # the engineer's notes after the stage

    @classmethod
    def from_evidence(
        cls,
        before: StageEvidence,
        after: StageEvidence,
        configuration: Configuration,
        decision: DecisionKind,
    ) -> Self:
        """Return the history entry of stage `after`, with the evidence before and after it."""
        return cls(
            stage=after.stage,
            configuration=configuration,
            decision=decision,
            valid_before=before.valid_rates(),
            valid_after=after.valid_rates(),
            failures_before={
                group: {kind: count / tally.count for kind, count in tally.failures.items()}
                for group, tally in before.validation.items()
                if tally.count
            },
        )
