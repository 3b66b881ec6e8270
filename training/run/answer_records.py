"""What the files of a run hold of answers and configurations, of the lake and of any environment.

The lake's records stand as they always did. Those of other environments name groups instead of map
sizes; which of the two a file holds is seen in its keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, SerializeAsAny, WrapValidator

from engineer import Configuration, KnobConfiguration
from engineer.lake import LakeConfiguration
from training.errors import UserError
from training.run.record_model import Count, Rate, Record


def _read_configuration(value: Any, _: object) -> Any:
    """Read the lake's configurations as such, and those of other environments as plain numbers."""
    if isinstance(value, LakeConfiguration | KnobConfiguration):
        return value
    if isinstance(value, Configuration):
        values = value.values()
        return KnobConfiguration(share=next(iter(next(iter(values.values())))), groups=values)
    known = isinstance(value, Mapping) and "groups" in value
    return (KnobConfiguration if known else LakeConfiguration).model_validate(value)


StoredConfiguration = Annotated[SerializeAsAny[Configuration], WrapValidator(_read_configuration)]
"""A configuration in a file: `{"sizes": ...}` of the lake, `{"groups": ...}` of another one."""


def _either(usual: type[BaseModel], other: type[BaseModel], key: str) -> WrapValidator:
    """Read a value as `other` if it has this key, and else as `usual`, whose errors are named."""

    def read(value: Any, _: object) -> Any:
        if isinstance(value, usual | other):
            return value
        known = isinstance(value, Mapping) and key in value
        return (other if known else usual).model_validate(value)

    return WrapValidator(read)


class Rates(Record):
    """Counts and rates over the answers to some boards."""

    left_out_if_none = frozenset({"size"})

    size: int | None = Field(None, description="of the map; None: all sizes")
    valid: Count
    optimal_sum_of_costs: Count
    optimal_makespan: Count
    compared: Count = Field(description="valid answers to boards whose optimum is known")
    csr: Rate = Field(description="cooperative success rate: share of valid answers")
    isr: Rate = Field(description="individual success rate: mean share of agents at their goals")
    mean_sum_of_costs: float | None = Field(description="over valid answers, if any; steps")
    mean_makespan: float | None = Field(description="over valid answers; steps")
    mean_excess_sum_of_costs: float | None = Field(description="over compared ones; steps")
    mean_excess_makespan: float | None = Field(description="over compared ones; steps")
    count: Count = Field(description="answers")
    failures: dict[str, Count] = Field(description="answers by label of their first failure")

    @property
    def group(self) -> str | None:
        """The group as other environments call it; None: all together."""
        return None if self.size is None else str(self.size)

    @property
    def best(self) -> Count:
        """Valid answers than which none is better."""
        return self.optimal_sum_of_costs


class ValidationRecord(Record):
    """`validation.json`: how the answers to the validation set turned out after a stage."""

    stage: Count
    rows: Annotated[tuple[Rates, ...], Field(min_length=1, description="by map size, ascending")]
    total: Rates


class GroupRates(Record):
    """Counts over the answers to some instances of another environment than the lake."""

    left_out_if_none = frozenset({"group"})

    group: str | None = Field(None, description="of the instances; None: all groups")
    valid: Count
    best: Count = Field(description="valid answers than which none is better")
    count: Count = Field(description="answers")
    failures: dict[str, Count] = Field(description="answers by key of their first failure")


class GroupValidation(Record):
    """`validation.json` of another environment than the lake."""

    stage: Count
    group_label: str = Field(description="the word for a group")
    rows: Annotated[tuple[GroupRates, ...], Field(min_length=1, description="groups in order")]
    total: GroupRates


AnyValidation = Annotated[
    ValidationRecord | GroupValidation, _either(ValidationRecord, GroupValidation, "group_label")
]


class EpisodeRecord(Record):
    """One line of `episodes.jsonl`: a validation board, the answer to it and its verdict."""

    id: Count = Field(description="the board's number in the validation set")
    size: int
    grid: tuple[str, ...] = Field(description="rows in the published symbols")
    needs_wait: bool = Field(description="whether every plan of optimal sum of costs waits")
    optimum: int = Field(description="optimal sum of costs")
    text: str = Field(description="the whole answer")
    plan: tuple[tuple[str, ...], ...] | None = Field(description="action names, if it can be read")
    valid: bool
    optimal_sum_of_costs: bool
    optimal_makespan: bool
    failure: str | None = Field(description="label of the first failure; None for a valid plan")
    agent: int | None = Field(description="lowest agent that is involved in it, if any")
    time: int | None = Field(description="step in which it happens, if in any")
    sum_of_costs: int | None = Field(description="the plan's own; None unless valid")
    reason: str | None = Field(description="why the answer can't be read; None if it can")

    @property
    def group(self) -> str:
        """The group of the board."""
        return str(self.size)

    @property
    def best(self) -> bool:
        """Whether the answer is valid, and none is better."""
        return self.optimal_sum_of_costs

    @property
    def lines(self) -> tuple[str, ...]:
        """The board in short lines."""
        return self.grid


class AnswerRecord(Record):
    """One line of `episodes.jsonl` of another environment than the lake."""

    id: Count = Field(description="the instance's number in the validation set")
    group: str
    instance: Any = Field(description="the instance as JSON")
    lines: tuple[str, ...] = Field(description="the instance in short lines, for people")
    slices: dict[str, str] = Field(description="its level of each factor")
    text: str = Field(description="the whole answer")
    reward: float
    valid: bool
    best: bool = Field(description="valid, and no answer is better")
    parsed: bool
    failure: str | None = Field(description="key of the first failure; None for a valid answer")
    time: int | None = Field(description="where it happens, if that is known")
    reason: str | None = Field(description="what the environment says of the answer, if anything")


AnyEpisode = Annotated[
    EpisodeRecord | AnswerRecord, _either(EpisodeRecord, AnswerRecord, "instance")
]


def lake_episodes(episodes: Iterable[EpisodeRecord | AnswerRecord]) -> list[EpisodeRecord]:
    """Return episodes that must be the lake's; a `UserError` says that one is not."""
    found = list(episodes)
    own = [one for one in found if isinstance(one, EpisodeRecord)]
    if len(own) < len(found):
        raise UserError("episodes: got those of another environment, allowed are the lake's")
    return own
