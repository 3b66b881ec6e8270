"""w9-pathfinding (C++): the time of each board of a file, on one core."""

import os
import time
from typing import Any

import numpy as np

from benchmarks.lake.protocol import peak_memory, serve
from benchmarks.lake.workers.w9_cbs import Cbs


class _CellSolver:
    """A share of the boards, timed one by one."""

    def prepare(self, boards: str, core: int, share: list[int], max_time: float) -> dict[str, Any]:
        """Read a file and keep to the boards of one share: every `share[1]`-th from `share[0]` on.

        The process stays on the `core`-th of those that it may use.
        """
        allowed = sorted(os.sched_getaffinity(os.getppid()))
        os.sched_setaffinity(0, {allowed[core % len(allowed)]})
        self._cbs = Cbs()
        prepared = self._cbs.prepare(boards, max_time)
        first, step = share
        self._share = range(first, len(np.load(boards)["holes"]), step)
        return prepared

    def solve_some(self, boards: list[int]) -> dict[str, Any]:
        """Solve those of the boards that are of the share; [index, seconds, cost or null] each."""
        answers = []
        for index in boards:
            if index in self._share:
                began = time.perf_counter()
                paths = self._cbs.solve(index)
                seconds = time.perf_counter() - began
                answers.append([index, seconds, self._cbs.cost(index, paths)])
        return {"boards": answers}

    def finish(self) -> dict[str, Any]:
        """Return the peak of memory."""
        return {"peak_host_bytes": peak_memory()}


if __name__ == "__main__":
    serve(_CellSolver())  # type: ignore[arg-type]
