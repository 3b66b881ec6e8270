"""Measure the first and the second call of each public function, compilation included.

python -m benchmarks.first_calls --json benchmarks/results/first-calls.json

Each program runs in a separate process, outside jit and without a cache on disk. The command runs
twice, the first time with an empty cache. The second call uses other values of the same shapes, and
`generate` uses another number of boards. The solver compiles each tier when a board first
needs it; "all tiers" uses boards that need the last one.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT, cpu_name
from benchmarks.results_file import write_result

_COMMAND_LINE = "command line: solve"
_BOARD = {"id": 1, "grid": ["S F G", "s H F", "g F F"]}
_CROWDED_ROWS = [
    ["b g s H", "G H F a", "F F H S", "B A H F"],
    ["H s a G", "H H S F", "b F H B", "F A F g"],
]
"""Four agents on few cells; holes pad these rows to boards of 10 x 10."""

_COMPILATION = "/jax/core/compile/backend_compile_duration"


def _make_programs() -> dict[str, Callable[[int], Any]]:
    """Return the programs by name; the argument 0 or 1 selects the first or second call."""
    import jax
    import numpy as np

    import jaxlake
    from jaxlake.board.grids import GOAL_SYMBOLS, START_SYMBOLS
    from jaxlake.environment import make
    from jaxlake.solver.solution import unknown_solution

    def board(num_agents: int, variant: int) -> Any:
        rows = [["F"] * 10 for _ in range(10)]
        for agent in range(num_agents):
            rows[agent][variant], rows[agent][9] = START_SYMBOLS[agent], GOAL_SYMBOLS[agent]
        return jaxlake.parse_grid([" ".join(row) for row in rows], max_agents=num_agents)

    def crowded_board(variant: int) -> Any:
        rows = [row + " H" * 6 for row in _CROWDED_ROWS[variant]]
        return jaxlake.parse_grid(rows + [" ".join("H" * 10)] * 6)

    def generate(num_agents: int, variant: int) -> Any:
        params = jaxlake.lake_params(10, 0.2, 0.25, num_agents)
        return jaxlake.generate(jax.random.key(0), params, 800 + variant, max_agents=num_agents)

    def verify(variant: int) -> Any:
        plan: Any = np.zeros((64, 4), np.int8)
        steps: Any = np.int32(64)
        parsed: Any = np.bool_(True)
        return jaxlake.verify(board(4, variant), plan, steps, parsed, unknown_solution(64, 4))

    return {
        "solve, 2 agents": lambda variant: jaxlake.solve(board(2, variant)),
        "solve, 4 agents, all tiers": lambda variant: jaxlake.solve(crowded_board(variant)),
        "generate, 2 agents": lambda variant: generate(2, variant),
        "generate, 4 agents": lambda variant: generate(4, variant),
        "environment.make, 4 agents": lambda variant: make(
            "MAPF-FrozenLake-10x10-4ag-v0", key=jax.random.key(variant)
        )[1],
        "verify": verify,
    }


def _measure_here(name: str) -> dict[str, float]:
    """Call a program twice in this process."""
    import jax

    call = _make_programs()[name]
    compilations: list[float] = []

    def record_compilation(event: str, duration_secs: float, **_: str | int) -> None:
        if event == _COMPILATION:
            compilations.append(duration_secs)

    jax.devices()
    jax.monitoring.register_event_duration_secs_listener(record_compilation)
    first_seconds = _time_call(lambda: jax.block_until_ready(call(0)))
    compile_seconds = sum(compilations)
    second_seconds = _time_call(lambda: jax.block_until_ready(call(1)))
    return {"first": first_seconds, "compiling": compile_seconds, "second": second_seconds}


def _measure_command_line() -> dict[str, float]:
    """Run `jaxlake solve` on one board twice, the first time with an empty cache."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    with tempfile.TemporaryDirectory() as folder:
        boards = Path(folder) / "boards.jsonl"
        boards.write_text(json.dumps(_BOARD), encoding="utf-8")
        command = [sys.executable, "-m", "jaxlake", "solve", str(boards)]
        environment = {**variables, "XDG_CACHE_HOME": folder}

        def call() -> None:
            subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)

        return {"first": _time_call(call), "second": _time_call(call)}


def _time_call(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _measure(name: str) -> dict[str, float]:
    """Measure a program in a separate process."""
    if name == _COMMAND_LINE:
        return _measure_command_line()
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-m", "benchmarks.first_calls", "--here", name]
    process = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    measurement: dict[str, float] = json.loads(process.stdout)
    return measurement


def main() -> int:
    """Measure all programs, print the seconds and write the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_calls")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result here, too")
    parser.add_argument("--here", metavar="NAME", help="measure one program in this process")
    arguments = parser.parse_args()
    if arguments.here is not None:
        print(json.dumps(_measure_here(arguments.here)))
        return 0
    load_before, programs = os.getloadavg()[0], {}
    for name in [*_make_programs(), _COMMAND_LINE]:
        programs[name] = _measure(name)
        text = ", ".join(f"{key} {value:.3g}" for key, value in programs[name].items())
        print(f"{name}: {text}", flush=True)
    if arguments.json is not None:
        machine = {"cpu": cpu_name(), "cores": os.cpu_count(), "load_before": load_before}
        versions = {name: version(name) for name in ("jax", "jaxlib", "numpy")}
        versions["python"] = platform.python_version()
        write_result(
            arguments.json,
            {"unit": "seconds", "machine": machine, **versions, "programs": programs},
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
