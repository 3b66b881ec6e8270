"""The solver beside w9-pathfinding in every cell of the paper's benchmark.

    python -m benchmarks.lake.cells --json benchmarks/results/cells-cpu.json
    python -m benchmarks.lake.cells --write     # the table in docs/cells.md

A cell is a number of agents (3 to 5), a size of board (as many rows as agents, up to 10) and a
share of holes (0.1 to 0.5); two agents, whom that benchmark does not have, are on 10x10. Both sides
get the same boards and the same cores. With two cores, two processes of the peer take every second
board each, and our batch is shared out over two devices.

Boards that are proved unsolvable are left out, since the peer does not end on them. Of the others,
three times are taken of each side: ours is that of one batch, the peer's the sum over its boards,
with two cores that of the process that ends last.

- All boards, once. Where a side gives up, the time until then counts. So the ratio is a lower bound
  where only the peer gave up, and no bound where boards are UNKNOWN, too.
- The boards that the peer solves: those on which it did not give up then. In every repeat. On some
  of them ours may give up, and its time until then counts.
- The easy ones of these: either side leaves out the hundredth that it finds hardest itself (ours by
  expansions, the peer by time). That flatters both sides in the same way, since neither knows
  beforehand which boards these are.

Our batches all have one shape: copies of one of their boards fill them up.

With `--clock processor` and `--cores 1` seconds are those of the processor, on both sides: on a
core that other processes use too, the clock on the wall would count their time.

Each cell is written to the JSON file when it is done; `--resume` leaves out those that are there,
and `--again` replaces them.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lake.benchmark import cpu_name, git_commit, usable_cores
from benchmarks.lake.cases import FLAGS_FOR_SEARCHES, Side
from benchmarks.lake.comparison import agreement, start
from benchmarks.lake.protocol import CLOCKS, ROOT, Worker
from benchmarks.lake.random_boards import write_boards
from benchmarks.lake.tables import between_markers
from jaxlake.command_line.arguments import number
from jaxlake.datasets.paper_benchmark import V2
from jaxlake.files import write_text_whole

DOCUMENT = ROOT / "docs" / "cells.md"
RESULT = ROOT / "benchmarks" / "results" / "cells-cpu.json"
BEGIN, END = "<!-- cells: begin -->", "<!-- cells: end -->"
EASY_SHARE = 0.99
SCHEMA = 3

_OURS = Side("jaxlake.solve", "benchmarks.lake.workers.lake_cells", xla_flags=FLAGS_FOR_SEARCHES)
_PEER = Side("w9-pathfinding CBS", "benchmarks.lake.workers.w9_cells")
_TIMEOUT = 3600.0
_SEED = 20261122

Json = dict[str, Any]
Share = Sequence[tuple[int, float, int | None]]
"""What one process of the peer says of its boards: index, seconds, cost or None."""


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
    """List the cells of the paper's benchmark, and those of two agents on its largest boards."""
    places = [*V2.cells, (2, max(size for _, size in V2.cells))]
    return [Cell(*place, ratio) for place in places for ratio in V2.hole_ratios]


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
    prepared = ours.ask("prepare", _TIMEOUT, boards=str(boards), cores=cores)
    for core, peer in enumerate(peers):
        share = {"core": core, "share": [core, cores], "max_time": options.max_time}
        peer.ask("prepare", _TIMEOUT, boards=str(boards), clock=options.clock, **share)
    solvable = {i for i, status in enumerate(prepared["status"]) if status != 1}
    seconds: dict[str, dict[str, list[float]]] = {
        kind: {"ours": [], "peer": []} for kind in ("all", "shared", "easy")
    }

    def ask_peers(chosen: Set[int]) -> list[Share]:
        def ask(peer: Worker) -> Share:
            return peer.ask("solve_some", _TIMEOUT, boards=sorted(chosen))["boards"]

        with ThreadPoolExecutor(cores) as pool:
            return list(pool.map(ask, peers))

    # What the peer gives up on would take most of the time of every repeat.
    shares = ask_peers(solvable)
    shared = {i for share in shares for i, _, cost in share if cost is not None}
    sets = {"all": sorted(solvable), "shared": sorted(shared)}
    ours.ask("choose", _TIMEOUT, **sets, easy_share=EASY_SHARE)
    costs = sorted((index, cost) for share in shares for index, _, cost in share)
    for repeat in range(options.repeats):
        kinds = [("shared", shared, 1.0), ("easy", shared, EASY_SHARE)]
        if repeat == 0:
            kinds.append(("all", solvable, 1.0))
        else:
            shares = ask_peers(shared)
        names = [kind for kind, *_ in kinds]
        answer = ours.ask("solve_batches", _TIMEOUT, names=names, clock=options.clock)
        for kind, boards_of, kept in kinds:
            seconds[kind]["ours"].append(answer[kind])
            seconds[kind]["peer"].append(longest_share(shares, boards_of, kept))
    same = agreement(prepared, {"costs": costs})
    return {
        "cell": cell.name,
        "agents": cell.agents,
        "size": cell.size,
        "hole_ratio": cell.hole_ratio,
        "cores": cores,
        "boards": options.boards,
        "clock": options.clock,
        "compile_seconds": prepared["compile_seconds"],
        **{f"{kind}_seconds": taken for kind, taken in seconds.items()},
        **{f"ratio_{kind}": ratio(taken) for kind, taken in seconds.items()},
        "unknown": prepared["status"].count(2),
        "unsolvable": prepared["status"].count(1),
        "gave_up": len(solvable - shared),
        "compared": same["compared"],
        "different": same["different"],
    }


def longest_share(shares: Sequence[Share], chosen: Set[int], kept: float) -> float:
    """Return the time of the process that ends last, over the fastest of the chosen boards.

    Of all processes together, the share `kept` of these boards counts. It is 0 if there are none.
    """
    taken = [[s for i, s, _ in share if i in chosen] for share in shares]
    times = sorted(seconds for share in taken for seconds in share)
    if not times:
        return 0.0
    last = times[math.ceil(kept * len(times)) - 1]
    return max(math.fsum(s for s in share if s <= last) for share in taken)


def ratio(seconds: Mapping[str, Sequence[float]]) -> float:
    """Divide the peer's median time by ours; without a board to solve it is 0."""
    ours = statistics.median(seconds["ours"])
    return statistics.median(seconds["peer"]) / ours if ours else 0.0


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
        headings += [
            f"{name}: all boards",
            "ratio",
            "the peer solves",
            "ratio",
            "99% of these",
            "ratio",
        ]
    headings += ["unsolvable", "UNKNOWN", "peer gave up", "compared", "different"]
    lines = [
        f"{machine['cpu']}; {_commits(result)}; "
        f"{result['repeats']} repeats, medians, in seconds (ours, the peer's); the peer gives up "
        f"after {result['max_time']:g} s.",
        "",
        "| " + " | ".join(headings) + " |",
        "|" + " --- |" * len(headings),
    ]
    for name, by_cores in by_name.items():
        one = next(iter(by_cores.values()))
        boards = dict.fromkeys(f"{row['boards']:,}" for _, row in sorted(by_cores.items()))
        fields = [name, " and ".join(boards)]
        for cores in counts:
            row = by_cores.get(cores)
            fields += [""] * 6 if row is None else _times(row)
        counts_of = ("unsolvable", "unknown", "gave_up", "compared", "different")
        fields += [str(one[key]) for key in counts_of]
        lines.append("| " + " | ".join(fields) + " |")
    return "\n".join(lines) + "\n"


def _commits(result: Mapping[str, Any]) -> str:
    """Say how many rows were measured at which commit, the most frequent one first.

    Those that were measured on another processor than the first say on which, and those whose times
    are the processor's say so. The JSON file has it for each row.
    """
    cpu = result["machine"]["cpu"]
    places = Counter(
        (row.get("commit", result["commit"])[:12], row.get("cpu", cpu), row.get("clock", "wall"))
        for row in result["rows"]
    )
    named = [
        f"{count} at {commit}"
        + (f" on {own}" if own != cpu else "")
        + (f" by the {clock}'s clock" if clock != "wall" else "")
        for (commit, own, clock), count in places.most_common()
    ]
    return f"rows by commit: {'; '.join(named)}"


def _times(row: Json) -> list[str]:
    fields = []
    for kind in ("all", "shared", "easy"):
        median = {s: statistics.median(row[f"{kind}_seconds"][s]) for s in ("ours", "peer")}
        at_least = "> " if kind == "all" and row["gave_up"] else ""
        fields += [f"{median['ours']:.3g}, {at_least}{median['peer']:.3g}"]
        fields += [f"{at_least}{row[f'ratio_{kind}']:.2f}x"]
    return fields


def document(text: str, result: Mapping[str, Any]) -> str:
    """Return the document with the table in place of what stands between its markers."""
    return between_markers(text, BEGIN, END, markdown(result))


def run(options: argparse.Namespace) -> int:
    """Measure what is left to measure; return 1 if an optimum differs from the peer's."""
    chosen = [cell for cell in all_cells() if any(part in cell.name for part in options.only)]
    if not chosen:
        given = ", ".join(map(repr, options.only))
        sys.exit(f"--only: got {given}, allowed are parts of {all_cells()[0].name}, ...")
    result: Json = {
        "schema": SCHEMA,
        "boards": options.boards,
        "repeats": options.repeats,
        "max_time": options.max_time,
        "commit": git_commit(),
        "machine": {"cpu": cpu_name(), "cores": usable_cores(), "load_before": os.getloadavg()[0]},
        "rows": [],
    }
    if options.json.exists() and not (options.resume or options.again):
        sys.exit(f"{options.json}: is there; --resume goes on with it, --again measures cells anew")
    anew: set[tuple[str, int]] = set()
    if options.json.exists():
        before = json.loads(options.json.read_text(encoding="utf-8"))
        # Each row says its own number of boards.
        for field in ("schema", "repeats", "max_time"):
            if before[field] != result[field]:
                sys.exit(
                    f"{options.json}: {field} is {before[field]!r}, this run's is "
                    f"{result[field]!r}; choose another --json"
                )
        # Their times were taken on the machine that they name, or on the first one.
        result["machine"] = before["machine"]
        result["commit"] = before["commit"]
        result["rows"] = before["rows"]
        anew = {(cell.name, cores) for cell in chosen for cores in options.cores if options.again}
    done = {(row["cell"], row["cores"]) for row in result["rows"]} - anew
    for cores in options.cores:
        for agents in sorted({cell.agents for cell in chosen}):
            todo = [c for c in chosen if c.agents == agents and (c.name, cores) not in done]
            if not todo:
                continue
            for row in measure(todo, cores, options):
                # An older row of the cell stays until there is the new one.
                place = row["cell"], row["cores"]
                kept = [one for one in result["rows"] if (one["cell"], one["cores"]) != place]
                result["rows"] = [*kept, row | {"commit": git_commit(), "cpu": cpu_name()}]
                options.json.parent.mkdir(parents=True, exist_ok=True)
                write_text_whole(options.json, json.dumps(result, indent=1) + "\n")
                print(
                    f"{row['cell']}, {cores} cores: "
                    f"{row['ratio_shared']:.2f}x where the peer solves, "
                    f"{row['ratio_easy']:.2f}x on 99% of these, {row['ratio_all']:.2f}x on all, "
                    f"{row['unknown']} UNKNOWN, peer gave up on {row['gave_up']}, "
                    f"{row['different']} of {row['compared']} different",
                    flush=True,
                )
    return 1 if any(row["different"] for row in result["rows"]) else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", type=Path, default=RESULT)
    parser.add_argument("--boards", type=number(int, 2), default=1024, help="boards of each cell")
    parser.add_argument("--repeats", type=number(int, 1), default=3)
    parser.add_argument("--cores", type=number(int, 1), nargs="+", default=[1, 2])
    parser.add_argument(
        "--only",
        metavar="PART",
        nargs="+",
        default=[""],
        help="cells with any of these in their name",
    )
    parser.add_argument(
        "--max-time", type=number(float, 0.001), default=1.0, help="seconds of the peer per board"
    )
    parser.add_argument(
        "--clock",
        choices=tuple(CLOCKS),
        default="wall",
        help="the processor's is for one core that other processes share",
    )
    parser.add_argument("--resume", action="store_true", help="leave out cells that are there")
    parser.add_argument(
        "--again",
        action="store_true",
        help="measure cells anew, and keep all others",
    )
    parser.add_argument("--write", action="store_true", help="only write docs/cells.md")
    options = parser.parse_args(argv)
    if options.clock == "processor" and options.cores != [1]:
        cores = " ".join(map(str, options.cores))
        parser.error(f"--clock: got processor with --cores {cores}, it needs --cores 1")
    if options.write:
        text = DOCUMENT.read_text(encoding="utf-8")
        write_text_whole(DOCUMENT, document(text, json.loads(options.json.read_text())))
        return 0
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
