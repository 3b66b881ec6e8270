"""Run a configuration in a process that kills itself (SIGKILL) in the middle of a phase.

`python tests/training/killed_run.py CONFIG RUN_DIR POINT KEY=VALUE ...`, POINT one of `POINTS` or
`none`.
"""

import os
import pkgutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

POINTS = {
    # between two checkpoints, after optimizer steps that are not saved
    "warm_start": ("training.learner.imitation.pad_sequences", 15),
    # completions are drawn, nothing is learned from them yet; once in the second update
    "rollout": ("training.rollout.rollout.judge", 2),
    # weights are updated and handed to vLLM, the metrics not written
    "update": ("training.phases.train.check_rollout", 3),
    # answers are verified, nothing is written
    "validation": ("training.phases.validate.judge", 1),
    # the answer is reviewed, nothing is written
    "design": ("training.phases.design._ask", 1),
}


@contextmanager
def dying_at(point: str, die: Callable[[], None]) -> Iterator[None]:
    """Call `die` at a point of the run; `none` is never reached."""
    if point == "none":
        yield
        return
    name, number = POINTS[point]
    function = pkgutil.resolve_name(name)
    calls = 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        result = function(*args, **kwargs)
        calls += 1
        if calls == number:
            die()
        return result

    with mock.patch(name, counted):
        yield


def main(config: str, run_dir: str, point: str, *overrides: str) -> None:
    from training import loop
    from training.schema import load

    with dying_at(point, lambda: os.kill(os.getpid(), signal.SIGKILL)):
        loop.run(load(Path(config), overrides), Path(run_dir))


if __name__ == "__main__":
    main(*sys.argv[1:])
