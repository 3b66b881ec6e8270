"""Records of configurations and of answers to the validation set.

Only the answers are stored. Rates and the engineer's evidence are computed from them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import Field, SerializeAsAny, WrapValidator, model_validator

from engineer import (
    AnswerStatistics,
    Configuration,
    GroupEvidence,
    KnobConfiguration,
    StageEvidence,
    Tally,
)
from engineer.lake import LakeConfiguration
from training.run.record_model import Count, Rate, Record


def _read_configuration(value: Any, _: object) -> Any:
    """Read a lake configuration, or the plain numbers of another environment's configuration."""
    if isinstance(value, LakeConfiguration | KnobConfiguration):
        return value
    if isinstance(value, Configuration):
        values = value.values()
        return KnobConfiguration(share=next(iter(next(iter(values.values())))), groups=values)
    has_groups = isinstance(value, Mapping) and "groups" in value
    return (KnobConfiguration if has_groups else LakeConfiguration).model_validate(value)


StoredConfiguration = Annotated[SerializeAsAny[Configuration], WrapValidator(_read_configuration)]
"""A stored configuration: `{"sizes": ...}` for the lake, `{"groups": ...}` for others."""


class LakeAnswer(Record):
    """Facts about the board and the plan of an answer, for the lake only."""

    needs_wait: bool  # whether every plan with the optimal sum of costs waits
    optimum: int  # optimal sum of costs of the board
    plan: tuple[tuple[str, ...], ...] | None  # action names per agent; None if unreadable
    arrived: Rate  # fraction of the agents that end at their goals
    agent: int | None  # lowest agent involved in the failure, if any
    sum_of_costs: int | None  # sum of costs of the plan; None unless valid


class EpisodeRecord(Record):
    """One line of `episodes.jsonl`: a validation instance, its answer and the score."""

    id: Count  # the instance's number in the validation set
    group: str
    lines: tuple[str, ...]  # the instance in short lines, such as a grid
    instance: Any = None  # the instance as JSON; None if `lines` describe it completely
    slices: dict[str, str]  # the instance's level of each factor
    text: str  # the whole answer
    tokens: Count = 0  # length of the answer
    truncated: bool = False  # whether the token limit cut the answer off
    reward: float
    valid: bool
    scores: dict[str, bool]
    """Whether the answer is valid and best in each score, by key of `Domain.scores`."""
    parsed: bool
    failure: str | None  # key of the first failure; None for a valid answer
    time: int | None  # time step of the failure, if known
    reason: str | None  # explanation, such as a parse error
    lake: LakeAnswer | None = None

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.valid == (self.failure is not None):
            raise ValueError(f"failure {self.failure!r} contradicts valid {self.valid}")
        if any(self.scores.values()) and not self.valid:
            raise ValueError("an invalid answer can't reach a score")
        return self

    @property
    def best(self) -> bool:
        """Whether the answer is valid and no answer is better."""
        return next(iter(self.scores.values()), self.valid)

    def succeeds(self, metric: str) -> bool:
        """Return whether the answer counts for a rate: "valid" or the key of a score."""
        return self.valid if metric == "valid" else self.scores.get(metric, False)


class Rates(Tally):
    """Counts over the answers to the instances of a group."""

    isr: Rate | None = None
    """Lake only: individual success rate, the mean fraction of agents at goals."""

    @property
    def best(self) -> int:
        """The number of valid answers for which no answer is better."""
        return next(iter(self.scores.values()), self.valid)

    def successes(self, metric: str) -> int:
        """Return a count by its name: "valid", "best" or the key of a score."""
        counts = {"valid": self.valid, "best": self.best, **self.scores}
        return counts.get(metric, 0)


class ValidationRecord(Record):
    """The rates on the validation set after a stage."""

    stage: Count
    groups: dict[str, Rates] = Field(min_length=1)
    total: Rates


def sort_groups(groups: Iterable[str]) -> list[str]:
    """Return the distinct groups: in ascending order if all are numbers, else as they appear."""
    names = list(dict.fromkeys(groups))
    return sorted(names, key=int) if all(map(str.isdecimal, names)) else names


def compute_validation_rates(stage: int, episodes: Sequence[EpisodeRecord]) -> ValidationRecord:
    """Return the rates of one or more validation answers of a stage, by group and in total."""
    members = _group_episodes(episodes)
    return ValidationRecord(
        stage=stage,
        groups={group: compute_rates(members[group]) for group in sort_groups(members)},
        total=compute_rates(episodes),
    )


def make_stage_evidence(stage: int, episodes: Sequence[EpisodeRecord]) -> StageEvidence:
    """Return the engineer's evidence from a stage's validation answers."""
    members = _group_episodes(episodes)
    return StageEvidence(
        stage=stage,
        validation={group: _make_group_evidence(members[group]) for group in sort_groups(members)},
    )


def _group_episodes(episodes: Iterable[EpisodeRecord]) -> dict[str, list[EpisodeRecord]]:
    members: dict[str, list[EpisodeRecord]] = defaultdict(list)
    for episode in episodes:
        members[episode.group].append(episode)
    return members


def _tally_fields(episodes: Sequence[EpisodeRecord]) -> dict[str, Any]:
    failures = Counter(episode.failure for episode in episodes if episode.failure is not None)
    scores = Counter[str]()
    for episode in episodes:
        for key, success in episode.scores.items():
            scores[key] += success
    return {
        "count": len(episodes),
        "valid": sum(episode.valid for episode in episodes),
        "scores": dict(scores),
        "failures": dict(sorted(failures.items())),
    }


def compute_rates(episodes: Sequence[EpisodeRecord]) -> Rates:
    """Return the rates of one or more answers."""
    shares = [episode.lake.arrived for episode in episodes if episode.lake is not None]
    return Rates(**_tally_fields(episodes), isr=sum(shares) / len(shares) if shares else None)


def _make_group_evidence(episodes: Sequence[EpisodeRecord]) -> GroupEvidence:
    members: dict[str, dict[str, list[EpisodeRecord]]] = defaultdict(lambda: defaultdict(list))
    for episode in episodes:
        for factor, level in episode.slices.items():
            members[factor][level].append(episode)
    slices = {
        factor: {level: Tally(**_tally_fields(rows)) for level, rows in sorted(by_level.items())}
        for factor, by_level in sorted(members.items())
    }
    count = len(episodes)
    statistics = AnswerStatistics(
        readable=sum(episode.parsed for episode in episodes) / count,
        truncated=sum(episode.truncated for episode in episodes) / count,
        tokens=sum(episode.tokens for episode in episodes) / count,
    )
    return GroupEvidence(**_tally_fields(episodes), slices=slices, answer_statistics=statistics)
