"""Compare the solver with w9-pathfinding's CBS in every cell of the paper's benchmark.

    python -m benchmarks.lake.cells --json benchmarks/results/cells-cpu.json
    python -m benchmarks.lake.cells --table     # a summary of the file

A cell is a number of agents (3 to 5), a board size (as many rows as agents, up to 10) and a hole
ratio (0.1 to 0.5); two agents, which that benchmark does not have, play on 10x10. Both sides get
the same boards and the same cores. With two cores, two processes of the peer take every second
board each, and our batch is shared out over two devices.

The comparison excludes boards that are proved unsolvable, because the peer does not terminate on
them, and boards on which the peer gives up. If our solver gives up, its time still counts. We
measure one batch, which copies of one of its boards fill up to a fixed shape. The peer's time is
the sum over its boards; with two cores, the slower process counts.

Each finished cell is written to the file. Cells in the file are not measured again.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lake.cases import FLAGS_FOR_SEARCHES, Side
from benchmarks.lake.comparison import compare_costs, start_worker
from benchmarks.lake.protocol import ROOT, Worker
from benchmarks.lake.random_boards import write_boards
from benchmarks.machine import cpu_name, git_commit
from benchmarks.results_file import write_result
from jaxlake.command_line.arguments import number
from jaxlake.datasets.paper_benchmark import V2

RESULT = ROOT / "benchmarks" / "results" / "cells-cpu.json"

_OURS = Side("jaxlake.solve", "benchmarks.lake.workers.lake_cells", xla_flags=FLAGS_FOR_SEARCHES)
_PEER = Side("w9-pathfinding CBS", "benchmarks.lake.workers.w9_cbs")
_SEED = 20261122

Json = dict[str, Any]
PeerResults = Sequence[tuple[int, float, int | None]]
"""Results of one peer process: board index, seconds, cost or None."""


@dataclass(frozen=True)
class Cell:
    """One kind of boards."""

    agents: int
    size: int
    hole_ratio: float

    @property
    def name(self) -> str:
        """Name for `--only`, such as 3ag_10x10_hr0.5."""
        return f"{self.agents}ag_{self.size}x{self.size}_hr{self.hole_ratio:g}"

    @property
    def drawn_ratio(self) -> float:
        """The hole ratio, limited so that all starts and goals fit."""
        cells = self.size * self.size
        return min(self.hole_ratio, (cells - 2 * self.agents) / cells)


def list_cells() -> list[Cell]:
    """Return the cells of the paper's benchmark and cells of two agents on its largest boards."""
    kinds = [*V2.cells, (2, max(size for _, size in V2.cells))]
    return [Cell(*kind, ratio) for kind in kinds for ratio in V2.hole_ratios]


def measure(cells: Sequence[Cell], num_cores: int, options: argparse.Namespace) -> Iterator[Json]:
    """Compare both sides on cells with equal numbers of agents and cores."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        solver = stack.enter_context(start_worker(_OURS, num_cores))
        peers = [stack.enter_context(start_worker(_PEER, 1)) for _ in range(num_cores)]
        for cell in cells:
            path = Path(folder) / f"{cell.name}.npz"
            write_boards(
                path,
                count=options.boards,
                size=cell.size,
                num_agents=cell.agents,
                hole_ratio=cell.drawn_ratio,
                seed=_SEED,
            )
            yield _compare(cell, path, solver, peers, options)


def _compare(
    cell: Cell, path: Path, solver: Worker, peers: Sequence[Worker], options: argparse.Namespace
) -> Json:
    num_cores = len(peers)
    preparation = solver.ask("prepare", path=str(path), cores=num_cores)
    for core, peer in enumerate(peers):
        peer.ask("prepare", path=str(path), max_seconds=options.max_time, core=core)
    solvable = {i for i, status in enumerate(preparation["status"]) if status != 1}

    def ask_peers(indices: Set[int]) -> list[PeerResults]:
        def ask(core: int) -> PeerResults:
            own_indices = sorted(index for index in indices if index % num_cores == core)
            return peers[core].ask("solve_some", indices=own_indices)["boards"]

        with ThreadPoolExecutor(num_cores) as pool:
            return list(pool.map(ask, range(num_cores)))

    results = ask_peers(solvable)
    costs = sorted((index, cost) for result in results for index, _, cost in result)
    solved_by_peer = {index for index, cost in costs if cost is not None}
    seconds: dict[str, list[float]] = {"ours": [], "peer": []}
    solver.ask("choose", indices=sorted(solved_by_peer))
    for _ in range(options.repeats):
        seconds["ours"].append(solver.ask("solve_chosen")["seconds"])
        seconds["peer"].append(find_slowest(ask_peers(solved_by_peer)))
    comparison = compare_costs(preparation, {"costs": costs})
    return {
        "cell": cell.name,
        "agents": cell.agents,
        "size": cell.size,
        "hole_ratio": cell.hole_ratio,
        "cores": num_cores,
        "boards": options.boards,
        "compile_seconds": preparation["compile_seconds"],
        "seconds": seconds,
        "ratio": compute_ratio(seconds),
        "unknown": preparation["status"].count(2),
        "unsolvable": preparation["status"].count(1),
        "gave_up": len(solvable - solved_by_peer),
        "compared": comparison["compared"],
        "different": comparison["different"],
        "commit": git_commit(),
        "cpu": cpu_name(),
        "load_before": os.getloadavg()[0],
    }


def find_slowest(results: Sequence[PeerResults]) -> float:
    """Return the seconds of the slowest process."""
    return max(math.fsum(seconds for _, seconds, _ in result) for result in results)


def compute_ratio(seconds: Mapping[str, Sequence[float]]) -> float:
    """Divide the peer's median time by ours; 0 if there was no board."""
    our_time = statistics.median(seconds["ours"])
    return statistics.median(seconds["peer"]) / our_time if our_time else 0.0


def format_table(rows: Sequence[Json]) -> Iterator[str]:
    """Yield a summary in Markdown: smallest, median and largest ratio."""
    yield "| agents | cores | cells | ratio | optima compared | different |"
    yield "|" + " --- |" * 6
    for agents, cores in sorted({(row["agents"], row["cores"]) for row in rows}):
        group = [row for row in rows if (row["agents"], row["cores"]) == (agents, cores)]
        ratios = sorted(row["ratio"] for row in group)
        summary = (ratios[0], statistics.median(ratios), ratios[-1])
        counts = [sum(row[name] for row in group) for name in ("compared", "different")]
        fields = [agents, cores, len(group), ", ".join(f"{value:.1f}x" for value in summary)]
        yield "| " + " | ".join(map(str, [*fields, *(f"{count:,}" for count in counts)])) + " |"


def measure_missing_cells(options: argparse.Namespace) -> int:
    """Measure the cells that the file lacks; return 1 if an optimum differs from the peer's."""
    cells = [cell for cell in list_cells() if any(part in cell.name for part in options.only)]
    result: Json = {"repeats": options.repeats, "max_time": options.max_time, "rows": []}
    if options.json.exists():
        stored_result = json.loads(options.json.read_text(encoding="utf-8"))
        for name in ("repeats", "max_time"):
            if stored_result[name] != result[name]:
                sys.exit(f"{options.json}: {name} is {stored_result[name]}, got {result[name]}")
        result = stored_result
    rows = result["rows"]
    keys = {(row["cell"], row["cores"]) for row in rows}
    for cores in options.cores:
        for agents in sorted({cell.agents for cell in cells}):
            batch = [c for c in cells if c.agents == agents and (c.name, cores) not in keys]
            for row in measure(batch, cores, options) if batch else ():
                rows.append(row)
                write_result(options.json, result)
                print(
                    f"{row['cell']}, {cores} cores: {row['ratio']:.2f}x, "
                    f"{row['unknown']} UNKNOWN, peer gave up on {row['gave_up']}, "
                    f"{row['different']} of {row['compared']} optima differ",
                    flush=True,
                )
    return 1 if any(row["different"] for row in rows) else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", type=Path, default=RESULT)
    parser.add_argument("--boards", type=number(int, 2), default=1024, help="boards of each cell")
    parser.add_argument("--repeats", type=number(int, 1), default=3)
    parser.add_argument("--cores", type=number(int, 1), nargs="+", default=[1, 2])
    parser.add_argument("--only", metavar="PART", nargs="+", default=[""], help="parts of names")
    parser.add_argument(
        "--max-time", type=number(float, 0.001), default=0.3, help="seconds of the peer per board"
    )
    parser.add_argument("--table", action="store_true", help="only print a summary of the file")
    options = parser.parse_args(argv)
    if options.table:
        print("\n".join(format_table(json.loads(options.json.read_text(encoding="utf-8"))["rows"])))
        return 0
    return measure_missing_cells(options)


if __name__ == "__main__":
    sys.exit(main())
