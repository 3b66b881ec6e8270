"""Run a configuration in a process that kills itself (SIGKILL) in the middle of a phase.

`python tests/training/killed_run.py CONFIG RUN_DIR POINT`, POINT one of `POINTS` or `none`.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

POINTS = ("warm_start", "rollout", "update", "validation", "design")


def _die_at_call(number: int, function: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        result = function(*args, **kwargs)
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrapped


def main(config: str, run_dir: str, point: str) -> None:
    from training import loop
    from training.config import load
    from training.design import phase
    from training.phases import rollout, train, validate, warm_start

    target, name, call = {
        # between two checkpoints, after optimizer steps that are not saved
        "warm_start": (warm_start, "pack", 15),
        # completions are drawn, nothing is learned from them yet; once in the second update
        "rollout": (rollout, "judge", 2),
        # weights are updated and handed to vLLM, the metrics not written
        "update": (train, "sync", 3),
        # answers are verified, nothing is written
        "validation": (validate, "judge", 1),
        # the answer is reviewed, nothing is written
        "design": (phase.engineer, "design", 1),
        "none": (train, "sync", 10**9),
    }[point]
    with mock.patch.object(target, name, _die_at_call(call, getattr(target, name))):
        loop.run(load(Path(config)), Path(run_dir))


if __name__ == "__main__":
    main(*sys.argv[1:])
