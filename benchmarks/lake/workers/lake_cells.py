"""Worker that runs `jaxlake.solve` on selected boards of several files."""

import os
import time
from typing import Any

import jax
import numpy as np

import jaxlake
from benchmarks.lake.protocol import serve
from benchmarks.lake.workers.jax_program import BATCH, Program, compile_program
from benchmarks.lake.workers.lake_solve import read_boards, solve_random_board


def compute_effort(status: np.ndarray, expansions: np.ndarray) -> np.ndarray:
    """Return the expansions of each board, int64 (B,); UNKNOWN counts as the maximum."""
    max_effort = np.iinfo(np.int64).max
    return np.where(status == jaxlake.Status.UNKNOWN, max_effort, expansions.astype(np.int64))


class _CellSolver:
    """The compiled solver and a batch of its shape."""

    def __init__(self) -> None:
        self._programs: dict[tuple[int, ...], Program] = {}

    def prepare(self, path: str, cores: int) -> dict[str, Any]:
        """Read a file, compile the solver if the boards' shape is new, and solve once.

        The first call pins the process to `cores` of its available cores.
        """
        if not self._programs:
            os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
        self._boards = batch = read_boards(path)
        self._shape = (*batch.holes.shape, batch.starts.shape[1])
        compile_seconds = 0.0
        if self._shape not in self._programs:
            program = compile_program(jax.vmap(solve_random_board), (batch,), (BATCH,), cores)
            self._programs[self._shape], compile_seconds = program, program.compile_seconds
        self._compiled = self._programs[self._shape].compiled
        solutions = jax.tree.map(np.asarray, self._compiled(self._place(batch)))
        self._effort = compute_effort(solutions.status, solutions.expansions)
        return {
            "compile_seconds": compile_seconds,
            "status": solutions.status.tolist(),
            "costs": solutions.sum_of_costs.tolist(),
        }

    def choose(self, indices: list[int]) -> dict[str, Any]:
        """Select boards as the next batch; copies of the easiest one pad it."""
        easiest_index = min(indices, key=lambda index: int(self._effort[index])) if indices else 0
        rows = np.array(indices + [easiest_index] * (len(self._effort) - len(indices)))
        batch = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], self._boards)
        self._batch = jax.block_until_ready(self._place(batch))
        return {}

    def solve_chosen(self) -> dict[str, Any]:
        """Solve the selected batch; return the seconds."""
        start = time.perf_counter()
        jax.block_until_ready(self._compiled(self._batch))
        return {"seconds": time.perf_counter() - start}

    def _place(self, batch: jaxlake.Instance) -> jaxlake.Instance:
        """Transfer a batch to the devices of the compiled program."""
        (example,) = self._programs[self._shape].arguments
        return jax.tree.map(lambda leaf, like: jax.device_put(leaf, like.sharding), batch, example)


if __name__ == "__main__":
    serve(_CellSolver())
