"""Run a small sweep in this process, in one of several processes, or in one that kills itself.

`python -m tests.jaxlake.sweeps.small_sweep kill DIRECTORY NUMBER before|after` sends itself SIGKILL
before or after rename NUMBER, counted from 1.
`python -m tests.jaxlake.sweeps.small_sweep ADDRESS PROCESSES INDEX DIRECTORY` is one of several
processes that share the sweep through `jax.distributed`.
"""

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.statistics.summaries import COUNTERS, Summary
from jaxlake.sweeps import SweepSpec, run
from jaxlake.sweeps.program import ChunkOptions, ChunkResult
from tests.jaxlake.datasets.small_set import kill_at_rename

NUM_CHUNKS = 4


def make_spec(**changes: Any) -> SweepSpec:
    """Return a specification of eleven configurations in four chunks; the last has two."""
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


def make_counting_program(options: ChunkOptions, devices: Any) -> Callable[..., ChunkResult]:
    """Replace `chunk_program`: a counter's value encodes its configuration, policy and index."""

    def run_chunk(key: jax.Array, params: Any, numbers: jax.Array) -> ChunkResult:
        policies, indices = np.arange(len(options.policies))[:, None], np.arange(len(COUNTERS))
        low_words = 1000 * np.asarray(numbers)[:, None, None] + 100 * policies + indices
        low_words = np.where(params.size[..., None] > 0, low_words, 0)
        words = np.stack([np.zeros_like(low_words), low_words], axis=-1).astype(np.uint32)
        return ChunkResult(Summary(jnp.asarray(words)), None)

    return run_chunk


def run_and_die(directory: str, number: str, moment: str) -> None:
    """Run the sweep and kill this process before or after one of its renames."""
    # JAX also renames files, those of compiled programs.
    kill_at_rename(int(number), moment, (".parquet", ".npz"))
    run(make_spec(tables=True), directory)


def main(command_or_address: str, *arguments: str) -> None:
    if command_or_address == "kill":
        run_and_die(*arguments)
        return
    num_processes, index, directory = arguments
    jax.distributed.initialize(command_or_address, int(num_processes), int(index))
    assert run(make_spec(tables=True), directory)


if __name__ == "__main__":
    main(*sys.argv[1:])
