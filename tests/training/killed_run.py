"""Run a configuration in a process that kills itself (SIGKILL) in the middle of a phase.

`python tests/training/killed_run.py CONFIG RUN_DIR POINT KEY=VALUE ...`, POINT one of `POINTS` or
`none`.
"""

import os
import pkgutil
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

POINTS = {
    # between two checkpoints, after optimizer steps that are not saved
    "warm_start": ("training.learner.imitation.pad_sequences", 15),
    # completions are drawn, nothing is learned from them yet; once in the second update
    "rollout": ("training.rollout.rollout.overlong_penalty", 2),
    # weights are updated and handed to vLLM, the metrics not written
    "update": ("training.phases.train.check_rollout", 3),
    # answers are verified, nothing is written
    "validation": ("training.phases.validate.judge_answers", 1),
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


class KilledError(BaseException):
    """Ends a run in this process; nothing catches it."""


def stop() -> NoReturn:
    raise KilledError


NOT_COMPARED = ("timings.jsonl", "report.html", "checkpoints", "engine")


def files_of(run_dir: Path) -> dict[str, bytes]:
    """Everything that a run leaves and that must be equal for equal runs."""
    paths = {str(path.relative_to(run_dir)): path for path in run_dir.rglob("*") if path.is_file()}
    return {
        name: re.sub(rb'"seconds": [0-9.e-]+', b"", path.read_bytes())
        for name, path in paths.items()
        if not name.startswith(NOT_COMPARED)
    }


def assert_same_files(run_dir: Path, other: Path) -> None:
    """Compare all files of two runs, and name those that differ."""
    expected, found = files_of(run_dir), files_of(other)
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []


def main(config: str, run_dir: str, point: str, *overrides: str) -> None:
    from training import loop
    from training.schema import load

    with dying_at(point, lambda: os.kill(os.getpid(), signal.SIGKILL)):
        loop.run(load(Path(config), overrides), Path(run_dir))


if __name__ == "__main__":
    main(*sys.argv[1:])
