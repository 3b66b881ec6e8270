"""w9-pathfinding (C++): the time of each board of a file, on one core."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.lake.protocol import CLOCKS, peak_memory, serve
from benchmarks.lake.workers.w9_cbs import Cbs

_GIVEN = 0.9
"""The share of the limit after which giving up is the peer's own."""


class CellSolver:
    """A share of the boards, timed one by one."""

    def prepare(
        self, boards: str, core: int, share: list[int], max_time: float, clock: str
    ) -> dict[str, Any]:
        """Read a file and keep to the boards of one share: every `share[1]`-th from `share[0]` on.

        The process stays on the `core`-th of those that it may use. The `clock` is one of `CLOCKS`.
        """
        allowed = sorted(os.sched_getaffinity(os.getppid()))
        os.sched_setaffinity(0, {allowed[core % len(allowed)]})
        cbs = Cbs()
        prepared = cbs.prepare(boards, max_time)
        first, step = share
        mine = range(first, len(np.load(boards)["holes"]), step)
        self.use(cbs, mine, max_time, CLOCKS[clock])
        return prepared

    def use(self, cbs: Cbs, mine: range, max_time: float, clock: Callable[[], float]) -> None:
        """Take the peer with its boards, those of this share, and the limit by a clock."""
        self._cbs, self._mine, self._max_time, self._clock = cbs, mine, max_time, clock

    def solve_some(self, boards: list[int]) -> dict[str, Any]:
        """Solve those of the boards that are of the share; [index, seconds, cost or null] each."""
        found = []
        for index in boards:
            if index not in self._mine:
                continue
            seconds, paths = self._solve(index)
            found.append([index, seconds, self._cbs.cost(index, paths)])
        return {"boards": found}

    def _solve(self, index: int) -> tuple[float, Any]:
        """Return the seconds that one board took and its paths, None if the search gave up.

        The library's limit is of the wall clock. Where other processes took part of that time, a
        board on which it gives up is asked again, with twice the limit.
        """
        limit = self._max_time
        while True:
            begun = self._clock()
            paths = self._cbs.solve(index, limit)
            seconds = self._clock() - begun
            if paths is not None or seconds > _GIVEN * self._max_time:
                break
            limit *= 2
        if limit == self._max_time:
            return seconds, paths
        # It may have gone on for longer than it was given.
        return min(seconds, self._max_time), paths if seconds <= self._max_time else None

    def finish(self) -> dict[str, Any]:
        """Return the peak of memory."""
        return {"peak_host_bytes": peak_memory()}


if __name__ == "__main__":
    serve(CellSolver())  # type: ignore[arg-type]
