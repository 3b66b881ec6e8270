"""Make a small board set, in this process or in one that kills itself at a rename.

`python tests/jaxlake/datasets/small_set.py DIRECTORY NUMBER before|after` sends itself SIGKILL
before or after rename NUMBER, counted from 1.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import jax

from jaxlake.datasets import make_set
from jaxlake.generator import lake_params

OPTIONS: dict[str, Any] = {
    "part_size": 32,
    "max_size": 4,
    "max_agents": 2,
    "horizon": 16,
    "max_candidates": 2048,
}


def make(directory: str | Path, **changes: Any) -> Any:
    """Make three parts of two kinds of boards; only 24 boards of 2x2 exist."""
    params = lake_params([2, 4], [0.0, 0.3], [0.5, 0.25], 2)
    return make_set(directory, jax.random.key(11), params, 96, **(OPTIONS | changes))


def kill_at_rename(rename_number: int, moment: str, suffixes: tuple[str, ...] = ("",)) -> None:
    """Send SIGKILL to this process before or after rename `rename_number` to a suffix."""
    replace, num_renames = os.replace, 0

    def replace_or_die(source: Any, target: Any) -> None:
        nonlocal num_renames
        num_renames += str(target).endswith(suffixes)
        if num_renames == rename_number and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)
        if num_renames == rename_number:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace_or_die  # type: ignore[assignment]


def main(directory: str, number: str, moment: str) -> None:
    kill_at_rename(int(number), moment)
    make(directory)


if __name__ == "__main__":
    main(*sys.argv[1:])
