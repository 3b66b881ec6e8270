"""How long a run will take, from what an earlier run of the same settings took; never guessed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.errors import UserError
from training.run.directory import RunDirectory
from training.run.records import TimingRecord
from training.schema import RunConfig

_MOST_RUNS = 100
"""How many runs are looked at, the newest first."""

# Sections of the configuration that decide how long a phase takes; the others need all of them.
_DECIDE = {
    "warm_start": ("model", "prompt", "warm_start"),
    "train": ("model", "prompt", "sampling", "grpo"),
    "validate": ("model", "prompt", "sampling", "validation"),
}
_OF_A_STAGE = ("pool", "learn_to_design", "reading")
"""Phases that a stage may have besides; they count if the earlier run had them."""


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds of a run by phase, as an earlier one took them."""

    source: Path  # the run that was measured
    updates: int  # that were measured there
    seconds: dict[str, float]  # of the whole run, by phase
    unknown: tuple[str, ...]  # phases that the run will have and that were not measured

    @property
    def total(self) -> float:
        """Seconds of all phases that are known."""
        return sum(self.seconds.values())


def estimated_time(config: RunConfig, run_dir: Path, within: Path) -> TimeEstimate | None:
    """Estimate the time from the newest run that has updates of the same settings.

    It is looked for in `run_dir` itself, then in the folder `within`, also among the runs of its
    studies. None: there is no such run.
    """
    for folder in _runs_near(run_dir, within):
        directory = RunDirectory(folder)
        try:
            other, lines = directory.config(), directory.timings.read()
        except (UserError, OSError):
            continue
        estimate = _scaled(config, other, lines, folder)
        if estimate is not None:
            return estimate
    return None


def _runs_near(run_dir: Path, within: Path) -> Iterator[Path]:
    """Yield folders of runs: this one, then the others, the newest first."""
    folders = ("*", "*/warm_start", "*/runs/*/*", "*/first_rounds/*/*")
    found = {path for one in folders for path in within.glob(f"{one}/timings.jsonl")}
    ordered = sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
    own = run_dir / "timings.jsonl"
    yield from (path.parent for path in [own, *ordered[:_MOST_RUNS]] if path.is_file())


def _scaled(
    config: RunConfig, other: RunConfig, lines: list[TimingRecord], source: Path
) -> TimeEstimate | None:
    """Scale what a run took to the stages, updates and steps of another configuration."""
    mine, theirs = _sections(config), _sections(other)

    def same(phase: str) -> bool:
        names = _DECIDE.get(phase, tuple(mine))
        return all(mine[name] == theirs[name] for name in names)

    by_phase: dict[str, list[float]] = {}
    for line in lines:
        by_phase.setdefault(line.phase, []).append(sum(line.seconds.values()))
    if not by_phase.get("train") or not same("train"):
        return None
    stages = config.stages.count
    wanted = {"train": stages * config.updates_per_stage, "validate": stages + 1}
    wanted |= {phase: stages for phase in _OF_A_STAGE if phase in by_phase}
    wanted |= {"design": stages}
    seconds, unknown = dict[str, float](), list[str]()
    if config.warm_start is not None:
        done = max((line.step for line in lines if line.phase == "warm_start"), default=0)
        if done and same("warm_start"):
            each = sum(by_phase["warm_start"]) / done
            seconds["warm_start"] = each * config.warm_start.steps
        else:
            unknown.append("warm_start")
    for phase, count in wanted.items():
        measured = by_phase.get(phase)
        if measured and same(phase):
            seconds[phase] = sum(measured) / len(measured) * count
        else:
            unknown.append(phase)
    return TimeEstimate(source, len(by_phase["train"]), seconds, tuple(unknown))


def _sections(config: RunConfig) -> dict[str, Any]:
    """Return what decides how long a phase takes; a warm start's length is counted apart."""
    plain: dict[str, Any] = config.model_dump(mode="json")
    for name in ("name", "seed", "stages", "tracking"):
        plain.pop(name, None)
    if plain.get("warm_start"):
        plain["warm_start"].pop("steps", None)
    plain.get("environment", {}).pop("initial", None)  # it differs from stage to stage anyway
    return plain
