"""`jaxlake.solve` on one file of boards after another, timed batch by batch."""

import math
import os
import time
from typing import Any

import jax
import numpy as np

import jaxlake
from benchmarks.lake.protocol import peak_memory, serve
from benchmarks.lake.workers.jax_program import BATCH, Program, build
from benchmarks.lake.workers.lake_solve import read_boards, solve_drawn


def effort(status: np.ndarray, expansions: np.ndarray) -> np.ndarray:
    """Say how hard boards are, int64 (B,): their expansions, and most of all if left UNKNOWN."""
    hardest = np.iinfo(np.int64).max
    return np.where(status == jaxlake.Status.UNKNOWN, hardest, expansions.astype(np.int64))


class _CellSolver:
    """The compiled solver, and batches of one shape."""

    def __init__(self) -> None:
        self._programs: dict[tuple[int, ...], Program] = {}

    def prepare(self, boards: str, cores: int) -> dict[str, Any]:
        """Read a file, compile unless boards of this shape came before, and solve once.

        With the first call the process is put on `cores` of those that it may use.
        """
        if not self._programs:
            os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
        self._boards = batch = read_boards(boards)
        self._shape = (*batch.holes.shape, batch.starts.shape[1])
        compile_seconds = 0.0
        if self._shape not in self._programs:
            built = build(jax.vmap(solve_drawn), (batch,), (BATCH,), cores)
            self._programs[self._shape], compile_seconds = built, built.compile_seconds
        self._compiled = self._programs[self._shape].compiled
        solutions = jax.tree.map(np.asarray, self._compiled(self._placed(batch)))
        self._effort = effort(solutions.status, solutions.expansions)
        return {
            "compile_seconds": compile_seconds,
            "status": solutions.status.tolist(),
            "costs": solutions.sum_of_costs.tolist(),
        }

    def choose(self, all: list[int], shared: list[int], easy_share: float) -> dict[str, Any]:
        """Make a batch of each list of boards, and one of the easiest of those that are shared.

        Boards that took the fewest expansions are the easiest, those left UNKNOWN the hardest.
        """
        by_effort = sorted(shared, key=lambda index: int(self._effort[index]))
        easy = sorted(by_effort[: math.ceil(easy_share * len(shared))])
        self._batches = {"all": all, "shared": shared, "easy": easy}
        return {}

    def solve_batches(self, names: list[str]) -> dict[str, Any]:
        """Solve some of the batches; return the seconds of each, 0 for one without boards."""
        seconds = {}
        for name in names:
            indices, seconds[name] = self._batches[name], 0.0
            if indices:
                by_effort = sorted(indices, key=lambda index: int(self._effort[index]))
                spare = [by_effort[0]] * (len(self._effort) - len(indices))
                rows = np.array(indices + spare)
                chosen = jax.tree.map(lambda leaf, rows=rows: np.asarray(leaf)[rows], self._boards)
                batch = jax.block_until_ready(self._placed(chosen))
                began = time.perf_counter()
                jax.block_until_ready(self._compiled(batch))
                seconds[name] = time.perf_counter() - began
        return seconds

    def _placed(self, batch: jaxlake.Instance) -> jaxlake.Instance:
        """Put a batch where the arguments of the compiled program are."""
        (example,) = self._programs[self._shape].arguments
        return jax.tree.map(lambda leaf, like: jax.device_put(leaf, like.sharding), batch, example)

    def finish(self) -> dict[str, Any]:
        """Return the peak of memory."""
        return {"peak_host_bytes": peak_memory()}


if __name__ == "__main__":
    serve(_CellSolver())  # type: ignore[arg-type]
