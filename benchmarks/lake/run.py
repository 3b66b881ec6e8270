"""The whole benchmark: the machine, the rows, the curves, the limits."""

import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.lake.cases import CPU, GPU, QUICK, Case, Side, cases
from benchmarks.lake.comparison import PREPARE_TIMEOUT, Effort, compare, start, went_wrong
from benchmarks.lake.growth import Curve, curves, follow, limits
from benchmarks.lake.protocol import ROOT

SCHEMA = 1

_MACHINE = Side("machine", "benchmarks.lake.ours.machine")


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    quick: bool = False
    only: Sequence[str] = ()  # a row or curve is run if its name contains one of these; all if none
    seconds: float | None = None  # of one measurement of one side
    repeats: int | None = None
    devices: int | None = None


class UnknownNameError(ValueError):
    """No row and no curve is called like that."""


def run(options: Options, say: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
    """Run it.

    Args:
        options: see `Options`.
        say: told what is being done.

    Returns:
        The result as docs/benchmarks.md describes it, and what went wrong on our side (a missing
        peer is no such thing).

    Raises:
        UnknownNameError: a name in `options.only` fits nothing.
        WorkerError: JAX doesn't start.
    """
    for part in options.only:
        if not any(part in name for name in names()):
            allowed = ", ".join(names())
            raise UnknownNameError(f"--only: got {part!r}, allowed are parts of {allowed}")
    cores = _cores()
    # Batches are powers of two and divide among as many devices.
    shown = 1 << (cores.bit_length() - 1)
    effort = Effort(
        seconds=options.seconds or (0.2 if options.quick else 3.0),
        repeats=options.repeats or (2 if options.quick else 5),
        devices=options.devices,
    )
    began, load = time.time(), os.getloadavg()[0]
    say("the machine")
    with start(_MACHINE, shown) as worker:
        found = worker.ask("prepare", PREPARE_TIMEOUT, devices=effort.devices)
        speeds = worker.ask("measure", PREPARE_TIMEOUT, seconds=effort.seconds)
    on_gpu = found["platform"] != "cpu"
    sizes = QUICK if options.quick else GPU if on_gpu else CPU
    rows, lines = _chosen(
        cases(sizes, on_gpu), curves(options.quick, on_gpu, found["devices"]), options.only
    )

    results = []
    for case in rows:
        say(case.name)
        results.append(compare(case, effort, shown))
    grown = []
    for curve in lines:
        say(curve.name)
        grown.append(follow(curve, effort, shown))
    wrong = [told for row in results if (told := went_wrong(row))]
    wrong += [f"{curve['name']}: {curve['error']}" for curve in grown if "error" in curve]
    result = {
        "schema": SCHEMA,
        "quick": options.quick,
        "commit": _commit(),
        "seconds": effort.seconds,
        "repeats": effort.repeats,
        "took_seconds": time.time() - began,
        "machine": {
            "platform": found["platform"],
            "device_kind": found["device_kind"],
            "devices": found["devices"],
            "cpu": _cpu(),
            "cores": cores,
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "system": f"{platform.system()} {platform.machine()}",
            "load_before": load,
            **speeds,
        },
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("jaxlake", "jax", "jaxlib", "numpy")},
        },
        "rows": results,
        "curves": grown,
        "limits": limits(grown, speeds),
    }
    return result, wrong


def names() -> list[str]:
    """Names of all rows and curves."""
    return [c.name for c in cases(CPU, False)] + [c.name for c in curves(False, False, 1)]


def _chosen(
    rows: list[Case], lines: list[Curve], only: Sequence[str]
) -> tuple[list[Case], list[Curve]]:
    def wanted(name: str) -> bool:
        return not only or any(part in name for part in only)

    return [c for c in rows if wanted(c.name)], [c for c in lines if wanted(c.name)]


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _commit() -> str | None:
    """The checkout's commit, with a plus sign if files differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + "+" * bool(git("status", "--porcelain"))
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
