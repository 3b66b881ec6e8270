"""Where the time of a run's training goes: rollout, update, and everything else.

A short run of a configuration, with the trainer's own sampler. What `timings.jsonl` names is read
from there; what it doesn't name is the rest of the wall time of the Train phases.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.lake.protocol import ROOT, peak_memory
from training import loop
from training.run.directory import RunDirectory
from training.schema import load

WORK = ("rollout", "update")
_SHORT = ["sampling.engine=jax", "stages.count=1", "engineer.kind=rule", "engineer.reading=0"]


def measure_steps(path: Path, overrides: list[str]) -> dict[str, Any]:
    """Run one stage of a configuration; return seconds of its Train phase by what took them.

    The first update is left out, because it compiles.
    """
    config = load(path, [*_SHORT, *overrides])
    spans: list[float] = []
    train = loop.train

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        result = train(*args, **kwargs)
        spans.append(time.perf_counter() - began)
        return result

    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(loop, "train", timed):
        loop.run(config, Path(folder) / "run")
        records = RunDirectory(Path(folder) / "run").timings.read()
    phases: dict[str, float] = {}
    for record in records:
        phases[record.phase] = phases.get(record.phase, 0.0) + sum(record.seconds.values())
    updates = [one for one in records if one.phase == "train"]
    first = sum(updates[0].seconds.values())
    by_name: dict[str, float] = {}
    for record in updates[1:]:
        for name, seconds in record.seconds.items():
            by_name[name] = by_name.get(name, 0.0) + seconds
    # Boards are drawn once, and named in the first update's record.
    by_name["boards"] = updates[0].seconds.get("boards", 0.0)
    wall = sum(spans) - first + by_name["boards"]
    by_name["rest"] = wall - sum(by_name.values())
    return {
        "configuration": path.resolve().relative_to(ROOT).as_posix(),
        "overrides": [*_SHORT, *overrides],
        "updates": len(updates) - 1,
        "wall_seconds": round(wall, 3),
        "seconds": {name: round(seconds, 4) for name, seconds in by_name.items()},
        "beside_work": 1 - sum(by_name[name] for name in WORK) / wall,
        "first_update_seconds": round(first, 2),
        "phases": {name: round(seconds, 2) for name, seconds in phases.items()},
        "peak_bytes": peak_memory(),
        "load_before": load_before,
        "load_after": os.getloadavg()[0],
    }


def table_of_steps(result: dict[str, Any]) -> str:
    """Write the shares as Markdown, the largest first."""
    wall = result["wall_seconds"]
    lines = ["| what | seconds | share |", "| --- | --- | --- |"]
    for name, seconds in sorted(result["seconds"].items(), key=lambda item: -item[1]):
        lines.append(f"| {name} | {seconds:.3f} | {seconds / wall:.1%} |")
    lines.append(f"| all but {' and '.join(WORK)} | | {result['beside_work']:.1%} |")
    return "\n".join(lines)
