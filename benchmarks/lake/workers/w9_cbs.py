"""Worker that solves one board after the other by w9-pathfinding's CBS (C++)."""

import os
import time
from importlib.metadata import version
from typing import Any

import numpy as np
from w9_pathfinding.envs import Grid
from w9_pathfinding.mapf import CBS

from benchmarks.lake.protocol import serve

# Plans of 10x10 boards in the benchmark are much shorter.
_MAX_LENGTH = 400


class _Cbs:
    """The boards, the index of the next board, and the costs found so far."""

    def prepare(self, path: str, max_seconds: float, core: int | None = None) -> dict[str, Any]:
        """Read the boards of an NPZ file into the library's format.

        A search gives up after `max_seconds`. `core` pins the process to one of the parent's cores.
        """
        if core is not None:
            cores = sorted(os.sched_getaffinity(os.getppid()))
            os.sched_setaffinity(0, {cores[core % len(cores)]})
        arrays = np.load(path)
        # The library expects (column, row), and the weight -1 for blocked cells.
        self._weights = np.where(arrays["holes"], -1, 1).tolist()
        self._starts = [[(c, r) for r, c in board] for board in arrays["starts"].tolist()]
        self._goals = [[(c, r) for r, c in board] for board in arrays["goals"].tolist()]
        self._max_seconds = max_seconds
        self._next = 0
        self._costs: dict[int, int | None] = {}
        self._solve(0)
        return {"version": version("w9-pathfinding")}

    def measure(self, seconds: float) -> dict[str, Any]:
        """Solve boards from where the last call stopped, cyclically.

        `units` is the number of solved boards, and `seconds` the time spent on them: on building
        the library's environment and on its search.
        """
        num_solved, solved_seconds, failed_seconds = 0, 0.0, 0.0
        while solved_seconds + failed_seconds < seconds:
            index = self._next
            self._next = (index + 1) % len(self._weights)
            start = time.perf_counter()
            paths = self._solve(index)
            search_seconds = time.perf_counter() - start
            self._costs[index] = self._cost(index, paths)
            if paths is None:
                failed_seconds += search_seconds
            else:
                num_solved += 1
                solved_seconds += search_seconds
        return {"units": num_solved, "seconds": solved_seconds}

    def solve_some(self, indices: list[int]) -> dict[str, Any]:
        """Solve these boards; return [index, seconds, cost or null] of each."""
        results = []
        for index in indices:
            start = time.perf_counter()
            paths = self._solve(index)
            seconds = time.perf_counter() - start
            results.append([index, seconds, self._cost(index, paths)])
        return {"boards": results}

    def costs(self) -> dict[str, Any]:
        """Return (index, cost) of each board seen; the cost is null if CBS gave up."""
        return {"costs": sorted(self._costs.items())}

    def _solve(self, index: int) -> Any:
        """Return the paths of one board, or None if the search gave up."""
        environment = Grid(self._weights[index], edge_collision=True)
        try:
            paths = CBS(environment).mapf(
                self._starts[index],
                self._goals[index],
                max_length=_MAX_LENGTH,
                max_time=self._max_seconds,
            )
        except RuntimeError:
            return None
        return paths or None

    def _cost(self, index: int, paths: Any) -> int | None:
        """Return the sum of the last arrival times; final waits at a goal cost nothing."""
        if paths is None:
            return None
        cost = 0
        for path, goal in zip(paths, self._goals[index], strict=True):
            arrival = len(path) - 1
            while arrival > 0 and tuple(path[arrival - 1]) == goal:
                arrival -= 1
            cost += arrival
        return cost


if __name__ == "__main__":
    serve(_Cbs())
