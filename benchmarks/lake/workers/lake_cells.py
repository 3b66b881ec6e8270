"""`jaxlake.solve` on some boards of one file after another."""

import os
import time
from typing import Any

import jax
import numpy as np

import jaxlake
from benchmarks.lake.protocol import serve
from benchmarks.lake.workers.jax_program import BATCH, Program, build
from benchmarks.lake.workers.lake_solve import read_boards, solve_drawn


def effort(status: np.ndarray, expansions: np.ndarray) -> np.ndarray:
    """Say how hard boards are, int64 (B,): their expansions, and most of all if left UNKNOWN."""
    hardest = np.iinfo(np.int64).max
    return np.where(status == jaxlake.Status.UNKNOWN, hardest, expansions.astype(np.int64))


class _CellSolver:
    """The compiled solver, and a batch of its shape."""

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
            program = build(jax.vmap(solve_drawn), (batch,), (BATCH,), cores)
            self._programs[self._shape], compile_seconds = program, program.compile_seconds
        self._compiled = self._programs[self._shape].compiled
        solutions = jax.tree.map(np.asarray, self._compiled(self._placed(batch)))
        self._effort = effort(solutions.status, solutions.expansions)
        return {
            "compile_seconds": compile_seconds,
            "status": solutions.status.tolist(),
            "costs": solutions.sum_of_costs.tolist(),
        }

    def choose(self, boards: list[int]) -> dict[str, Any]:
        """Put a batch of some boards in place; copies of the easiest one fill it up."""
        spare = min(boards, key=lambda index: int(self._effort[index])) if boards else 0
        rows = np.array(boards + [spare] * (len(self._effort) - len(boards)))
        chosen = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], self._boards)
        self._batch = jax.block_until_ready(self._placed(chosen))
        return {}

    def solve_chosen(self) -> dict[str, Any]:
        """Solve the batch; return the seconds."""
        began = time.perf_counter()
        jax.block_until_ready(self._compiled(self._batch))
        return {"seconds": time.perf_counter() - began}

    def _placed(self, batch: jaxlake.Instance) -> jaxlake.Instance:
        """Put a batch where the arguments of the compiled program are."""
        (example,) = self._programs[self._shape].arguments
        return jax.tree.map(lambda leaf, like: jax.device_put(leaf, like.sharding), batch, example)


if __name__ == "__main__":
    serve(_CellSolver())
