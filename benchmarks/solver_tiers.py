"""What each tier of the solver costs, and how many boards it leaves open.

    NPROC=1 python -m benchmarks.solver_tiers --agents 4 --hole-ratio 0.2

Boards are those of `benchmarks.lake.random_boards`: random, with every agent connected to its goal.
NPROC=1 lets XLA use one thread, so that microseconds are those of one core. Each time is that of
the second of two calls; compilation is timed apart.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxlake
from benchmarks.lake.random_boards import write_boards
from benchmarks.lake.workers.lake_solve import read_boards
from jaxlake.solver import widths_for
from jaxlake.solver.certificates import prepare_boards, prioritise
from jaxlake.solver.pairs import pair_bounds
from jaxlake.solver.space_time import NEVER

HORIZON = jaxlake.DEFAULT_HORIZON


def measure(name: str, boards: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, print a line and return its result."""
    begun = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    compile_seconds = time.perf_counter() - begun
    jax.block_until_ready(compiled(*arguments))
    begun = time.perf_counter()
    result = jax.block_until_ready(compiled(*arguments))
    micros = (time.perf_counter() - begun) / boards * 1e6
    print(
        f"{name:<28}{micros:>10.1f} us per board   compiled in {compile_seconds:.1f} s", flush=True
    )
    return result


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=4, choices=range(2, 6))
    parser.add_argument("--hole-ratio", type=float, default=0.2)
    parser.add_argument("--boards", type=int, default=1 << 14)
    parser.add_argument("--size", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "boards.npz"
        write_boards(
            path,
            count=given.boards,
            size=given.size,
            num_agents=given.agents,
            hole_ratio=given.hole_ratio,
            seed=0,
        )
        batch = read_boards(str(path))

    B = given.boards
    boards = measure("1 distances", B, lambda b: prepare_boards(b, widths_for()), batch)
    connected = np.asarray(boards.alone).max(axis=0) < NEVER
    best = measure(
        "2 prioritised planning",
        B,
        lambda boards, wanted: prioritise(boards, wanted, HORIZON, widths_for()),
        boards,
        connected,
    )
    left_open = np.asarray(best.sum_of_costs) > np.asarray(boards.alone).sum(axis=0)
    print(f"  leaves {left_open.mean():.1%} open")
    if given.agents > 2:
        measure(
            "3 pairs",
            B,
            lambda *x: pair_bounds(x[0], x[1], x[2], HORIZON, widths_for()),
            batch,
            boards,
            left_open,
        )
    solutions = measure("all tiers", B, jax.vmap(jaxlake.solve), batch)
    status, expansions = np.asarray(solutions.status), np.asarray(solutions.expansions)
    print(f"  searched {np.mean(expansions > 0):.1%}, UNKNOWN {np.mean(status == 2):.3%}")
    shares = (50, 90, 99, 99.9, 100)
    numbers = ", ".join(f"{p}%: {np.percentile(expansions, p):.0f}" for p in shares)
    print(f"  expansions, by share of boards: {numbers}")


if __name__ == "__main__":
    main()
