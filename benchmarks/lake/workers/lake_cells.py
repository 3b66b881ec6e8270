"""`jaxlake.solve` on one file of boards after another, timed call by call."""

import os
import time
from typing import Any

import jax
import numpy as np

import jaxlake
from benchmarks.lake.protocol import peak_memory, serve
from benchmarks.lake.workers.jax_program import BATCH, Program, build
from benchmarks.lake.workers.lake_solve import read_boards


class _CellSolver:
    """The compiled solver, and two batches: all boards, and all but the hardest."""

    def __init__(self) -> None:
        self._programs: dict[tuple[int, ...], Program] = {}

    def prepare(self, boards: str, cores: int, easy_share: float) -> dict[str, Any]:
        """Read a file, compile unless boards of this shape came before, and solve once.

        The second batch has only the `easy_share` of the boards that took the fewest expansions,
        those that were left UNKNOWN counting as hardest; copies of an easy board fill it up, so
        that both batches have one shape. With the first call the process is put on `cores` of
        those that it may use.
        """
        if not self._programs:
            os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
        batch = read_boards(boards)
        shape = (*batch.holes.shape, batch.starts.shape[1])
        compile_seconds = 0.0
        if shape not in self._programs:
            built = build(jax.vmap(jaxlake.solve), (batch,), (BATCH,), cores)
            self._programs[shape], compile_seconds = built, built.compile_seconds
        self._compiled = self._programs[shape].compiled
        self._all = self._placed(batch, shape)
        solutions = jax.tree.map(np.asarray, self._compiled(self._all))
        unknown = solutions.status == jaxlake.Status.UNKNOWN
        effort = np.where(unknown, np.iinfo(np.int64).max, solutions.expansions)
        B = len(effort)
        easy = np.argsort(effort, kind="stable")[: int(np.ceil(easy_share * B))]
        easy = np.sort(easy)
        rows = np.concatenate([easy, np.resize(easy[:1], B - len(easy))])
        self._easy = self._placed(jax.tree.map(lambda leaf: np.asarray(leaf)[rows], batch), shape)
        return {
            "compile_seconds": compile_seconds,
            "status": solutions.status.tolist(),
            "costs": solutions.sum_of_costs.tolist(),
        }

    def _placed(self, batch: jaxlake.Instance, shape: tuple[int, ...]) -> jaxlake.Instance:
        """Put a batch where the arguments of the compiled program are."""
        (example,) = self._programs[shape].arguments
        return jax.tree.map(lambda leaf, like: jax.device_put(leaf, like.sharding), batch, example)

    def solve_all(self) -> dict[str, Any]:
        """Solve both batches; return the seconds of each."""
        seconds = []
        for batch in (self._all, self._easy):
            begun = time.perf_counter()
            jax.block_until_ready(self._compiled(batch))
            seconds.append(time.perf_counter() - begun)
        return {"all_seconds": seconds[0], "easy_seconds": seconds[1]}

    def finish(self) -> dict[str, Any]:
        """Return the peak of memory."""
        return {"peak_host_bytes": peak_memory()}


if __name__ == "__main__":
    serve(_CellSolver())  # type: ignore[arg-type]
