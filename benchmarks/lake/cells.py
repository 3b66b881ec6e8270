"""The solver beside w9-pathfinding in every cell of the paper's benchmark.

    python -m benchmarks.lake.cells --json benchmarks/results/cells-cpu.json
    python -m benchmarks.lake.cells --write     # the table in docs/benchmarks.md

A cell is a number of agents (3 to 5), a size of board (as many rows as agents, up to 10) and a
share of holes (0.1 to 0.5). Both sides get the same boards and the same cores. With two cores, two
processes of the peer take every second board each, and our batch is shared out over two devices.

Two times are taken per repeat and side. Until all are solved: ours is that of one batch, the
peer's the sum over its boards, with two cores that of the process that ends last. Boards on which
the peer gave up, such as unsolvable ones, are told apart and not in its time, but in ours. Until
99% are solved: either side leaves out the hundredth of the boards that it finds hardest itself
(ours by expansions, in a batch of the same shape; the peer by time). That flatters both sides in
the same way, since neither knows beforehand which boards these are.

Each cell is written to the JSON file when it is done; `--resume` leaves out those that are there.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lake.benchmark import cpu_name, git_commit, usable_cores
from benchmarks.lake.cases import Side
from benchmarks.lake.comparison import agreement, start
from benchmarks.lake.protocol import ROOT, Worker
from benchmarks.lake.random_boards import write_boards
from benchmarks.lake.tables import between_markers
from jaxlake.datasets.paper_benchmark import V1
from jaxlake.files import write_text_whole
from training.commands import number

DOCUMENT = ROOT / "docs" / "benchmarks.md"
RESULT = ROOT / "benchmarks" / "results" / "cells-cpu.json"
BEGIN, END = "<!-- cells: begin -->", "<!-- cells: end -->"
EASY_SHARE = 0.99
SCHEMA = 1

_OURS = Side("jaxlake.solve", "benchmarks.lake.workers.lake_cells")
_PEER = Side("w9-pathfinding CBS", "benchmarks.lake.workers.w9_cells")
_TIMEOUT = 3600.0
_SEED = 20261122

Json = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One kind of boards."""

    agents: int
    size: int
    hole_ratio: float

    @property
    def name(self) -> str:
        """What `--only` looks at: 3ag_10x10_hr0.5."""
        return f"{self.agents}ag_{self.size}x{self.size}_hr{self.hole_ratio:g}"

    @property
    def drawn_ratio(self) -> float:
        """The share of holes, or the largest one that leaves room for all starts and goals."""
        cells = self.size * self.size
        return min(self.hole_ratio, (cells - 2 * self.agents) / cells)


def all_cells() -> list[Cell]:
    """List the cells of the paper's benchmark."""
    return [Cell(*place, ratio) for place in V1.cells for ratio in V1.hole_ratios]


def measure(cells: Sequence[Cell], cores: int, options: argparse.Namespace) -> Iterator[Json]:
    """Compare both sides on cells of one number of agents, with so many cores each."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ours = stack.enter_context(start(_OURS, cores))
        peers = [stack.enter_context(start(_PEER, 1)) for _ in range(cores)]
        for cell in cells:
            boards = Path(folder) / f"{cell.name}.npz"
            write_boards(
                boards,
                count=options.boards,
                size=cell.size,
                num_agents=cell.agents,
                hole_ratio=cell.drawn_ratio,
                seed=_SEED,
            )
            yield _compare(cell, boards, ours, peers, options)


def _compare(
    cell: Cell, boards: Path, ours: Worker, peers: Sequence[Worker], options: argparse.Namespace
) -> Json:
    cores = len(peers)
    prepared = ours.ask("prepare", _TIMEOUT, boards=str(boards), cores=cores, easy_share=EASY_SHARE)
    for core, peer in enumerate(peers):
        share = {"core": core, "share": [core, cores], "max_time": options.max_time}
        peer.ask("prepare", _TIMEOUT, boards=str(boards), **share)
    all_seconds: dict[str, list[float]] = {"ours": [], "peer": []}
    easy_seconds: dict[str, list[float]] = {"ours": [], "peer": []}
    shares: list[list[tuple[int, float, int | None]]] = []
    for _ in range(options.repeats):
        answer = ours.ask("solve_all", _TIMEOUT)
        all_seconds["ours"].append(answer["all_seconds"])
        easy_seconds["ours"].append(answer["easy_seconds"])
        with ThreadPoolExecutor(cores) as pool:
            asked = pool.map(lambda peer: peer.ask("solve_all", _TIMEOUT)["boards"], peers)
            shares = list(asked)
        all_seconds["peer"].append(longest_share(shares, 1.0))
        easy_seconds["peer"].append(longest_share(shares, EASY_SHARE))
    costs = sorted((index, cost) for share in shares for index, _, cost in share)
    same = agreement(prepared, {"costs": costs})
    return {
        "cell": cell.name,
        "agents": cell.agents,
        "size": cell.size,
        "hole_ratio": cell.hole_ratio,
        "cores": cores,
        "boards": options.boards,
        "compile_seconds": prepared["compile_seconds"],
        "all_seconds": all_seconds,
        "easy_seconds": easy_seconds,
        "ratio_all": ratio(all_seconds),
        "ratio_easy": ratio(easy_seconds),
        "unknown": prepared["status"].count(2),
        "unsolvable": prepared["status"].count(1),
        "gave_up": sum(cost is None for _, cost in costs),
        "compared": same["compared"],
        "different": same["different"],
    }


def longest_share(shares: Sequence[Sequence[tuple[int, float, int | None]]], kept: float) -> float:
    """Return the time of the process that ends last, over the fastest boards of all processes.

    `shares` hold index, seconds and cost for each board of each process; boards without a cost do
    not count. It is 0 if there are no others.
    """
    solved = [[s for _, s, cost in share if cost is not None] for share in shares]
    times = sorted(seconds for share in solved for seconds in share)
    if not times:
        return 0.0
    last = times[math.ceil(kept * len(times)) - 1]
    return max(math.fsum(s for s in share if s <= last) for share in solved)


def ratio(seconds: Mapping[str, Sequence[float]]) -> float:
    """Divide the peer's median time by ours."""
    return statistics.median(seconds["peer"]) / statistics.median(seconds["ours"])


def markdown(result: Mapping[str, Any]) -> str:
    """Write the table: one line per cell, its ratios on one and on two cores."""
    machine = result["machine"]
    by_name: dict[str, dict[int, Json]] = {}
    for row in result["rows"]:
        by_name.setdefault(row["cell"], {})[row["cores"]] = row
    counts = sorted({row["cores"] for row in result["rows"]})
    title = {1: "one core", 2: "two cores"}
    headings = ["cell", "boards"]
    for cores in counts:
        name = title.get(cores, f"{cores} cores")
        headings += [f"{name}: ours, peer until all", "ratio", "ours, peer until 99%", "ratio"]
    headings += ["UNKNOWN", "peer gave up", "compared", "different"]
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, commit {result['commit']}; "
        f"{result['repeats']} repeats, medians, in seconds; the peer gives up after "
        f"{result['max_time']:g} s, which is not in its time.",
        "",
        "| " + " | ".join(headings) + " |",
        "|" + " --- |" * len(headings),
    ]
    for name, by_cores in by_name.items():
        one = next(iter(by_cores.values()))
        fields = [name, str(one["boards"])]
        for cores in counts:
            row = by_cores.get(cores)
            fields += [""] * 4 if row is None else _times(row)
        fields += [str(one[key]) for key in ("unknown", "gave_up", "compared", "different")]
        lines.append("| " + " | ".join(fields) + " |")
    return "\n".join(lines) + "\n"


def _times(row: Json) -> list[str]:
    fields = []
    for kind in ("all", "easy"):
        median = {s: statistics.median(row[f"{kind}_seconds"][s]) for s in ("ours", "peer")}
        fields += [f"{median['ours']:.3g}, {median['peer']:.3g}", f"{row[f'ratio_{kind}']:.2f}x"]
    return fields


def document(text: str, result: Mapping[str, Any]) -> str:
    """Return the document with the table in place of what stands between its markers."""
    return between_markers(text, BEGIN, END, markdown(result))


def run(options: argparse.Namespace) -> int:
    """Measure what is left to measure; return 1 if an optimum differs from the peer's."""
    chosen = [cell for cell in all_cells() if options.only in cell.name]
    if not chosen:
        sys.exit(f"--only: got {options.only!r}, allowed are parts of {all_cells()[0].name}, ...")
    result: Json = {
        "schema": SCHEMA,
        "boards": options.boards,
        "repeats": options.repeats,
        "max_time": options.max_time,
        "commit": git_commit(),
        "machine": {"cpu": cpu_name(), "cores": usable_cores(), "load_before": os.getloadavg()[0]},
        "rows": [],
    }
    if options.resume and options.json.exists():
        before = json.loads(options.json.read_text(encoding="utf-8"))
        for field in ("schema", "boards", "repeats", "max_time"):
            if before[field] != result[field]:
                sys.exit(
                    f"{options.json}: {field} is {before[field]!r}, this run's is "
                    f"{result[field]!r}; run without --resume"
                )
        result["rows"] = before["rows"]
    done = {(row["cell"], row["cores"]) for row in result["rows"]}
    for cores in options.cores:
        for agents in sorted({cell.agents for cell in chosen}):
            todo = [c for c in chosen if c.agents == agents and (c.name, cores) not in done]
            if not todo:
                continue
            for row in measure(todo, cores, options):
                result["rows"].append(row)
                options.json.parent.mkdir(parents=True, exist_ok=True)
                write_text_whole(options.json, json.dumps(result, indent=1) + "\n")
                print(
                    f"{row['cell']}, {cores} cores: {row['ratio_all']:.2f}x until all, "
                    f"{row['ratio_easy']:.2f}x until 99%, {row['unknown']} UNKNOWN, peer gave up "
                    f"on {row['gave_up']}, {row['different']} of {row['compared']} different",
                    flush=True,
                )
    return 1 if any(row["different"] for row in result["rows"]) else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", type=Path, default=RESULT)
    parser.add_argument("--boards", type=number(int, 2), default=256, help="boards of each cell")
    parser.add_argument("--repeats", type=number(int, 1), default=3)
    parser.add_argument("--cores", type=number(int, 1), nargs="+", default=[1, 2])
    parser.add_argument("--only", metavar="PART", default="", help="cells with this in their name")
    parser.add_argument(
        "--max-time", type=number(float, 0.001), default=1.0, help="seconds of the peer per board"
    )
    parser.add_argument("--resume", action="store_true", help="leave out cells that are there")
    parser.add_argument("--write", action="store_true", help="only write docs/benchmarks.md")
    options = parser.parse_args(argv)
    if options.write:
        text = DOCUMENT.read_text(encoding="utf-8")
        write_text_whole(DOCUMENT, document(text, json.loads(options.json.read_text())))
        return 0
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
