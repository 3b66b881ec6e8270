"""What a study leaves on disk, and the claim that a directory belongs to one study.

```
study.yaml               what decides the runs: the resolved base, the engineers, the seeds
machines.jsonl           a line for each machine that it was carried out on
processes.jsonl          a line for each process, however it ended: its run, exit status, seconds
warm_start/              the run that all others start from, left off after its warm start
warm_start.log           what it said
runs/ENGINEER/SEED/      a run (see training.run.directory)
runs/ENGINEER/SEED.log   what it said
compiled/                programs that JAX compiled, shared by the runs
report/                  report.md, results.json and figures
```
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from training.config import dump, read_yaml
from training.errors import UserError
from training.run.directory import JsonLog, make_room, write_text
from training.study.config import Arm, Study
from training.yaml_text import parse_yaml

WARM_START = "warm_start"
"""What `processes.jsonl` calls the process of the warm start; runs are `ENGINEER/SEED`."""


class StudyDirectory:
    """The paths of one study."""

    def __init__(self, path: Path) -> None:
        """Name the directory at `path`, from anywhere; nothing is read or written yet."""
        self.path = path
        self.claim_file = path / "study.yaml"
        self.processes = JsonLog(path / "processes.jsonl")
        self.machines = JsonLog(path / "machines.jsonl")
        self.warm_start = path / WARM_START
        self.policy = (self.warm_start / "stages" / "0" / "policy").absolute()
        self.compiled = (path / "compiled").absolute()
        self.report = path / "report"

    def run(self, arm: Arm) -> Path:
        """The directory of one run."""
        return self.path / "runs" / arm.engineer / str(arm.seed)

    def log(self, run: Path) -> Path:
        """What a run said, beside its directory, which has to be empty when the run begins."""
        return run.with_name(f"{run.name}.log")

    def finished(self, arm: Arm) -> bool:
        """Whether a run is there, whole."""
        return (self.run(arm) / "summary.json").exists()

    @property
    def warm_started(self) -> bool:
        """Whether the policy that all runs start from is there."""
        return self.policy.is_dir() and any(
            record["run"] == WARM_START and record["status"] == 0
            for record in self.processes.read()
        )

    @property
    def seconds_a_run(self) -> float | None:
        """What the runs so far took, the median; None before the first."""
        seconds = sorted(
            record["seconds"]
            for record in self.processes.read()
            if record["run"] != WARM_START and record["status"] == 0
        )
        return seconds[len(seconds) // 2] if seconds else None

    @property
    def seconds_by_process(self) -> dict[str, float]:
        """What each run's and the warm start's processes took, failed and stopped ones included."""
        seconds: dict[str, float] = {}
        for record in self.processes.read():
            seconds[record["run"]] = seconds.get(record["run"], 0.0) + record["seconds"]
        return seconds

    def claim(self, study: Study) -> bool:
        """Make the directory this study's, and say whether it already was.

        What only decides how the numbers are worked out (baseline, resamples, confidence,
        slice_boards) may change from call to call.

        Raises:
            UserError: it belongs to another study (the message names the keys that differ), or
                holds files that are no study's, or its study.yaml can't be read.
        """
        if self.claim_file.exists():
            self.check(study)
            return True
        if not make_room(self.claim_file):
            raise UserError(
                f"{self.path}: is not empty and holds no study; choose another --study-dir"
            )
        write_text(self.claim_file, yaml.safe_dump(_claimed(study), sort_keys=False, width=100))
        return False

    def check(self, study: Study) -> None:
        """See that the directory is this study's.

        Raises:
            UserError: it belongs to another one, or to none, or its study.yaml can't be read.
        """
        if not self.claim_file.exists():
            raise UserError(f"{self.path}: holds no study, there is no study.yaml")
        theirs = _flat(read_yaml(self.claim_file))
        ours = _flat(_claimed(study))
        differences = [
            f"{key} ({theirs.get(key)!r} there, {ours.get(key)!r} here)"
            for key in dict.fromkeys([*theirs, *ours])
            if theirs.get(key) != ours.get(key)
        ]
        if differences:
            raise UserError(
                f"{self.path}: holds another study, which differs in {', '.join(differences)}; "
                "choose another --study-dir, or remove it"
            )

    @contextmanager
    def lock(self) -> Iterator[int]:
        """Hold the directory for this process and those it hands the descriptor to.

        A run outlives a study that was killed, and holds on to it until it ends.

        Raises:
            UserError: another process holds it.
        """
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UserError(
                    f"{self.path}: another process works here, a study or a run that one left "
                    "behind; wait for it or end it"
                ) from error
            yield file.fileno()


def _claimed(study: Study) -> dict[str, Any]:
    return {
        "name": study.config.name,
        "base": parse_yaml(dump(study.run)),
        "engineers": {one.name: list(one.set) for one in study.config.engineers},
        "seeds": list(study.config.seeds),
    }


def _flat(tree: Any, key: str = "") -> dict[str, Any]:
    """A tree of mappings as one, by dotted keys."""
    if not isinstance(tree, dict):
        return {key: tree}
    return {
        inner: value
        for name, below in tree.items()
        for inner, value in _flat(below, f"{key}.{name}" if key else str(name)).items()
    }
