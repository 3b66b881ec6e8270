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
from training.environments.protocol import Instances, JudgedTexts, Scores
from training.errors import UserError, did_you_mean, format_validation_errors, shorten
from training.run.answer_records import EpisodeRecord
from training.run.record_model import six_digits
from training.run.seeds import seed_from_key
from training.user_environment import Score, UserEnvironment

if TYPE_CHECKING:
    from training.run.records import DrawReport
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

    def concatenate(self, other: "InstanceList") -> "InstanceList":
        """Return these instances followed by `other`'s."""
        return InstanceList((*self.values, *other.values))


@dataclass(frozen=True)
class DrawnStage:
    """A stage's training instances and their statistics by group."""

    instances: InstanceList
    statistics: dict[str, dict[str, float]]
    shortfalls: "list[DrawReport]" = field(default_factory=list)  # always empty


@dataclass(frozen=True)
class UserEnvironmentAdapter:
    """Adapts a `UserEnvironment` to the interface `TrainingEnvironment`."""

    kind: str  # package.module:NAME, for messages
    user: UserEnvironment[Any]
    stage_instances: int  # training instances per stage
    validation: KnobConfiguration  # configuration of the validation set
    validation_count: int
    validation_seed: int

    @cached_property
    def domain(self) -> Domain:
        """The user's description of the environment for the engineer."""
        return self.user.domain(self.stage_instances, self.validation_set().values)

    def validation_set(self) -> InstanceList:
        """Return the validation set, which is drawn once."""
        return self._validation_set

    @cached_property
    def _validation_set(self) -> InstanceList:
        key = threefry_key(self.validation_seed)
        return self._draw(key, self.validation, self.validation_count, None)

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
        members_by_group = defaultdict(list)
        for instance in instances:
            members_by_group[self.user.group(instance)].append(instance)
        groups = [group for group in self.user.space.groups if members_by_group[group]]
        statistics = {group: self._compute_statistics(members_by_group[group]) for group in groups}
        nonempty_statistics = {group: values for group, values in statistics.items() if values}
        return DrawnStage(instances, nonempty_statistics)

    def _compute_statistics(self, instances: Sequence[Any]) -> dict[str, float]:
        """Return the statistics of one group's instances; raise `UserError` if one is invalid."""
        statistics = self.user.statistics(instances)
        keys = [label.key for label in self.domain.statistics]
        for name, value in statistics.items():
            if name not in keys:
                allowed = ", ".join(keys) or "none"
                raise UserError(
                    f"{self.kind}: statistics: {shorten(name)} is not one of the domain's: "
                    f"{allowed}{did_you_mean(name, keys)}"
                )
            if not (isinstance(value, numbers.Real) and math.isfinite(value)):
                problem = f"must be a finite number, got {shorten(value)}"
                raise UserError(f"{self.kind}: statistics: {name} {problem}")
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

    def judge(self, instances: InstanceList, texts: Sequence[str]) -> JudgedTexts:
        """Score the answers one by one; raise `UserError` for a failure that the domain lacks."""
        scores = [self._score(*pair) for pair in zip(instances, texts, strict=True)]
        arrays = Scores(
            rewards=np.array([score.reward for score in scores], np.float32),
            valid=np.array([score.valid for score in scores], np.bool_),
            best=np.array([_is_best(score) for score in scores], np.bool_),
            parsed=np.array([score.parsed for score in scores], np.bool_),
            failures=np.array([score.failure for score in scores], np.object_),
        )
        return JudgedTexts(arrays, scores)

    def episodes(
        self, instances: InstanceList, texts: Sequence[str], judgement: JudgedTexts
    ) -> tuple[EpisodeRecord, ...]:
        """Return one record per instance with its answer and score."""
        answers = zip(instances, texts, judgement.checks, strict=True)
        return tuple(self._make_episode(row, *answer) for row, answer in enumerate(answers))

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
        held_out_values = () if held_out is None else held_out.values
        user_configuration = self.user.space.make(configuration.values())
        values = self.user.draw(user_configuration, count, seed_from_key(key), held_out_values)
        batch = InstanceList(tuple(values))
        request = f"{count} instances of {json.dumps(configuration.values())}"
        if len(batch) != count:
            raise UserError(
                f"{self.kind}: draw returned {len(batch)} of {request}; it must return all of "
                "them, and Domain.nearest must map to configurations that have enough instances"
            )
        groups = set(self.user.space.groups)
        if unknown_groups := sorted({self.user.group(instance) for instance in batch} - groups):
            allowed = ", ".join(self.user.space.groups)
            allowed += did_you_mean(unknown_groups[0], groups)
            raise UserError(
                f"{self.kind}: group must be one of {allowed}, got {', '.join(unknown_groups)}"
            )
        if held_out_values:
            self._require_not_held_out(batch, held_out_values)
        return batch

    def _require_not_held_out(self, batch: InstanceList, held_out: Sequence[Any]) -> None:
        exclusions = {json.dumps(self._as_json(instance), sort_keys=True) for instance in held_out}
        for instance in batch:
            if (text := json.dumps(self._as_json(instance), sort_keys=True)) in exclusions:
                raise UserError(
                    f"{self.kind}: draw returned {text:.200}, which is held out for validation"
                )

    def _score(self, instance: Any, text: str) -> Score:
        """Return the score of one answer; raise `UserError` if it would corrupt training."""
        score = self.user.score(instance, text)
        if not np.isfinite(np.float32(score.reward)):
            raise UserError(
                f"{self.kind}: score of the answer {text!r:.100}: reward must be finite, got "
                f"{score.reward}"
            )
        if score.failure is not None and score.failure not in self._failures:
            raise UserError(
                f"{self.kind}: score: failure must be one of {', '.join(self._failures)}, got "
                f"{score.failure!r}{did_you_mean(score.failure, self._failures)}"
            )
        return score

    @cached_property
    def _failures(self) -> tuple[str, ...]:
        return tuple(label.key for label in self.domain.failures)

    def _make_episode(self, row: int, instance: Any, text: str, score: Score) -> EpisodeRecord:
        score_keys = [label.key for label in self.domain.scores[:1]]
        try:
            return EpisodeRecord(
                id=row,
                group=self.user.group(instance),
                instance=self._as_json(instance),
                lines=self.user.lines(instance),
                slices=self.user.factor_levels(instance),
                text=text,
                reward=six_digits(score.reward),
                valid=score.valid,
                scores=dict.fromkeys(score_keys, _is_best(score)),
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
"""Cached environments by configuration, since drawing validation sets can take long."""


def get_user_environment(config: "RunConfig") -> UserEnvironmentAdapter:
    """Return the user's environment of a run's configuration."""
    from training.schema.environment_sections import UserEnvironmentConfig, UserValidationConfig

    section, validation = config.environment, config.validation
    if not isinstance(section, UserEnvironmentConfig) or not isinstance(
        validation, UserValidationConfig
    ):
        raise TypeError(f"environment.kind must be a user's environment, got {section.kind}")
    settings = section.settings
    key = (
        *(id(type(settings)), settings.model_dump_json()),
        *(config.stages.instances, validation.model_dump_json()),
    )
    if key not in _adapters:
        if len(_adapters) >= 8:
            _adapters.clear()
        _adapters[key] = UserEnvironmentAdapter(
            kind=section.kind,
            user=settings,
            stage_instances=config.stages.instances,
            validation=validation.configuration,
            validation_count=validation.instances,
            validation_seed=validation.seed,
        )
    return _adapters[key]


def _is_best(score: Score) -> bool:
    return score.valid if score.best is None else score.best
