"""What the files of a run hold: one frozen model per file. `directory.py` says where each stands.

A step counts all steps of the warm start and all updates since the beginning.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from engineer import DesignAtlas, DesignRecord, StageHistory, Tally
from engineer.evidence import HowDecided
from jaxlake.statistics.paired import PairedComparison
from training.errors import UserError, problems_of
from training.run.answer_records import EpisodeRecord as EpisodeRecord
from training.run.answer_records import LakeAnswer as LakeAnswer
from training.run.answer_records import Rates as Rates
from training.run.answer_records import StoredConfiguration, ValidationRecord
from training.run.record_model import Bounded, Count, NonNegative, R, Rate, Record, Reward, Seconds
from training.run.record_model import six_digits as six_digits


class RequestOutcome(Record):
    """What became of a request for boards; an entry of `shortfalls.json` if some are missing."""

    size: int
    hole_ratio: Rate
    wait_ratio: Rate
    num_agents: int
    count: Count = Field(description="boards asked for")
    missing_wait: Count = Field(description="boards missing that need a wait")
    missing_no_wait: Count = Field(description="boards missing that need none")
    candidates: Count = Field(description="boards drawn in the attempt, before any substitutes")

    @property
    def missing(self) -> int:
        """Boards of either kind that could not be made."""
        return self.missing_wait + self.missing_no_wait

    def __str__(self) -> str:
        return (
            f"{self.size}x{self.size}, hole_ratio {self.hole_ratio:g}, wait_ratio "
            f"{self.wait_ratio:g}: {self.missing_wait} boards that need a wait and "
            f"{self.missing_no_wait} that need none are missing of {self.count} after "
            f"{self.candidates} candidates"
        )


class GateRecord(Record):
    """`gate.json`: whether a stage fell behind the one it started from, and what was restored."""

    reference: Count = Field(description="the stage whose weights this one started from")
    comparison: PairedComparison
    restored: Literal["configuration", "checkpoint"] | None
    configuration: StoredConfiguration = Field(description="in force when the engineer is asked")
    notice: str


DecisionRecord = DesignRecord[StoredConfiguration]
"""`decision.json`: what a Design phase decided."""


class StoredHistory(StageHistory):
    """An earlier stage as a file holds it."""

    configuration: StoredConfiguration


class StartRecord(Record):
    """`start.json` of stage 0: what the engineer knows of the run that this one started from."""

    history: tuple[StoredHistory, ...] = Field(
        description="its stages, oldest first; the last one has number 0"
    )
    decision: HowDecided = Field(description="how the configuration of the first stage came about")
    designed_from: StoredConfiguration | None = Field(
        description="in force when that configuration was designed; None: it was given, or what "
        "was in force is not allowed in this run"
    )


class DesignUpdateRecord(Record):
    """One line of `design_learning.jsonl`: an update on the policy's designs and their scores."""

    stage: Count = Field(description="the stage that had just ended")
    update: Count
    designs: Count = Field(description="answers to the stage's context")
    usable: Count = Field(description="of which the review let so many pass")
    reward_mean: Reward = Field(
        description="4 p(1-p) as the atlas estimates it, which may exceed 1; 0 if it is not usable"
    )
    reward_best: Reward
    tokens: Count = Field(description="generated")
    atlas_rollouts: Count = Field(description="answers drawn for the atlas, by the first update")
    rehearsed_designs: Count = Field(description="designs of the rule imitated beside them")
    rehearsal_loss: float | None = Field(description="of these, nats per token")
    grad_norm: float
    sampler_gap: float = Field(description="mean |engine - trainer| log-probability, nats")


class AtlasRecord(Record):
    """`atlas.json`: what the policy's answers to fresh boards say of p(1-p), cell by cell."""

    stage: Count = Field(description="the stage that had just ended")
    weights: Count = Field(description="the stage whose weights answered, those in force after it")
    atlas: DesignAtlas


def measured(record: type[R], /, **values: Any) -> R:
    """Make a record of what was measured; a `UserError` names what can't be, such as NaN."""
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


class GroupMetrics(Tally):
    """What an update's rollouts on the instances of one group came to."""

    reward: float = Field(allow_inf_nan=False, description="mean")
    learnability: float = Field(
        ge=0.0, le=0.25, description="mean over prompts of p(1-p), p the valid rate"
    )
    readable: Count = Field(description="answers that can be read")
    truncated: Count = Field(description="answers that the token limit cut off")
    tokens: Bounded = Field(description="mean length of an answer")
    prompts: Count = Field(description="prompts that were answered")
    without_success: Count = Field(description="of which no answer was valid")


class PicksRecord(Record):
    """`picks.json`: what the policy made of the pool from which a stage's boards were picked."""

    stage: Count
    answers: Annotated[Count, Field(ge=1)] = Field(description="to each board")
    valid: tuple[Count, ...] = Field(description="valid answers to each board, in their order")


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
    by_group: dict[str, GroupMetrics]
    clip_share: Rate
    grad_norm: float
    importance_ratio_mean: float
    loss: float
    sampler_gap: float = Field(description="mean |engine - trainer| log-probability, nats")
    kl: float | None = Field(
        None,
        description="mean KL divergence to the reference, nats per token, if it is in the loss",
    )
    overlong_penalty: Reward | None = Field(
        None, description="mean of what was taken from rewards for length, if it is"
    )
    resampled_boards: Count | None = Field(
        None, description="instances answered beyond those given, to replace some, if that is done"
    )
    replaced_boards: Count | None = Field(
        None, description="instances with equal rewards that were replaced by such"
    )
    weight_version: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")] | None = Field(
        None, description="of the weights that the engine drew the completions with, by their bits"
    )
    rollout_lag: Count | None = Field(
        None, description="updates between those weights and the ones updated, with grpo.prefetch"
    )
    rehearsal_loss: float | None = Field(None, description="nats per token of rehearsed designs")
    board_valid: tuple[Count, ...] | None = Field(
        None, description="valid answers to each board, if boards are picked by them"
    )


Metrics = Annotated[WarmStartMetrics | UpdateMetrics, Field(discriminator="phase")]


class TimingRecord(Record):
    """A line of `timings.jsonl`: wall-clock seconds by what took them.

    An update's line also says how fast it was, and the most memory up to its end.
    """

    phase: Literal[
        "warm_start", "pool", "train", "validate", "learn_to_design", "design", "reading"
    ]
    stage: Count
    update: Count | None = Field(None, description="of phase train; left out of other lines")
    step: Count
    seconds: dict[str, Seconds]
    generated_tokens: Count | None = Field(None, description="in its rollouts")
    tokens_per_second: NonNegative | None = Field(
        None, description="of these, while they were drawn; not known with grpo.prefetch"
    )
    mfu: NonNegative | None = Field(
        None, description="share of the devices' peak that loss and gradient took, if it is known"
    )
    device_gib: NonNegative | None = Field(
        None, description="most memory that the trainer held on a device, GiB, if it says so"
    )
    host_gib: NonNegative | None = Field(None, description="the same of the process's own memory")


class SummaryRecord(Record):
    """`summary.json`: the end result, which only a finished run has."""

    finished: Literal[True] = True
    name: str
    seed: int
    stages: tuple[ValidationRecord, ...]
    decisions: tuple[DecisionRecord, ...]


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class StageDigests(Record):
    """`digests.json`: SHA-256 of what decided a stage and of what came of it."""

    stage: Count
    config: Digest = Field(description="of the run's config.yaml")
    instances: Digest | None = Field(description="training instances in the order of training")
    validation_set: Digest
    metrics: Digest = Field(description="the stage's records of metrics.jsonl")
    files: dict[str, Digest] = Field(
        description="by name in the stage's folder, such as gate.json and policy/config.json"
    )
