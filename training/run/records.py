"""Records of a run's files, one frozen model per file; `directory.py` lists their paths.

A step counts all warm-start steps and all updates since the beginning of the run.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from engineer import DesignAtlas, DesignRecord, StageHistory, Tally
from engineer.evidence import DecisionKind
from jaxlake.statistics.paired import PairedComparison
from training.errors import UserError, format_validation_errors
from training.run.answer_records import EpisodeRecord as EpisodeRecord
from training.run.answer_records import LakeAnswer as LakeAnswer
from training.run.answer_records import Rates as Rates
from training.run.answer_records import StoredConfiguration, ValidationRecord
from training.run.record_model import Bounded, Count, NonNegative, R, Rate, Record, Reward, Seconds
from training.run.record_model import six_digits as six_digits


class DrawReport(Record):
    """The boards drawn for a request; `shortfalls.json` lists unfilled requests."""

    size: int
    hole_ratio: Rate
    wait_ratio: Rate
    num_agents: int
    count: Count  # requested boards
    missing_wait: Count  # missing boards that need a wait
    missing_no_wait: Count  # missing boards that don't need a wait
    candidates: Count  # drawn boards, not counting substitutes

    @property
    def missing(self) -> int:
        """The number of missing boards of both kinds."""
        return self.missing_wait + self.missing_no_wait

    def __str__(self) -> str:
        return (
            f"{self.size}x{self.size}, hole_ratio {self.hole_ratio:g}, wait_ratio "
            f"{self.wait_ratio:g}: of {self.count} boards, {self.missing_wait} that need a wait "
            f"and {self.missing_no_wait} that need none are missing after {self.candidates} "
            "candidates"
        )


class GateRecord(Record):
    """`gate.json`: the comparison of a stage with its initial weights, and any rollback."""

    reference: Count  # stage whose weights this stage started from
    comparison: PairedComparison
    restored: Literal["configuration", "checkpoint"] | None
    configuration: StoredConfiguration  # configuration in force in the Design phase
    notice: str


DecisionRecord = DesignRecord[StoredConfiguration]
"""`decision.json`: the decision of a Design phase."""


class StoredHistory(StageHistory):
    """The stored form of an earlier stage."""

    configuration: StoredConfiguration


class StartRecord(Record):
    """`start.json` of stage 0: the history of the run that this run started from."""

    history: tuple[StoredHistory, ...]
    """Stages of the earlier run, oldest first; the last one is number 0."""
    decision: DecisionKind  # origin of the first stage's configuration
    designed_from: StoredConfiguration | None
    """Configuration in force when the first stage's configuration was designed. None: it was not
    designed, or the earlier configuration is not allowed in this run."""


class DesignUpdateRecord(Record):
    """One line of `design_learning.jsonl`: an update on the policy's designs and their scores."""

    stage: Count  # the stage that just ended
    update: Count
    designs: Count  # answers to the stage's context
    usable: Count  # designs that passed the review
    reward_mean: Reward
    """Mean of the atlas's estimate of 4 p(1-p), which may exceed 1. Unusable designs count as 0."""
    reward_best: Reward
    tokens: Count  # generated tokens
    atlas_rollouts: Count  # answers drawn for the atlas in the first update
    rehearsed_designs: Count  # rule designs imitated in the same update
    rehearsal_loss: float | None  # loss on rule designs, nats per token
    grad_norm: float
    sampler_gap: float  # mean |engine - trainer| log-probability, nats


class AtlasRecord(Record):
    """`atlas.json`: estimates of p(1-p) per cell from the policy's answers to new boards."""

    stage: Count  # the stage that just ended
    weights: Count  # stage of the weights that answered
    atlas: DesignAtlas


def make_record(record: type[R], /, **values: Any) -> R:
    """Return a record of measurements; raise a `UserError` if a value is invalid, such as NaN."""
    try:
        return record(**values)
    except ValidationError as error:
        position = [f"{name} {values[name]}" for name in ("stage", "step") if name in values]
        problems = "; ".join(format_validation_errors(error))
        raise UserError(f"metrics of {', '.join(position)}: {problems}") from error


class WarmStartMetrics(Record):
    """A line of `metrics.jsonl` for ten warm-start steps."""

    phase: Literal["warm_start"] = "warm_start"
    step: Count
    loss: float | None = None  # mean nats per token of plans
    engineer_loss: float | None = None  # mean nats per token of designs

    @property
    def stage(self) -> int:
        """The stage of the line: 0, because the warm start precedes the first stage."""
        return 0


class GroupMetrics(Tally):
    """Metrics of an update's rollouts on the instances of one group."""

    reward: float = Field(allow_inf_nan=False)  # mean reward
    learnability: float = Field(ge=0.0, le=0.25)
    """Mean over prompts of p(1-p), where p is the valid rate."""
    readable: Count  # readable answers
    truncated: Count  # answers that the token limit cut off
    tokens: Bounded  # mean length of an answer, tokens
    prompts: Count  # answered prompts
    without_success: Count  # prompts without a valid answer


class PicksRecord(Record):
    """`picks.json`: the policy's results on the pool of boards that a stage selects from."""

    stage: Count
    answers: Annotated[Count, Field(ge=1)]  # answers per board
    valid: tuple[Count, ...]  # valid answers per board, in the pool's order


class UpdateMetrics(Record):
    """A line of `metrics.jsonl` for one GRPO update."""

    phase: Literal["train"] = "train"
    stage: Count
    update: Count  # from 1 in each stage
    step: Count
    reward_mean: float
    valid_rate: Rate
    optimal_rate: Rate
    parsed_rate: Rate
    zero_variance_share: Rate  # fraction of prompts with equal rewards
    completion_length: Bounded  # mean length, tokens
    entropy: Bounded  # mean negative log-probability of sampled tokens, nats
    truncated_share: Rate
    by_group: dict[str, GroupMetrics]
    clip_share: Rate
    grad_norm: float
    importance_ratio_mean: float
    loss: float
    sampler_gap: float  # mean |engine - trainer| log-probability, nats
    kl: float | None = None
    """Mean KL divergence to the reference, nats per token, if the loss includes it."""
    overlong_penalty: Reward | None = None  # mean length penalty, with reward.overlong_buffer
    resampled_boards: Count | None = None
    """Additional instances sampled as replacements, with grpo.resamples."""
    replaced_boards: Count | None = None
    """Replaced instances with equal rewards, with grpo.resamples."""
    weight_version: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")] | None = None
    """Version (checksum) of the weights that drew the completions."""
    rollout_lag: Count | None = None
    """Updates between the weights that drew the completions and the updated ones, with
    grpo.prefetch."""
    rehearsal_loss: float | None = None  # loss on rehearsed designs, nats per token
    board_valid: tuple[Count, ...] | None = None  # valid answers per board, with engineer.picking


Metrics = Annotated[WarmStartMetrics | UpdateMetrics, Field(discriminator="phase")]


class TimingRecord(Record):
    """A line of `timings.jsonl`: wall-clock seconds by activity.

    The line of an update also contains its throughput and the peak memory so far.
    """

    phase: Literal[
        "warm_start", "pool", "train", "validate", "learn_to_design", "design", "reading"
    ]
    stage: Count
    update: Count | None = None  # phase train only: number of the update
    step: Count
    seconds: dict[str, Seconds]
    generated_tokens: Count | None = None  # tokens generated in the update's rollouts
    tokens_per_second: NonNegative | None = None
    """Generated tokens per second of sampling; None with grpo.prefetch."""
    mfu: NonNegative | None = None  # model FLOP/s utilization of loss and gradient; None if unknown
    device_gib: NonNegative | None = None
    """Peak memory of the trainer per device, GiB; None if unknown."""
    host_gib: NonNegative | None = None  # peak resident memory of the process, GiB


class SummaryRecord(Record):
    """`summary.json`: the results of a finished run."""

    finished: Literal[True] = True
    name: str
    seed: int
    stages: tuple[ValidationRecord, ...]
    decisions: tuple[DecisionRecord, ...]


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class StageDigests(Record):
    """`digests.json`: SHA-256 of a stage's inputs and results."""

    stage: Count
    config: Digest  # digest of the run's config.yaml
    instances: Digest | None  # digest of the training instances in order
    validation_set: Digest
    metrics: Digest  # digest of the stage's records in metrics.jsonl
    files: dict[str, Digest]
    """Digests of the stage's files, such as gate.json and policy/config.json."""
