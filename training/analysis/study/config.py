"""The schema of `configs/study_*.yaml`: engineers and seeds to compare, and the base run."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from training.errors import Location, UserError, did_you_mean, format_validation_errors
from training.run.forking import has_same_first_stage
from training.schema import RunConfig, Section, load, read_yaml
from training.schema.loading import require_schema

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**31)]


_ALLOWED_OVERRIDES = ("engineer.", "environment.initial=", "environment.initial.")


class ComparedEngineer(Section):
    """An engineer of a study, with its name and overrides."""

    name: Name
    set: tuple[str, ...] = Field(
        (), description="overrides of engineer.* and environment.initial: engineer.kind=random"
    )
    against: str | None = Field(
        None, description="the engineer to compare with; null: the study's baseline"
    )


class StudyConfig(Section):
    """The configuration of a study and its statistics."""

    name: Name
    base: str = Field(
        description="the YAML of a run, or of a study that this one extends, relative to the "
        "study's file; keys of this study take precedence, and overrides of both apply"
    )
    set: tuple[str, ...] = Field((), description="overrides of the base, the same for every run")
    engineers: Annotated[tuple[ComparedEngineer, ...], Field(min_length=1)]
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    baseline: str = Field(description="the engineer with which all others are compared")
    cluster: dict[str, Any] = Field(
        default={}, description="submitit's parameters for the job of a run, with `--cluster`"
    )

    @model_validator(mode="after")
    def _check_references(self) -> "StudyConfig":
        names = [engineer.name for engineer in self.engineers]
        for field, values in (("engineers", names), ("seeds", list(self.seeds))):
            if len(set(values)) < len(values):
                raise ValueError(f"{field} must be distinct, got {values}")
        references = [("baseline", self.baseline)]
        for number, engineer in enumerate(self.engineers):
            references.append((f"engineers.{number}.against", engineer.against or self.baseline))
        for field, name in references:
            if name not in names:
                allowed = f"{', '.join(names)}{did_you_mean(name, names)}"
                raise ValueError(f"{field} is {name!r}; it must be one of {allowed}")
        for number, engineer in enumerate(self.engineers):
            for override in engineer.set:
                if not override.startswith(_ALLOWED_OVERRIDES):
                    raise ValueError(
                        f"engineers.{number}.set has {override!r}; it must set engineer.*=VALUE "
                        "or environment.initial=VALUE, the only differences between runs of a study"
                    )
        return self

    def get_baseline(self, name: str) -> str | None:
        """Return the engineer that engineer `name` is compared with; None for the baseline."""
        (engineer,) = (engineer for engineer in self.engineers if engineer.name == name)
        return None if name == self.baseline else engineer.against or self.baseline


@dataclass(frozen=True)
class StudyRun:
    """One run of a study: an engineer and a seed."""

    engineer: str
    seed: int

    def __str__(self) -> str:
        return f"{self.engineer}, seed {self.seed}"


@dataclass(frozen=True)
class Study:
    """A study in which the configuration of every run is valid."""

    config: StudyConfig  # from the study's file
    base: Path  # file of the base run
    warm_start: RunConfig  # the base with the study's overrides

    @property
    def has_warm_start(self) -> bool:
        """Whether the runs begin with a shared warm start instead of an existing model."""
        return self.warm_start.warm_start is not None

    @property
    def runs(self) -> list[StudyRun]:
        """All runs. Seeds are the outer loop, so that interrupted studies are balanced."""
        return [
            StudyRun(engineer.name, seed)
            for seed in self.config.seeds
            for engineer in self.config.engineers
        ]

    def overrides(self, run: StudyRun, pretrained: Path) -> tuple[str, ...]:
        """Return the overrides of one run; `pretrained` is the policy of the shared warm start."""
        (engineer,) = (row for row in self.config.engineers if row.name == run.engineer)
        path = json.dumps(str(pretrained), ensure_ascii=False)
        return (
            *self.config.set,
            *engineer.set,
            f"name={self.config.name}.{run.engineer}.{run.seed}",
            f"seed={run.seed}",
            *(("warm_start=null", f"model.pretrained={path}") if self.has_warm_start else ()),
        )

    def make_run_config(self, run: StudyRun, pretrained: Path) -> RunConfig:
        """Return the configuration of one run."""
        return load(self.base, self.overrides(run, pretrained))

    def find_first_stage(self, run: StudyRun, pretrained: Path) -> StudyRun | None:
        """Return the first run with the same first stage as `run`, or None if no other run has it.

        The first stage is the part of a run up to its first design. Runs with the same seed and the
        same initial environment share it. Studies with a single stage don't share first stages.
        """
        if self.warm_start.stages.count == 1:
            return None
        config = self.make_run_config(run, pretrained)
        sharing_runs = [
            candidate
            for candidate in self.runs
            if candidate.seed == run.seed
            and has_same_first_stage(self.make_run_config(candidate, pretrained), config)
        ]
        return sharing_runs[0] if len(sharing_runs) > 1 else None

    def first_stage_overrides(self, run: StudyRun, pretrained: Path) -> tuple[str, ...]:
        """Return the overrides of a shared first stage; `run` is the first of its runs."""
        no_engineer = ("engineer.kind=fixed", "engineer.reading=0", "engineer.learning=null")
        name = f"name={self.config.name}.first_round.{run.engineer}.{run.seed}"
        return (*self.overrides(run, pretrained), *no_engineer, name)


def load_study(
    path: Path, *, seeds: Sequence[int] | None = None, engineers: Sequence[str] | None = None
) -> Study:
    """Load a study and its base run, and validate the configuration of every run.

    Args:
        path: The YAML of the study.
        seeds: Seeds that replace those of the study; None keeps them.
        engineers: Names of the engineers to select; None selects all.

    Raises:
        UserError: The study or the configuration of a run is invalid.
    """
    tree, base = _merge_base_studies(path)
    if seeds is not None:
        tree |= {"seeds": list(seeds)}
    try:
        config = StudyConfig.model_validate(tree)
        if engineers is not None:
            config = _select_engineers(config, engineers)
    except ValidationError as error:
        problems = format_validation_errors(error, _allowed_keys)
        raise UserError("\n".join(f"{path}: {problem}" for problem in problems)) from error

    def load_overridden(field: str, overrides: tuple[str, ...]) -> RunConfig:
        try:
            config = load(base, overrides)
            _ = config.lake  # raises in other environments, because runs are compared by board
            return config
        except UserError as error:
            problem = str(error).replace("--set ", "")  # the overrides come from the study's file
            raise UserError(f"{path}: {field}: {problem}") from error

    load_overridden("base", ())
    study = Study(config, base, load_overridden("set", config.set))
    for number, engineer in enumerate(config.engineers):
        run = StudyRun(engineer.name, config.seeds[0])
        load_overridden(f"engineers.{number}.set", study.overrides(run, Path("policy")))
    return study


def _merge_base_studies(path: Path) -> tuple[dict[Any, Any], Path]:
    """Return a study's keys, including those of base studies, and the path of the run's YAML."""
    tree, base, visited_paths = read_yaml(path), path, {path.resolve()}
    require_schema(StudyConfig.__name__, path, tree)
    while isinstance(name := tree.get("base"), str):
        base = base.parent / name
        if not base.is_file() or "base" not in (base_tree := read_yaml(base)):
            break
        if base.resolve() in visited_paths:
            raise UserError(f"{path}: base must not lead back to this study, got {name}")
        visited_paths.add(base.resolve())
        base_overrides, overrides = base_tree.get("set", []), tree.get("set", [])
        tree = base_tree | tree | {"base": base_tree["base"]}
        if isinstance(base_overrides, list) and isinstance(overrides, list):
            tree["set"] = [*base_overrides, *overrides]
    return tree, base


def _select_engineers(config: StudyConfig, names: Sequence[str]) -> StudyConfig:
    """Select engineers of a study; if its baseline is excluded, the first becomes the baseline."""
    all_names = [engineer.name for engineer in config.engineers]
    if unknown_names := [name for name in names if name not in all_names]:
        allowed = f"{', '.join(all_names)}{did_you_mean(unknown_names[0], all_names)}"
        raise UserError(f"--engineers is {unknown_names[0]!r}; it must be one of {allowed}")
    selected_engineers = [engineer for engineer in config.engineers if engineer.name in names]
    baseline = config.baseline if config.baseline in names else selected_engineers[0].name
    selected_engineers = [
        engineer if engineer.against in names else engineer.model_copy(update={"against": None})
        for engineer in selected_engineers
    ]
    return StudyConfig.model_validate(
        config.model_dump() | {"engineers": selected_engineers, "baseline": baseline}
    )


def _allowed_keys(location: Location) -> str:
    section = ComparedEngineer if location[0] == "engineers" else StudyConfig
    return ", ".join(section.model_fields)
