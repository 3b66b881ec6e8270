"""The schema of `configs/study_*.yaml`: which engineers and seeds are compared, on which run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from training.config import Positive, RunConfig, Section, load, read_yaml, shown
from training.errors import UserError

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**31)]

ENGINEER_KEYS = "engineer."
"""What an engineer's overrides begin with: all else is the same for every run of a study."""


class Contender(Section):
    """An engineer that is compared: its name in the study, and what sets it apart."""

    name: Name
    set: tuple[str, ...] = Field((), description="overrides such as engineer.kind=random")


class StudyConfig(Section):
    """Everything that decides a study, and how its numbers are worked out."""

    name: Name
    base: str = Field(description="the YAML of a run, relative to the study's file")
    set: tuple[str, ...] = Field((), description="overrides of it, for all runs alike")
    engineers: Annotated[tuple[Contender, ...], Field(min_length=1)]
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    baseline: str = Field(description="the engineer that the others are compared with")
    resamples: Annotated[int, Field(ge=100, le=1_000_000)] = Field(
        10_000, description="of the bootstrap; all their means are held in memory, hence a most"
    )
    confidence: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(
        0.95, description="of each interval, taken for itself"
    )
    slice_boards: Positive = Field(20, description="boards a cell needs to count as worst slice")

    @model_validator(mode="after")
    def _consistent(self) -> StudyConfig:
        names = [engineer.name for engineer in self.engineers]
        for field, values in (("engineers", names), ("seeds", list(self.seeds))):
            if len(set(values)) < len(values):
                raise ValueError(f"{field}: got {values}, each may stand once")
        if self.baseline not in names:
            raise ValueError(f"baseline: got {self.baseline!r}, allowed are {', '.join(names)}")
        for number, engineer in enumerate(self.engineers):
            for override in engineer.set:
                if not override.startswith(ENGINEER_KEYS):
                    raise ValueError(
                        f"engineers.{number}.set: got {override!r}, allowed are "
                        f"{ENGINEER_KEYS}*=VALUE: the runs of a study differ in nothing else"
                    )
        return self


@dataclass(frozen=True)
class Arm:
    """One run of a study."""

    engineer: str
    seed: int

    def __str__(self) -> str:
        return f"{self.engineer}, seed {self.seed}"


@dataclass(frozen=True)
class Study:
    """A study that can be carried out: each of its runs' configurations is valid."""

    config: StudyConfig
    base: Path
    run: RunConfig
    """The base with the study's overrides: the configuration of the warm start."""

    @property
    def arms(self) -> list[Arm]:
        """All runs, seeds outermost, so that a study that is stopped early is balanced."""
        return [
            Arm(engineer.name, seed)
            for seed in self.config.seeds
            for engineer in self.config.engineers
        ]

    def overrides(self, arm: Arm, pretrained: Path) -> tuple[str, ...]:
        """What is set in the base for one run that starts from a warm-started policy."""
        contender = next(one for one in self.config.engineers if one.name == arm.engineer)
        return (
            *self.config.set,
            *contender.set,
            f"name={self.config.name}.{arm.engineer}.{arm.seed}",
            f"seed={arm.seed}",
            "warm_start=null",
            f"model.pretrained={json.dumps(str(pretrained), ensure_ascii=False)}",
        )

    def run_of(self, arm: Arm, pretrained: Path) -> RunConfig:
        """The configuration of one run."""
        return load(self.base, self.overrides(arm, pretrained))


def load_study(path: Path) -> Study:
    """Read a study's YAML and the run that it is based on.

    Raises:
        UserError: one of the files can't be read, or a key or value is not allowed; the message
            names file, key and value.
    """
    config = _read(path)
    base = path.parent / config.base
    run = _loaded(f"{path}: base", base)
    if config.set:
        run = _loaded(f"{path}: set", base, config.set)
    study = Study(config, base, run)
    for number, engineer in enumerate(config.engineers):
        arm = Arm(engineer.name, config.seeds[0])
        overrides = study.overrides(arm, Path("stages/0/policy"))
        _loaded(f"{path}: engineers.{number}.set", base, overrides)
    return study


def _read(path: Path) -> StudyConfig:
    try:
        return StudyConfig.model_validate(read_yaml(path))
    except ValidationError as error:
        raise UserError("\n".join(_problems(path, error))) from error


def _loaded(where: str, base: Path, overrides: Sequence[str] = ()) -> RunConfig:
    try:
        return load(base, overrides)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def _problems(path: Path, error: ValidationError) -> Iterable[str]:
    """One line for each problem: file, dotted key, what is wrong, the value that came."""
    for problem in error.errors():
        key = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            section: Any = Contender if problem["loc"][0] == "engineers" else StudyConfig
            yield f"{path}: {key}: unknown key; allowed are {', '.join(section.model_fields)}"
        elif problem["type"] == "missing":
            yield f"{path}: {key}: required, but missing"
        elif problem["type"] == "value_error":
            yield f"{path}: {problem['msg'].removeprefix('Value error, ')}"
        else:
            yield f"{path}: {key}: got {shown(problem['input'])}: {problem['msg']}"
