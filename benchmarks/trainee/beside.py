"""Measure the trainer's update and TRL's in turns: same model, rollouts and cores."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.lake.protocol import Worker
from benchmarks.trainee.batches import ROLLOUT_SETS, write_rollout_sets

SIDES = {"ours": "benchmarks.trainee.own_update", "TRL": "benchmarks.trainee.trl_update"}
# Each side runs with its faster setting: large pages slow PyTorch down.
_ENVIRONMENT_VARIABLES = {
    "ours": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    "TRL": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"},
}
_TOLERANCE = 1e-3  # maximum relative difference of loss and gradient norm of the first updates


def measure_beside_trl(repeats: int, seconds: float) -> dict[str, Any]:
    """Measure both updates `repeats` times for at least `seconds`, in turns, on both rollouts.

    Raises:
        WorkerError: A side failed.
        ValueError: The first updates differ in loss or gradient norm.
    """
    load_before = os.getloadavg()[0]
    times: dict[str, dict[str, list[float]]] = {
        rollout_set: {side: [] for side in SIDES} for rollout_set in ROLLOUT_SETS
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        config, counts = write_rollout_sets(Path(folder))
        workers = {
            side: stack.enter_context(
                Worker(Path(sys.executable), module, _ENVIRONMENT_VARIABLES[side])
            )
            for side, module in SIDES.items()
        }
        metrics = {side: worker.ask("prepare", folder=folder) for side, worker in workers.items()}
        require_equal_updates(metrics)
        for _ in range(repeats):
            for rollout_set in ROLLOUT_SETS:
                for side, worker in workers.items():
                    timing = worker.ask("measure", rollout_set=rollout_set, seconds=seconds)
                    times[rollout_set][side].append(timing["seconds"] / timing["units"])
    return {
        "unit": "seconds per update",
        "repeats": repeats,
        "cores": len(os.sched_getaffinity(0)),
        "load_before": load_before,
        "load_after": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: version(name) for name in ("jax", "torch", "transformers", "trl")},
        "environment": _ENVIRONMENT_VARIABLES,
        "micro_batch": config.grpo.micro_batch_size,
        **counts,
        "first_updates": metrics,
        "rollouts": {
            rollout_set: {
                **{side: _summarize(values) for side, values in sides.items()},
                "ratio": _summarize([b / a for a, b in zip(*sides.values(), strict=True)]),
            }
            for rollout_set, sides in times.items()
        },
    }


def require_equal_updates(updates: dict[str, dict[str, dict[str, float]]]) -> None:
    """Raise a `ValueError` if the first updates of both sides differ."""
    own_updates, trl_updates = updates.values()
    for rollout_set, metrics in own_updates.items():
        for name, value in metrics.items():
            expected = trl_updates[rollout_set][name]
            if not abs(value - expected) <= _TOLERANCE * abs(expected):
                raise ValueError(f"{rollout_set}: {name} is {value:g} here and {expected:g} in TRL")


def _summarize(values: list[float]) -> dict[str, float]:
    summary = {"median": median(values), "least": min(values), "largest": max(values)}
    return {name: float(f"{value:.4g}") for name, value in summary.items()}
