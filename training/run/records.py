"""What the files of a run hold: one model per file, and `directory.py` says where each stands.

Records are frozen values that know nothing of files. What they say in common: a stage is counted
from 1 and 0 is what stood before the first; a step counts all steps of the warm start and all
updates since the beginning.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_serializer,
    model_serializer,
)

from engineer import Attempt, Change, DesignRecord, Repair, Spent
from engineer.lake import LakeConfiguration
from jaxlake.paired import PairedComparison
from training.errors import UserError, problems_of

Count = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
# So far within the range of floats that means over updates are finite.
Bounded = Annotated[float, Field(ge=-1e9, le=1e9)]
Rate = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0)]


R = TypeVar("R", bound="Record")


class Record(BaseModel):
    """What one file, or one line of it, holds: frozen, and strict about names and numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


# validation.json, episodes.jsonl, failures.jsonl


class Rates(Record):
    """Counts and rates over the answers to some boards.

    Attributes:
        size: Map size; None (and left out of the file) over all of them.
        valid: Answers with a valid plan.
        optimal_sum_of_costs: Answers of which the plan's sum of costs is optimal.
        optimal_makespan: Answers of which the plan's makespan is optimal.
        compared: Valid answers to boards whose optimum is known.
        csr: Cooperative success rate: the share of valid answers.
        isr: Individual success rate: the mean share of agents at their goal at the end.
        mean_sum_of_costs: Over valid answers, steps; None without any, like all means.
        mean_makespan: Over valid answers, steps.
        mean_excess_sum_of_costs: Over compared answers, steps above the optimum.
        mean_excess_makespan: Over compared answers, steps above the optimum.
        count: Answers.
        failures: Answers by the label of their first `jaxlake.Failure`.
    """

    size: int | None = None
    valid: Count
    optimal_sum_of_costs: Count
    optimal_makespan: Count
    compared: Count
    csr: Rate
    isr: Rate
    mean_sum_of_costs: float | None
    mean_makespan: float | None
    mean_excess_sum_of_costs: float | None
    mean_excess_makespan: float | None
    count: Count
    failures: dict[str, Count]

    @model_serializer(mode="wrap")
    def _without_missing_size(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = dump(self)
        if self.size is None:
            del plain["size"]
        return plain


class ValidationRecord(Record):
    """`validation.json`: how the answers to the validation set turned out after a stage."""

    stage: Count
    rows: Annotated[tuple[Rates, ...], Field(min_length=1, description="by map size, ascending")]
    total: Rates


class EpisodeRecord(Record):
    """One line of `episodes.jsonl`: a validation board, the answer to it and its verdict.

    Attributes:
        id: The board's number in the validation set.
        size: Side of the board.
        grid: Its rows in the published symbols.
        needs_wait: Whether every plan of optimal sum of costs has an agent wait.
        optimum: The optimal sum of costs.
        text: The whole answer.
        plan: Action names per agent; None if the answer can't be read.
        valid: Whether the plan brings every agent to its goal and breaks no rule.
        optimal_sum_of_costs: Whether its sum of costs is optimal.
        optimal_makespan: Whether its makespan is optimal.
        failure: Label of the first failure; None for a valid plan.
        agent: Lowest agent that is involved in the failure, if any.
        time: Step of the failure, if any.
        sum_of_costs: The plan's own; None unless valid.
        reason: Why the answer can't be read; None if it can.
    """

    id: Count
    size: int
    grid: tuple[str, ...]
    needs_wait: bool
    optimum: int
    text: str
    plan: tuple[tuple[str, ...], ...] | None
    valid: bool
    optimal_sum_of_costs: bool
    optimal_makespan: bool
    failure: str | None
    agent: int | None
    time: int | None
    sum_of_costs: int | None
    reason: str | None


# shortfalls.json


class ShortfallRecord(Record):
    """One entry of `shortfalls.json`: boards that were asked for and could not be made."""

    size: int
    hole_ratio: Rate
    wait_ratio: Rate
    num_agents: int
    count: Count = Field(description="boards asked for")
    missing_wait: Count = Field(description="boards missing that need a wait")
    missing_no_wait: Count = Field(description="boards missing that need none")
    candidates: Count = Field(description="boards drawn in the attempt")


# gate.json, answers.jsonl, decision.json, probes.jsonl


class GateRecord(Record):
    """`gate.json`: whether a stage fell behind the one it started from, and what was restored."""

    reference: Count = Field(description="the stage whose weights this one started from")
    comparison: PairedComparison
    restored: Literal["configuration", "checkpoint"] | None
    configuration: LakeConfiguration = Field(description="in force when the engineer is asked")
    notice: str


class AttemptRecord(Attempt):
    """One line of `answers.jsonl`: a question to the engineer and what came back."""

    attempt: Count

    @model_serializer(mode="wrap")
    def _number_first(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = {"attempt": self.attempt, **dump(self)}
        if not self.candidates:
            del plain["candidates"]
        return plain


def attempt_records(design: DesignRecord) -> list[AttemptRecord]:
    """The lines of `answers.jsonl` for a Design phase."""
    return [
        AttemptRecord(attempt=number, **{name: getattr(one, name) for name in Attempt.model_fields})
        for number, one in enumerate(design.attempts)
    ]


class DecisionRecord(Record):
    """`decision.json`: what a Design phase decided; without times, so that equal runs are equal."""

    stage: Count = Field(description="the stage whose evidence was read")
    engineer: str
    kind: Literal["accepted", "repaired", "retried", "kept"]
    configuration: LakeConfiguration = Field(description="of the next stage")
    diff: tuple[Change, ...]
    repairs: tuple[Repair, ...]
    reason: str
    spent: Spent

    @field_serializer("spent")
    def _without_seconds(self, spent: Spent) -> dict[str, int]:
        return spent.model_dump(exclude={"seconds"})

    @classmethod
    def of(cls, design: DesignRecord) -> DecisionRecord:
        """The decision of a Design phase."""
        return cls(**{name: getattr(design, name) for name in cls.model_fields})


class ProbeRecord(Record):
    """One line of `probes.jsonl`: a configuration that the oracle engineer tried out."""

    probe: Count
    configuration: LakeConfiguration
    valid: Count = Field(description="valid answers after the branch")
    count: Annotated[Count, Field(ge=1)] = Field(description="answers after the branch")
    instances: Count = Field(description="boards trained on")
    rollouts: Count = Field(description="answers drawn in all")


# metrics.jsonl, timings.jsonl


def measured(record: type[R], /, **values: Any) -> R:
    """Make a record of what was measured.

    Raises:
        UserError: A value is none that can be measured, such as NaN after training has diverged.
    """
    try:
        return record(**values)
    except ValidationError as error:
        place = ", ".join(f"{name} {values[name]}" for name in ("stage", "step") if name in values)
        raise UserError(f"metrics of {place}: {'; '.join(problems_of(error))}") from error


class WarmStartMetrics(Record):
    """A line of `metrics.jsonl` for ten warm-start steps; a loss without a step is left out."""

    phase: Literal["warm_start"] = "warm_start"
    step: Count
    loss: float | None = Field(None, description="mean nats per token of plans")
    engineer_loss: float | None = Field(None, description="mean nats per token of designs")

    @property
    def stage(self) -> int:
        """The stage that the line belongs to: stage 0 is what stood before the first."""
        return 0

    @model_serializer(mode="wrap")
    def _without_missing_losses(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}


class SizeMetrics(Record):
    """What an update's rollouts on boards of one map size came to."""

    count: Count = Field(description="completions")
    valid: Count
    optimal: Count
    reward: float = Field(description="mean")
    learnability: float = Field(
        ge=0.0, le=0.25, description="mean over prompts of p(1-p), p the valid rate"
    )


class UpdateMetrics(Record):
    """A line of `metrics.jsonl` for one GRPO update."""

    phase: Literal["train"] = "train"
    stage: Count
    update: Count = Field(description="from 1 in each stage")
    step: Count
    reward_mean: float
    valid_rate: Rate
    optimal_rate: Rate
    parsed_rate: Rate
    zero_variance_share: Rate = Field(description="share of prompts whose rewards are all equal")
    completion_length: Bounded = Field(description="mean, tokens")
    entropy: Bounded = Field(description="mean negative log-probability of sampled tokens, nats")
    truncated_share: Rate
    by_size: dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], SizeMetrics]
    clip_share: Rate
    grad_norm: float
    importance_ratio_mean: float
    loss: float
    sampler_gap: float = Field(description="mean |vLLM - trainer| log-probability, nats")
    sync_max_abs_diff: float = Field(description="largest such difference after the sync, nats")


Metrics = Annotated[WarmStartMetrics | UpdateMetrics, Field(discriminator="phase")]


class TimingRecord(Record):
    """A line of `timings.jsonl`: wall-clock seconds by what took them."""

    phase: Literal["warm_start", "train", "validate", "design"]
    stage: Count
    update: Count | None = Field(None, description="of phase train; left out of other lines")
    step: Count
    seconds: dict[str, Seconds]

    @model_serializer(mode="wrap")
    def _without_missing_update(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}


# summary.json


class SummaryRecord(Record):
    """`summary.json`: the end result, which only a finished run has."""

    finished: Literal[True] = True
    name: str
    seed: int
    stages: tuple[ValidationRecord, ...]
    decisions: tuple[DecisionRecord, ...]


# chain.jsonl

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class BoardSource(Record):
    """What a stage's training boards are drawn from."""

    key: str = Field(pattern=r"^[0-9a-f]+$", description="data of the JAX key, hexadecimal")
    configuration: LakeConfiguration
    count: int = Field(ge=1, description="boards asked for")


class ChainLink(Record):
    """One line of `chain.jsonl`: a stage by the hashes of all that decided it and came of it."""

    stage: Count
    previous: Digest = Field(description="hash of the link before; of config.yaml for the first")
    generator: BoardSource | None = Field(description="null for stage 0")
    instances: Digest | None = Field(description="training boards in the order of training")
    validation_set: Digest
    files: dict[str, Digest] = Field(description="by name in the stage's folder")
    metrics: Digest = Field(description="the stage's records of metrics.jsonl")
    checkpoint: Digest = Field(description="weights of the policy that the stage ended with")
    hash: Digest = Field(description="of all the other fields")
