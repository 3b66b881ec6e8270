"""w9-pathfinding (C++): Conflict-Based Search, least sum of costs, one board after the other."""

import os
import time
from importlib.metadata import version
from typing import Any

import numpy as np
from w9_pathfinding.envs import Grid
from w9_pathfinding.mapf import CBS

from benchmarks.lake.protocol import serve

# No plan of a 10x10 board in the benchmark comes near this length.
_MAX_LENGTH = 400


class _Cbs:
    """The boards, the index of the next one, and what has been found so far."""

    def prepare(self, boards: str, max_time: float, core: int | None = None) -> dict[str, Any]:
        """Read the boards of an NPZ file into the lists that the library takes.

        With `core` the process stays on that one of the cores that its parent may use.
        """
        if core is not None:
            allowed = sorted(os.sched_getaffinity(os.getppid()))
            os.sched_setaffinity(0, {allowed[core % len(allowed)]})
        arrays = np.load(boards)
        # The library wants (column, row) and -1 for what can't be entered.
        self._weights = np.where(arrays["holes"], -1, 1).tolist()
        self._starts = [[(c, r) for r, c in board] for board in arrays["starts"].tolist()]
        self._goals = [[(c, r) for r, c in board] for board in arrays["goals"].tolist()]
        self._max_time = max_time
        self._next = 0
        self._costs: dict[int, int | None] = {}
        self._solve(0)
        return {"version": version("w9-pathfinding")}

    def measure(self, seconds: float) -> dict[str, Any]:
        """Solve boards from where the last call stopped, starting over after the last one.

        The time covers only building the library's environment and its search. `units` and
        `seconds` count the solved boards.
        """
        solved, spent, wasted = 0, 0.0, 0.0
        while spent + wasted < seconds:
            index = self._next
            self._next = (index + 1) % len(self._weights)
            start = time.perf_counter()
            paths = self._solve(index)
            passed = time.perf_counter() - start
            self._costs[index] = self._cost(index, paths)
            if paths is None:
                wasted += passed
            else:
                solved += 1
                spent += passed
        return {"units": solved, "seconds": spent}

    def solve_some(self, boards: list[int]) -> dict[str, Any]:
        """Solve some boards; return [index, seconds, cost or null] of each."""
        answers = []
        for index in boards:
            began = time.perf_counter()
            paths = self._solve(index)
            seconds = time.perf_counter() - began
            answers.append([index, seconds, self._cost(index, paths)])
        return {"boards": answers}

    def answers(self) -> dict[str, Any]:
        """Return (index, cost or null where it gave up) of each board seen."""
        return {"costs": sorted(self._costs.items())}

    def _solve(self, index: int) -> Any:
        """Return the paths of one board, None if the search gave up."""
        environment = Grid(self._weights[index], edge_collision=True)
        try:
            paths = CBS(environment).mapf(
                self._starts[index],
                self._goals[index],
                max_length=_MAX_LENGTH,
                max_time=self._max_time,
            )
        except RuntimeError:
            return None
        return paths or None

    def _cost(self, index: int, paths: Any) -> int | None:
        """Sum up the times of last arrival: waiting at the goal at the end costs nothing."""
        if paths is None:
            return None
        total = 0
        for path, goal in zip(paths, self._goals[index], strict=True):
            arrival = len(path) - 1
            while arrival > 0 and tuple(path[arrival - 1]) == goal:
                arrival -= 1
            total += arrival
        return total


if __name__ == "__main__":
    serve(_Cbs())
