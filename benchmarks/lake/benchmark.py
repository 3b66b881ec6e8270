"""The whole benchmark: the machine, the rows, the curves, the limits."""

import os
import platform
import subprocess
import time
from argparse import Namespace
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.lake.cases import CPU, GPU, QUICK, Side, cases
from benchmarks.lake.comparison import PREPARE_TIMEOUT, Effort, compare, failure_of, start
from benchmarks.lake.curves import curves, follow, limits
from benchmarks.lake.protocol import ROOT

SCHEMA = 1

_MACHINE = Side("machine", "benchmarks.lake.workers.machine_speed")


class UnknownNameError(ValueError):
    """No row and no curve has such a name."""


def run(options: Namespace, say: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
    """Run the benchmark.

    Args:
        options: those of the command line; `only` holds parts of names, all are run if it is empty.
        say: is called with what is being measured.

    Returns:
        The result as docs/benchmarks.md describes it, and what went wrong on our side. A missing
        peer is nothing wrong.

    Raises:
        UnknownNameError: A name in `options.only` fits nothing.
        WorkerError: JAX doesn't start.
    """
    for part in options.only:
        if not any(part in name for name in names()):
            allowed = ", ".join(names())
            raise UnknownNameError(f"--only: got {part!r}, allowed are parts of {allowed}")
    cores = usable_cores()
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

    def wanted(name: str) -> bool:
        return not options.only or any(part in name for part in options.only)

    results = []
    for case in cases(sizes, on_gpu):
        if wanted(case.name):
            say(case.name)
            results.append(compare(case, effort, shown))
    grown = []
    for curve in curves(options.quick, on_gpu, found["devices"]):
        if wanted(curve.name):
            say(curve.name)
            grown.append(follow(curve, effort, shown))
    wrong = [failure for row in results if (failure := failure_of(row))]
    wrong += [f"{curve['name']}: {curve['error']}" for curve in grown if "error" in curve]
    result = {
        "schema": SCHEMA,
        "quick": options.quick,
        "commit": git_commit(),
        "seconds": effort.seconds,
        "repeats": effort.repeats,
        "took_seconds": time.time() - began,
        "machine": {
            "platform": found["platform"],
            "device_kind": found["device_kind"],
            "devices": found["devices"],
            "cpu": cpu_name(),
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
    """Return the names of all rows and curves."""
    return [c.name for c in cases(CPU, False)] + [c.name for c in curves(False, False, 1)]


def usable_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def git_commit() -> str | None:
    """Return the checkout's commit, with a plus sign if files differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + "+" * bool(git("status", "--porcelain"))
    except (OSError, subprocess.SubprocessError):
        return None


def cpu_name() -> str:
    """Name the processor as the system does."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
