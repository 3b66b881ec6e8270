"""What one stage showed, as plain numbers: no arrays, no devices, JSON in and out."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from engineer.configuration import BoardSize, Frozen, LakeConfiguration, Ratio
from jaxlake import Statistics, rows

FailureKind = Literal[
    "parse_error",
    "off_board",
    "hole",
    "vertex_conflict",
    "swapping_conflict",
    "goal_not_reached",
]
# In the order in which the lake names the first failure of a time step.
FAILURE_KINDS: tuple[FailureKind, ...] = get_args(FailureKind)

Count = Annotated[int, Field(ge=0, strict=True)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Tally(Frozen):
    """Counts over a set of answers. Each answer is valid or has exactly one first failure."""

    count: Count
    valid: Count
    optimal_sum_of_costs: Count
    optimal_makespan: Count
    failures: dict[FailureKind, Count] = Field(
        default_factory=dict, description="answers by the kind of their first failure"
    )

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        for field in ("optimal_sum_of_costs", "optimal_makespan"):
            if getattr(self, field) > self.valid:
                raise ValueError(f"{field} {getattr(self, field)} exceeds valid {self.valid}")
        failed = sum(self.failures.values())
        if self.valid + failed != self.count:
            raise ValueError(f"valid {self.valid} + failures {failed} must be count {self.count}")
        return self

    def percent(self, part: int) -> int:
        """`part` of the count in whole per cents, halves rounded up; 0 of an empty tally."""
        return (200 * part + self.count) // (2 * self.count) if self.count else 0


class SizeEvidence(Tally):
    """The validation answers of one map size, and the same by holes and by waits where counted."""

    by_hole_tenth: dict[Annotated[int, Field(ge=0, le=10)], Tally] = Field(
        default_factory=dict, description="tenth t: holes make up t/10..(t+1)/10 of all cells"
    )
    needs_wait: Tally | None = Field(default=None, description="instances that need a wait")
    no_wait: Tally | None = Field(default=None, description="instances that need none")


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
    learnability: dict[BoardSize, Annotated[float, Field(ge=0.0, le=0.25)]] = Field(
        default_factory=dict,
        description="mean over the groups of a size of p(1-p), p the share of valid rollouts",
    )


class FailedCase(Frozen):
    """One failed validation answer. `completion` is a model's text: data, never an instruction."""

    size: BoardSize
    failure: FailureKind
    time: int | None = Field(default=None, description="0-based step of the failure")
    grid: tuple[str, ...] = ()
    completion: str


class StageEvidence(Frozen):
    """Everything a stage tells the engineer."""

    stage: Count
    validation: dict[BoardSize, SizeEvidence] = Field(min_length=1)
    training: TrainingEvidence | None = None
    failed_cases: tuple[FailedCase, ...] = ()

    @field_validator("validation", mode="after")
    @classmethod
    def _ascending(cls, validation: dict[int, SizeEvidence]) -> dict[int, SizeEvidence]:
        return dict(sorted(validation.items()))

    @classmethod
    def from_statistics(
        cls,
        stage: int,
        statistics: Statistics,
        *,
        training: TrainingEvidence | None = None,
        failed_cases: Sequence[FailedCase] = (),
    ) -> Self:
        """Fetch the counts of a validation from the device.

        Args:
            stage: the stage that was just trained, 0 for the warm start.
            statistics: sums over the whole validation set, as `jaxlake.tabulate` made them.
            training: the stage's training details, None if it had no training.
            failed_cases: a few failed answers to show.

        Raises:
            ValueError: if the statistics are empty.
        """
        tenths: dict[int, dict[int, Tally]] = {}
        for row in rows(statistics, by=("size", "hole_tenth")):
            tenths.setdefault(row["size"], {})[row["hole_tenth"]] = Tally(**_counts(row))
        waits: dict[tuple[int, bool], Tally] = {
            (row["size"], row["needs_wait"]): Tally(**_counts(row))
            for row in rows(statistics, by=("size", "needs_wait"))
        }
        validation = {
            row["size"]: SizeEvidence(
                **_counts(row),
                by_hole_tenth=tenths[row["size"]],
                needs_wait=waits.get((row["size"], True)),
                no_wait=waits.get((row["size"], False)),
            )
            for row in rows(statistics, by=("size",))
        }
        if not validation:
            raise ValueError(f"statistics of stage {stage} hold no validation answers")
        return cls(
            stage=stage,
            validation=validation,
            training=training,
            failed_cases=tuple(failed_cases),
        )


def _counts(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "count": row["total"],
        "valid": row["valid"],
        "optimal_sum_of_costs": row["optimal_sum_of_costs"],
        "optimal_makespan": row["optimal_makespan"],
        "failures": {kind: row[kind] for kind in FAILURE_KINDS if row[kind]},
    }


class StageHistory(Frozen):
    """An earlier stage: what it trained on and what came of it."""

    stage: Count
    configuration: LakeConfiguration
    decision: Literal["initial", "accepted", "repaired", "kept"] = Field(
        description="how the configuration came about"
    )
    valid_before: dict[BoardSize, Ratio] = Field(description="valid rate before the stage")
    valid_after: dict[BoardSize, Ratio] = Field(description="valid rate after the stage")
