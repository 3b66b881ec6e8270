"""Load the data of a run, finished or not, for its report, and list the missing parts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from engineer import Attempt, Configuration
from engineer.scoring.reading import ReadingReport
from jaxlake.statistics.paired import PairedComparison
from training.analysis import METRIC_NAMES
from training.analysis.pages.charts import COLOURS
from training.environments.catalogue import get_domain
from training.errors import UserError
from training.run import records
from training.run.answer_records import compute_validation_rates, sort_groups
from training.run.digests import metrics_digest
from training.run.directory import RunDirectory, StageDirectory
from training.run.rates import VALID
from training.run.typed_files import JsonLinesFile, TextFile
from training.schema import RunConfig
from training.schema.lake_sections import EnvironmentConfig

T = TypeVar("T")

_MAX_LISTED_LINES = 5
"""Maximum number of damaged lines listed per file; the page counts further lines."""


@dataclass(frozen=True)
class Vocabulary:
    """The terms of an environment on the page."""

    label: str  # word for a group, such as "map size"
    instance: str  # word for an instance, such as "board"
    knobs: tuple[str, ...]
    metrics: Mapping[str, str]  # labels of rates, by field
    failures: Mapping[str, int]  # indices of colours, by kind of failure
    best: str  # word for the best possible answers, such as "optimal"


@dataclass(frozen=True)
class ReportedStage:
    """The data of a stage, or of the start (0); missing parts are None or empty."""

    number: int
    configuration: Configuration | None = None
    episodes: tuple[records.EpisodeRecord, ...] = ()
    context: str | None = None
    answers: tuple[Attempt, ...] = ()
    decision: records.DecisionRecord | None = None
    atlas: records.AtlasRecord | None = None  # from the run, or measured after it
    gate: records.GateRecord | None = None  # comparison with the initial weights of the stage
    reading: ReadingReport | None = None  # whether the policy's designs follow swapped facts
    learning: tuple[records.DesignUpdateRecord, ...] = ()  # updates that train the policy to design

    @property
    def change(self) -> PairedComparison | None:
        """The change of the valid rate in the stage."""
        return None if self.gate is None else self.gate.comparison

    @cached_property
    def rates(self) -> dict[str | None, records.Rates]:
        """The counts of the validation by group; the key None counts all groups."""
        if not self.episodes:
            return {}
        rates = compute_validation_rates(self.number, self.episodes)
        rows = [*rates.groups.items(), (None, rates.total)]
        return dict(rows)


@dataclass(frozen=True)
class ReportedRun:
    """The data of a run for the report."""

    config: RunConfig
    config_text: str
    warm_start: tuple[records.WarmStartMetrics, ...]
    updates: tuple[records.UpdateMetrics, ...]  # the last record of each update
    timings: tuple[records.TimingRecord, ...]
    stages: tuple[ReportedStage, ...]  # all planned or started stages
    finished: bool
    missing: tuple[str, ...]  # one sentence per missing or damaged part

    @property
    def validated(self) -> list[ReportedStage]:
        """The stages that were validated."""
        return [stage for stage in self.stages if stage.episodes]

    @property
    def groups(self) -> list[str]:
        """All groups with validation answers, in order."""
        return sort_groups(group for stage in self.stages for group in stage.rates if group)

    @property
    def is_lake(self) -> bool:
        """Whether the run's environment is the lake."""
        return isinstance(self.config.environment, EnvironmentConfig)

    @property
    def has_best_rate(self) -> bool:
        """Whether valid answers differ in quality, as on the lake."""
        rows = (row for stage in self.stages for row in stage.rates.values())
        return self.is_lake or any(row.best != row.valid for row in rows)

    def group_name(self, group: str | None) -> str:
        """Return the name of a group on the page; None means all groups."""
        return "All" if group is None else get_domain(self.config).group_name(group)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The terms of the environment."""
        domain = get_domain(self.config)
        metrics = {"valid": VALID if self.is_lake else "valid"}
        if self.has_best_rate:
            metrics |= {
                label.key: METRIC_NAMES.get(label.key, label.name) for label in domain.scores
            }
        return Vocabulary(
            label=domain.space.group_label,
            instance=domain.instance,
            knobs=domain.space.knobs,
            metrics=metrics,
            failures={label.key: i % len(COLOURS) for i, label in enumerate(domain.failures)},
            best="optimal" if self.is_lake else "best possible",
        )

    @property
    def warm_started(self) -> bool:
        """Whether the run began with a warm start."""
        return self.config.warm_start is not None

    def stage_name(self, number: int) -> str:
        """Return the name of a stage, or of the start of the run (0)."""
        if number == 0:
            return "Warm start" if self.warm_started else "Before"
        return f"Stage {number}"

    def describe_time(self, number: int) -> str:
        """Return the time of a validation, such as "after stage 2"."""
        if number == 0:
            return "after the warm start" if self.warm_started else "before training"
        return f"after stage {number}"


def load_run(path: Path) -> ReportedRun:
    """Load the available data of a run; raise a `UserError` if it has no configuration."""
    directory, reader = RunDirectory(path), _RunReader(path)
    config = directory.config()
    metrics = reader.read_lines(directory.metrics)
    updates = [record for record in metrics if isinstance(record, records.UpdateMetrics)]
    numbers = sorted({*directory.stage_numbers(), *range(config.stages.count + 1)})
    for number in directory.stage_numbers():
        file = directory.stage(number).digests
        digests = reader.read(file.read) if reader.read(file.exists) else None
        if digests is not None and digests.metrics != metrics_digest(metrics, number):
            reader.missing.append(f"metrics.jsonl: the lines of stage {number} were changed")
    finished = reader.read(directory.finished) and reader.read(directory.summary.read) is not None
    if not finished:
        reader.missing.append("The run has not finished.")
    return ReportedRun(
        config=config,
        config_text=TextFile(directory.config_file).read(),
        warm_start=tuple(row for row in metrics if isinstance(row, records.WarmStartMetrics)),
        updates=tuple({(update.stage, update.update): update for update in updates}.values()),
        timings=reader.read_lines(directory.timings),
        stages=tuple(_load_stage(number, directory.stage(number), reader) for number in numbers),
        finished=bool(finished),
        missing=tuple(reader.missing),
    )


def _load_stage(number: int, files: StageDirectory, reader: "_RunReader") -> ReportedStage:
    if not files.path.is_dir():
        reader.missing.append(f"{files.path.relative_to(reader.root)}: does not exist yet")
        return ReportedStage(number)
    episodes = reader.read_lines(files.episodes)
    if number == 0:
        return ReportedStage(number, episodes=episodes)
    has_learning = reader.read(files.design_learning.exists)
    return ReportedStage(
        number=number,
        configuration=reader.read(files.configuration.read),
        episodes=episodes,
        atlas=_load_atlas(number, files, reader),
        context=reader.read(files.context.read),
        answers=reader.read_lines(files.answers),
        decision=reader.read(files.decision.read),
        gate=reader.read(files.gate.read),
        reading=reader.read(files.reading.read) if reader.read(files.reading.exists) else None,
        learning=reader.read_lines(files.design_learning) if has_learning else (),
    )


def _load_atlas(
    number: int, files: StageDirectory, reader: "_RunReader"
) -> records.AtlasRecord | None:
    """Return the atlas of a stage, which is optional."""
    for file in (files.atlas, RunDirectory(reader.root).report_atlas(number)):
        if reader.read(file.exists):
            return reader.read(file.read)
    return None


class _RunReader:
    """Reads the files of one run, and collects messages about missing parts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.missing: list[str] = []

    def read(self, function: Callable[[], T]) -> T | None:
        """Return the result of a function that reads a file, or None if the file is damaged."""
        try:
            return function()
        except UserError as error:
            self.missing.append(self._relative_message(str(error)))
            return None

    def read_lines(self, file: JsonLinesFile[T]) -> tuple[T, ...]:
        """Return the valid lines of a file, and report damaged lines or a missing file."""
        exists = self.read(file.exists)
        if exists is None:
            return ()
        if not exists:
            self.missing.append(f"{file.path.relative_to(self.root)}: is missing")
            return ()
        problems: list[str] = []
        lines = self.read(lambda: file.read_valid(problems))
        for problem in problems[:_MAX_LISTED_LINES]:
            self.missing.append(f"{self._relative_message(problem)}; the line is left out")
        if (num_unlisted := len(problems) - _MAX_LISTED_LINES) > 0:
            path = file.path.relative_to(self.root)
            self.missing.append(f"{path}: {num_unlisted} more lines are left out")
        return tuple(lines or ())

    def _relative_message(self, problem: str) -> str:
        return problem.replace(f"{self.root}/", "")
