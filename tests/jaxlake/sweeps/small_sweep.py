"""A small sweep, run in this process, or in one of several, or in one that kills itself.

`python -m tests.jaxlake.sweeps.small_sweep kill DIRECTORY NUMBER before|after`: SIGKILL before or
after the rename of that number, counted from 1.
`python -m tests.jaxlake.sweeps.small_sweep ADDRESS PROCESSES INDEX DIRECTORY`: one process of
several that share the sweep by `jax.distributed`.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.statistics.summaries import COUNTERS, Summary
from jaxlake.sweeps import SweepSpec, run
from jaxlake.sweeps.program import ChunkOptions, ChunkResult

CHUNKS = 4


def spec(**changes: Any) -> SweepSpec:
    """Describe eleven configurations in four chunks, the last of which has two."""
    fields: dict[str, Any] = {
        "samples": {"count": 11, "size": [3, 4], "hole_ratio": {"from": 0, "to": 0.3}},
        "policies": ["random", "shortest_path"],
        "boards": 4,
        "chunk": 3,
        "horizon": 16,
        "max_steps": 16,
        "max_candidates": 2048,
    }
    return SweepSpec(**(fields | changes))


def counting_program(options: ChunkOptions, devices: Any) -> Callable[..., ChunkResult]:
    """Replace `chunk_program`: each counter tells its configuration, policy and place."""

    def call(key: jax.Array, params: Any, numbers: jax.Array) -> ChunkResult:
        policies, places = np.arange(len(options.policies))[:, None], np.arange(len(COUNTERS))
        low = 1000 * np.asarray(numbers)[:, None, None] + 100 * policies + places
        low = np.where(params.size[..., None] > 0, low, 0)
        words = np.stack([np.zeros_like(low), low], axis=-1).astype(np.uint32)
        return ChunkResult(Summary(jnp.asarray(words)), None)

    return call


def run_and_die(directory: str, number: str, moment: str) -> None:
    """Run the sweep and kill this process before or after one of its renames."""
    rename, calls = os.replace, 0

    def dying(source: Any, target: Any) -> None:
        nonlocal calls
        calls += str(target).endswith((".parquet", ".npz"))  # JAX renames compiled programs
        last = calls == int(number)
        if last and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = dying  # type: ignore[assignment]
    run(spec(tables=True), directory)


def main(first: str, *rest: str) -> None:
    if first == "kill":
        run_and_die(*rest)
        return
    processes, index, directory = rest
    jax.distributed.initialize(first, int(processes), int(index))
    assert run(spec(tables=True), directory)


if __name__ == "__main__":
    main(*sys.argv[1:])
