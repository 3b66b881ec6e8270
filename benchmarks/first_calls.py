"""What the first and the second call of each public function cost, compilation included.

python -m benchmarks.first_calls --json benchmarks/results/first-calls.json

Each program runs in a process of its own, outside of jit and without a cache on disk; the command
line is called twice, the first time with an empty one. Processor seconds are those of all threads:
where other programs run beside, they say more than wall time. A second call has other values of the
same shapes, and `generate` is asked for another number of boards. Tiers of the solver are compiled
when a board needs them: on the boards of `solve` nobody is in the way, and those of "all tiers" are
settled by the last one only.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.lake.protocol import ROOT
from jaxlake.files import write_text_whole

_COMMAND_LINE = "command line: solve"
_BOARD = {"id": 1, "grid": ["S F G", "s H F", "g F F"]}
_CROWDED = [
    ["b g s H", "G H F a", "F F H S", "B A H F"],
    ["H s a G", "H H S F", "b F H B", "F A F g"],
]
"""Four agents on few cells. Boards of 10 x 10 are made of them with holes."""

_COMPILATION = "/jax/core/compile/backend_compile_duration"
_COLUMNS = ("first_wall", "first_processor", "compiling", "second_wall", "second_processor")


def _calls() -> dict[str, Callable[[], Callable[[int], Any]]]:
    """Return the programs by name: each prepares itself, and is then called with 0 and 1."""
    import jax
    import numpy as np

    import jaxlake
    from jaxlake.board.grids import GOAL_SYMBOLS, START_SYMBOLS
    from jaxlake.environment import make
    from jaxlake.solver.solution import unknown_solution

    def board(agents: int, number: int) -> Any:
        rows = [["F"] * 10 for _ in range(10)]
        for agent in range(agents):
            rows[agent][number], rows[agent][9] = START_SYMBOLS[agent], GOAL_SYMBOLS[agent]
        return jaxlake.parse_grid([" ".join(row) for row in rows], max_agents=agents)

    def crowded(number: int) -> Any:
        rows = [row + " H" * 6 for row in _CROWDED[number]]
        return jaxlake.parse_grid(rows + [" ".join("H" * 10)] * 6)

    def solve(agents: int) -> Callable[[int], Any]:
        return lambda number: jaxlake.solve(board(agents, number))

    def generate(agents: int) -> Callable[[int], Any]:
        params = jaxlake.lake_params(10, 0.2, 0.25, agents)
        key = jax.random.key(0)
        return lambda number: jaxlake.generate(key, params, 800 + number, max_agents=agents)

    def environment() -> Callable[[int], Any]:
        keys = jax.random.split(jax.random.key(0))
        return lambda number: make("MAPF-FrozenLake-10x10-4ag-v0", key=keys[number])[1]

    def verify() -> Callable[[int], Any]:
        plans = np.zeros((2, 64, 4), np.int8)
        steps: Any = np.int32(64)
        parsed: Any = np.bool_(True)
        unknown = unknown_solution(64, 4)
        return lambda number: jaxlake.verify(
            board(4, number), plans[number], steps, parsed, unknown
        )

    def tabulate() -> Callable[[int], Any]:
        outcomes = [jax.tree.map(lambda leaf: leaf[None], verify()(number)) for number in (0, 1)]
        boards = [jaxlake.stack_instances([board(4, number)]) for number in (0, 1)]
        no_wait: Any = np.array([False])
        return lambda i: jaxlake.tabulate(boards[i], no_wait, outcomes[i])

    return {
        "solve, 2 agents": lambda: solve(2),
        "solve, 4 agents, nobody in the way": lambda: solve(4),
        "solve, 4 agents, all tiers": lambda: lambda number: jaxlake.solve(crowded(number)),
        "generate, 2 agents": lambda: generate(2),
        "generate, 4 agents": lambda: generate(4),
        "environment.make, 4 agents": environment,
        "verify": verify,
        "tabulate": tabulate,
    }


def _measure_here(name: str) -> dict[str, float]:
    """Call a program twice in this process."""
    import jax

    call = _calls()[name]()
    compilations: list[float] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == _COMPILATION:
            compilations.append(duration_secs)

    jax.devices()
    jax.monitoring.register_event_duration_secs_listener(listen)
    measured = _timed("first", lambda: jax.block_until_ready(call(0)), resource.RUSAGE_SELF)
    measured["compiling"] = sum(compilations)
    return measured | _timed("second", lambda: jax.block_until_ready(call(1)), resource.RUSAGE_SELF)


def _measure_command_line() -> dict[str, float]:
    """Call `jaxlake solve` on one board twice; nothing is compiled before the first time."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    with tempfile.TemporaryDirectory() as folder:
        boards = Path(folder) / "boards.jsonl"
        boards.write_text(json.dumps(_BOARD), encoding="utf-8")
        command = [sys.executable, "-m", "jaxlake", "solve", str(boards)]
        environment = {**kept, "XDG_CACHE_HOME": folder}

        def call() -> None:
            subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)

        measured = _timed("first", call, resource.RUSAGE_CHILDREN)
        return measured | _timed("second", call, resource.RUSAGE_CHILDREN)


def _timed(which: str, call: Callable[[], Any], who: int) -> dict[str, float]:
    def processor() -> float:
        used = resource.getrusage(who)
        return used.ru_utime + used.ru_stime

    wall, before = time.perf_counter(), processor()
    call()
    wall, used = time.perf_counter() - wall, processor() - before
    return {f"{which}_wall": wall, f"{which}_processor": used}


def _measure(name: str) -> dict[str, float]:
    """Measure a program in a process of its own."""
    if name == _COMMAND_LINE:
        return _measure_command_line()
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-m", "benchmarks.first_calls", "--here", name]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def table(rows: dict[str, dict[str, float]]) -> str:
    """Write the rows as Markdown, in seconds."""
    heads = ["first call", "its processor time", "XLA compiling", "second call", "its own"]
    lines = [f"| program | {' | '.join(heads)} |", "| --- " * (len(heads) + 1) + "|"]
    for name, row in rows.items():
        cells = [f"{row[c]:.3g}" if c in row else "" for c in _COLUMNS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Measure all programs, print the table and write the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_calls")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result here too")
    parser.add_argument("--here", metavar="NAME", help="measure one program in this process")
    arguments = parser.parse_args()
    if arguments.here is not None:
        print(json.dumps(_measure_here(arguments.here)))
        return 0
    load = os.getloadavg()[0]
    rows = {}
    for name in [*_calls(), _COMMAND_LINE]:
        print(f"first calls: {name}", file=sys.stderr, flush=True)
        rows[name] = {key: float(f"{value:.4g}") for key, value in _measure(name).items()}
    print(table(rows))
    if arguments.json is not None:
        result = {
            "unit": "seconds",
            "cores": os.cpu_count(),
            "load_before": load,
            "python": platform.python_version(),
            **{name: version(name) for name in ("jax", "jaxlib", "numpy")},
            "programs": rows,
        }
        write_text_whole(arguments.json, json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
