"""Write a set of shards in a process that kills itself (SIGKILL) at one rename of a file.

`python tests/jaxlake/datasets/killed_writer.py DIRECTORY NUMBER before|after [I P]`: the renames
are counted from 1, the manifest that begins a set included. I and P: part I of P parts only.
"""

import os
import signal
import sys
from typing import Any

import jax

from jaxlake.datasets import write_shards
from jaxlake.generator import lake_params

OPTIONS: dict[str, Any] = {
    "shard_size": 32,
    "max_size": 4,
    "max_agents": 2,
    "horizon": 16,
    "max_candidates": 2048,
}


def write(directory: str, **changes: Any) -> Any:
    """Three shards of two kinds of boards.

    On 2x2 there are only 24, so that the state that later shards go on from (which boards there
    are, which kinds were given up) matters.
    """
    params = lake_params([2, 4], [0.0, 0.3], [0.5, 0.25], 2)
    return write_shards(directory, jax.random.key(11), params, 96, **(OPTIONS | changes))


def main(directory: str, number: str, moment: str, *part: str) -> None:
    rename, calls = os.replace, 0

    def dying(source: Any, target: Any) -> None:
        nonlocal calls
        calls += 1
        last = calls == int(number)
        if last and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = dying  # type: ignore[assignment]
    write(directory, **({"part": (int(part[0]), int(part[1]))} if part else {}))


if __name__ == "__main__":
    main(*sys.argv[1:])
