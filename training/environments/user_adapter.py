"""Adapter of user-defined environments to the training loop, with checks of their results."""

import json
import math
import numbers
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from pydantic_core import PydanticSerializationError, ValidationError, to_jsonable_python

from engineer import Configuration, Domain, KnobConfiguration
from jaxlake.runtime.random_keys import threefry_key
from training.environments.protocol import Instances, Judged, Scores
from training.errors import UserError, did_you_mean, format_validation_errors, shorten
from training.run.answer_records import EpisodeRecord
from training.run.record_model import six_digits
from training.run.seeds import seed_from_key
from training.user_environment import Score, UserEnvironment

if TYPE_CHECKING:
    from training.run.records import RequestOutcome
    from training.schema import RunConfig


@dataclass(frozen=True)
class InstanceList(Instances):
    """A batch of a user's instances."""

    values: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def take(self, rows: Sequence[int] | np.ndarray) -> "InstanceList":
        """Return the instances at `rows`, in that order."""
        return InstanceList(tuple(self.values[row] for row in rows))

    def joined(self, other: "InstanceList") -> "InstanceList":
        """Return these instances followed by those of `other`."""
        return InstanceList((*self.values, *other.values))


@dataclass(frozen=True)
class DrawnStage:
    """A stage's training instances and their statistics by group."""

    instances: InstanceList
    statistics: dict[str, dict[str, float]]
    shortfalls: "list[RequestOutcome]" = field(default_factory=list)  # always empty


@dataclass(frozen=True)
class UserEnvironmentAdapter:
    """A `UserEnvironment` behind the interface `TrainingEnvironment`."""

    kind: str  # name in messages
    user: UserEnvironment[Any]
    stage_instances: int  # training instances per stage
    validation: KnobConfiguration  # configuration of the validation set
    count_validation_instances: int
    validation_seed: int

    @cached_property
    def domain(self) -> Domain:
        """Return the user's description, limited to groups that have instances."""
        return self.user.domain(self.stage_instances, self.validation_set().values)

    def validation_set(self) -> InstanceList:
        """Return the validation set, which is drawn once."""
        return self._validation_set

    @cached_property
    def _validation_set(self) -> InstanceList:
        key = threefry_key(self.validation_seed)
        return self._draw(key, self.validation, self.count_validation_instances, None)

    def warm_start_set(
        self, key: jax.Array, count: int, held_out: InstanceList | None
    ) -> InstanceList:
        """Return instances in the proportions of the validation set."""
        return self._draw(key, self.validation, count, held_out)

    def stage_set(
        self, key: jax.Array, configuration: Configuration, count: int, held_out: InstanceList
    ) -> DrawnStage:
        """Return the training instances of a stage."""
        instances = self._draw(key, configuration, count, held_out)
        by_group = defaultdict(list)
        for instance in instances:
            by_group[self.user.group(instance)].append(instance)
        groups = [group for group in self.user.space.groups if by_group[group]]
        statistics = {group: self._statistics(by_group[group]) for group in groups}
        return DrawnStage(instances, {group: row for group, row in statistics.items() if row})

    def _statistics(self, instances: Sequence[Any]) -> dict[str, float]:
        """Return the statistics of one group's instances; raise `UserError` if one is invalid."""
        statistics = self.user.statistics(instances)
        keys = [term.key for term in self.domain.statistics]
        for name, value in statistics.items():
            if name not in keys:
                allowed = ", ".join(keys) or "none"
                raise UserError(
                    f"{self.kind}: statistics: {shorten(name)} is not one of the domain's: "
                    f"{allowed}{did_you_mean(name, keys)}"
                )
            if not (isinstance(value, numbers.Real) and math.isfinite(value)):
                problem = f"got {shorten(value)}; it must be a finite number"
                raise UserError(f"{self.kind}: statistics: {name}: {problem}")
        return {name: six_digits(value) for name, value in statistics.items()}

    def groups(self, instances: InstanceList) -> np.ndarray:
        """Return the group of each instance, str (B,)."""
        return np.array([self.user.group(instance) for instance in instances], dtype=np.str_)

    def prompts(self, instances: InstanceList) -> list[str]:
        """Return the prompts."""
        return [self.user.prompt(instance) for instance in instances]

    def demonstrations(self, instances: InstanceList) -> list[str]:
        """Return answers to imitate."""
        if not self.user.demonstrates:
            raise UserError(f"{self.kind} has no demonstration(instance) to imitate")
        return [self.user.demonstration(instance) for instance in instances]

    def judge(self, instances: InstanceList, texts: Sequence[str]) -> Judged:
        """Score the answers one by one; raise `UserError` for a failure that the domain lacks."""
        answers = [self._score(*pair) for pair in zip(instances, texts, strict=True)]
        scores = Scores(
            rewards=np.array([answer.reward for answer in answers], np.float32),
            valid=np.array([answer.valid for answer in answers], np.bool_),
            best=np.array([_is_best(answer) for answer in answers], np.bool_),
            parsed=np.array([answer.parsed for answer in answers], np.bool_),
            failures=np.array([answer.failure for answer in answers], np.object_),
        )
        return Judged(scores, answers)

    def episodes(
        self, instances: InstanceList, texts: Sequence[str], judged: Judged
    ) -> tuple[EpisodeRecord, ...]:
        """Return one record per instance with its answer and score."""
        scored = zip(instances, texts, judged.details, strict=True)
        return tuple(self._episode(row, *one) for row, one in enumerate(scored))

    def digest_lines(self, instances: InstanceList) -> Iterator[Any]:
        """Yield each instance as JSON, with its group."""
        return ([self.user.group(instance), self._as_json(instance)] for instance in instances)

    def _draw(
        self,
        key: jax.Array,
        configuration: Configuration,
        count: int,
        held_out: InstanceList | None,
    ) -> InstanceList:
        """Return instances that the user's class draws; raise `UserError` if any is invalid."""
        excluded = () if held_out is None else held_out.values
        requested = self.user.space.make(configuration.values())
        batch = InstanceList(tuple(self.user.draw(requested, count, seed_from_key(key), excluded)))
        request = f"{count} instances of {json.dumps(configuration.values())}"
        if len(batch) != count:
            raise UserError(
                f"{self.kind}: draw made {len(batch)} of {request}; it has to make all of them, "
                "and Domain.nearest has to say of which configurations there are so many"
            )
        groups = set(self.user.space.groups)
        if unknown := sorted({self.user.group(instance) for instance in batch} - groups):
            allowed = ", ".join(self.user.space.groups)
            allowed += did_you_mean(unknown[0], groups)
            raise UserError(
                f"{self.kind}: group is {', '.join(unknown)}; it must be one of {allowed}"
            )
        excluded_texts = {json.dumps(self._as_json(one), sort_keys=True) for one in excluded}
        for instance in batch if excluded_texts else ():
            if (text := json.dumps(self._as_json(instance), sort_keys=True)) in excluded_texts:
                raise UserError(
                    f"{self.kind}: draw made {text:.200}, which is held out for validation"
                )
        return batch

    def _score(self, instance: Any, text: str) -> Score:
        """Return the score of one answer; raise `UserError` if it would corrupt training."""
        score = self.user.score(instance, text)
        if not np.isfinite(np.float32(score.reward)):
            raise UserError(
                f"{self.kind}: score of the answer {text!r:.100}: its reward is not finite, "
                f"got {score.reward}"
            )
        if score.failure is not None and score.failure not in self._failures:
            raise UserError(
                f"{self.kind}: score: failure is {score.failure!r}; it must be one of the "
                "domain's: "
                f"{', '.join(self._failures)}{did_you_mean(score.failure, self._failures)}"
            )
        return score

    @cached_property
    def _failures(self) -> tuple[str, ...]:
        return tuple(term.key for term in self.domain.failures)

    def _episode(self, row: int, instance: Any, text: str, score: Score) -> EpisodeRecord:
        best = [term.key for term in self.domain.scores[:1]]
        try:
            return EpisodeRecord(
                id=row,
                group=self.user.group(instance),
                instance=self._as_json(instance),
                lines=self.user.lines(instance),
                slices=self.user.slices(instance),
                text=text,
                reward=six_digits(score.reward),
                valid=score.valid,
                scores=dict.fromkeys(best, _is_best(score)),
                parsed=score.parsed,
                failure=score.failure,
                time=score.failure_position,
                reason=score.detail,
            )
        except ValidationError as error:
            problems = "; ".join(format_validation_errors(error))
            raise UserError(f"{self.kind}: an answer can't be recorded: {problems}") from error

    def _as_json(self, instance: Any) -> Any:
        try:
            return to_jsonable_python(instance)
        except PydanticSerializationError as error:
            raise UserError(
                f"{self.kind}: an instance can't be written as JSON: {error}"
            ) from error


_adapters: dict[tuple[Any, ...], UserEnvironmentAdapter] = {}
"""Cached environments by their configuration; domains and validation sets are used often."""


def get_user_environment(config: "RunConfig") -> UserEnvironmentAdapter:
    """Return the user's environment of a run's configuration."""
    from training.schema.environment_sections import OtherEnvironment, OtherValidation

    section, validation = config.environment, config.validation
    if not isinstance(section, OtherEnvironment) or not isinstance(validation, OtherValidation):
        raise TypeError(f"environment.kind: got {section.kind}, which is not a user's environment")
    settings, own_class = section.settings.model_dump_json(), id(type(section.settings))
    key = (own_class, settings, config.stages.instances, validation.model_dump_json())
    if key not in _adapters:
        if len(_adapters) >= 8:
            _adapters.clear()
        _adapters[key] = UserEnvironmentAdapter(
            kind=section.kind,
            user=section.settings,
            stage_instances=config.stages.instances,
            validation=validation.configuration,
            count_validation_instances=validation.instances,
            validation_seed=validation.seed,
        )
    return _adapters[key]


def _is_best(score: Score) -> bool:
    return score.valid if score.best is None else score.best
