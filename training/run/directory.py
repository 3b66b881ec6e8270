"""A run's directory: plain files anyone can read, each with one model and one reader and writer.

```
config.yaml              the resolved configuration (training/schema)
metrics.jsonl            one line per logged warm-start step and per GRPO update
timings.jsonl            seconds spent, apart, so that metrics of equal runs are equal files
chain.jsonl              one link per stage: the hashes of all of this (training/audit)
checkpoints/             Orbax: weights, optimizer state, progress
stages/S/                what stage S left; 0 is what stood before the first (`StageDirectory`)
summary.json             the end result
report.html
```
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from engineer import StageEvidence
from engineer.lake import LakeConfiguration
from jaxlake.files import make_room
from training.errors import UserError
from training.run.files import JsonFile, JsonLinesFile, JsonLog, TextFile
from training.run.records import (
    AttemptRecord,
    DecisionRecord,
    EpisodeRecord,
    GateRecord,
    Metrics,
    ProbeRecord,
    ShortfallRecord,
    SummaryRecord,
    TimingRecord,
    ValidationRecord,
)
from training.schema import RunConfig, dump, load, read_yaml
from training.schema.yaml_text import parse_yaml

_VALIDATION = TypeAdapter(ValidationRecord)
_EPISODE = TypeAdapter(EpisodeRecord)
_EVIDENCE = TypeAdapter(StageEvidence)
_CONFIGURATION = TypeAdapter(LakeConfiguration)
_STATISTICS = TypeAdapter(dict[str, dict[str, float]])
_SHORTFALLS = TypeAdapter(list[ShortfallRecord])
_GATE = TypeAdapter(GateRecord)
_ATTEMPT = TypeAdapter(AttemptRecord)
_DECISION = TypeAdapter(DecisionRecord)
_PROBE = TypeAdapter(ProbeRecord)
_METRICS: TypeAdapter[Metrics] = TypeAdapter(Metrics)
_TIMING = TypeAdapter(TimingRecord)
_SUMMARY = TypeAdapter(SummaryRecord)


class StageDirectory:
    """The files of one stage, in the order in which the loop writes them.

    Attributes:
        configuration: What the stage trained on; stage 0 has none.
        configuration_yaml: The same for people.
        shortfalls: Boards that could not be made for it.
        environment: What its boards are like, by map size and statistic.
        episodes: The answers to the validation set.
        failures: Those of them that are not valid.
        evidence: What the engineer reads of them.
        validation: Rates by map size; written last in the Validate phase.
        gate: Whether the stage was taken back.
        policy: Folder of the weights that it ended with, in the Hugging Face layout.
        context: The engineer's first prompt.
        answers: All of its prompts and answers.
        probes: Configurations that an oracle engineer tried out.
        notes: What the engineer wrote down for the next stage (its Summary block).
        notes_prompt: What it was asked for them.
        decision: The configuration of the next stage; written last in the Design phase.
    """

    def __init__(self, path: Path) -> None:
        """Name the files; nothing is read or written yet."""
        self.path = path
        self.configuration = JsonFile(path / "configuration.json", _CONFIGURATION)
        self.configuration_yaml = TextFile(path / "configuration.yaml")
        self.shortfalls = JsonFile(path / "shortfalls.json", _SHORTFALLS)
        self.environment = JsonFile(path / "environment.json", _STATISTICS)
        self.episodes = JsonLinesFile(path / "episodes.jsonl", _EPISODE)
        self.failures = JsonLinesFile(path / "failures.jsonl", _EPISODE)
        self.evidence = JsonFile(path / "evidence.json", _EVIDENCE)
        self.validation = JsonFile(path / "validation.json", _VALIDATION)
        self.gate = JsonFile(path / "gate.json", _GATE)
        self.policy = path / "policy"
        self.context = TextFile(path / "context.txt")
        self.answers = JsonLinesFile(path / "answers.jsonl", _ATTEMPT)
        self.probes = JsonLinesFile(path / "probes.jsonl", _PROBE)
        self.notes = TextFile(path / "summary.txt")
        self.notes_prompt = TextFile(path / "summary_prompt.txt")
        self.decision = JsonFile(path / "decision.json", _DECISION)


class RunDirectory:
    """The files of one run.

    Attributes:
        path: The directory.
        config_file: The resolved configuration.
        metrics: What training measured.
        timings: What took how long.
        chain_file: The hashes of every stage.
        checkpoints: Folder of the Orbax checkpoints.
        initial_policy: Folder of a policy that was made from scratch.
        engine: Folder of the weights that vLLM starts from.
        summary: The end result; it is there once the run is finished.
        report: The page.
    """

    def __init__(self, path: Path) -> None:
        """Name the files of the run in `path`; nothing is read or written yet."""
        self.path = path
        self.config_file = path / "config.yaml"
        self.metrics = JsonLog(path / "metrics.jsonl", _METRICS)
        self.timings = JsonLog(path / "timings.jsonl", _TIMING)
        self.chain_file = path / "chain.jsonl"
        self.checkpoints = path / "checkpoints"
        self.initial_policy = path / "initial"
        self.engine = path / "engine"
        self.summary = JsonFile(path / "summary.json", _SUMMARY)
        self.report = path / "report.html"

    def stage(self, number: int) -> StageDirectory:
        """The files of a stage; 0 is what stood before the first."""
        return StageDirectory(self.path / "stages" / str(number))

    def stage_numbers(self) -> list[int]:
        """The stages that have a folder, ascending."""
        folders = (self.path / "stages").glob("*")
        return sorted(int(folder.name) for folder in folders if folder.name.isdecimal())

    def finished(self) -> bool:
        """Whether the run says that it has ended."""
        return self.summary.exists()

    def config(self) -> RunConfig:
        """The run's configuration.

        Raises:
            UserError: There is no run in the directory, or its configuration can't be read.
        """
        if not self.config_file.exists():
            raise UserError(f"{self.path}: is not a run's directory, it has no config.yaml")
        return load(self.config_file)

    def rewind(self, step: int) -> None:
        """Drop what is logged beyond `step`: a resumed run writes it again.

        Raises:
            UserError: A log can't be read or written.
        """
        if self.metrics.exists():
            self.metrics.write([one for one in self.metrics.read() if one.step <= step])
        if self.timings.exists():
            self.timings.write([one for one in self.timings.read() if one.step <= step])

    def claim(self, config: RunConfig) -> bool:
        """Make the directory this configuration's, and say whether it already was.

        Raises:
            UserError: It belongs to another configuration (the message names the keys that
                differ), holds files of something else, or its config.yaml can't be read.
        """
        if self.config_file.exists():
            theirs = read_yaml(self.config_file)
            ours = parse_yaml(dump(config))
            if theirs != ours:
                raise UserError(
                    f"{self.path}: holds a run of another configuration, which differs in "
                    f"{', '.join(differing_keys(theirs, ours))}; choose another --run-dir, "
                    "or remove it"
                )
            return True
        if not make_room(self.config_file):
            raise UserError(f"{self.path}: is not empty and holds no run; choose another --run-dir")
        TextFile(self.config_file).write(dump(config))
        return False


def differing_keys(theirs: Any, ours: Any, key: str = "") -> list[str]:
    """The dotted keys in which two trees of mappings differ, each with both values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [
            difference
            for name in dict.fromkeys([*theirs, *ours])
            for difference in differing_keys(
                theirs.get(name), ours.get(name), f"{key}.{name}" if key else str(name)
            )
        ]
    return [] if theirs == ours else [f"{key} ({theirs!r} there, {ours!r} here)"]
