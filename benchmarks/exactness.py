"""The exact solver against independent oracles on thousands of boards of every kind.

    python benchmarks/exactness.py --boards 20000 --json benchmarks/results/exactness.json

Board i depends on the seed and on i only. Strata take turns: 2 to 5 agents, sizes 2 to 10, hole
ratios 0 to 0.5, starts and goals anywhere or all in one component. The oracles (tests/oracles) are
CBS in C++, SAT, joint searches in plain Python on small boards, and permutation groups for what
can't be solved. What they can't decide is listed apart and counts as nothing. The solver alone then
answers more boards of full size, for the rate of UNKNOWN.

Results are kept, chunk by chunk, beside the JSON file; `--resume` goes on from there.
"""

import argparse
import json
import operator
import os
import platform
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import oracles

AGENTS = (2, 3, 4, 5)
SIZES = tuple(range(2, 11))
HOLE_RATIOS = (0.0, 0.1, 0.2, 0.3, 0.35, 0.4, 0.5)
CHUNK = 500
PACKAGES = ("jax", "jaxlib", "jaxlake", "numpy", "python-sat", "w9-pathfinding")

COUNTS = ("boards", "optimal", "unsolvable", "unknown", "mismatches", "undecided", "cbs_gave_up")
UNKNOWN_SIZE, UNKNOWN_HOLE_RATIO = 10, 0.35

Json = dict[str, Any]


@dataclass(frozen=True)
class Stratum:
    """One kind of boards."""

    agents: int
    size: int
    hole_ratio: float
    together: bool  # starts and goals in the largest component, if they fit there

    @property
    def name(self) -> str:
        """Its key in the files: agents, size, holes, placement."""
        place = "together" if self.together else "anywhere"
        return f"{self.agents}/{self.size}/{self.hole_ratio}/{place}"


def strata() -> list[Stratum]:
    """All kinds for which the free cells suffice; of ratios with equal hole counts the first."""
    ratios = {
        size: {oracles.hole_count(size, ratio): ratio for ratio in reversed(HOLE_RATIOS)}
        for size in SIZES
    }
    return [
        Stratum(agents, size, ratio, together)
        for agents in AGENTS
        for size in SIZES
        for holes, ratio in sorted(ratios[size].items())
        for together in (False, True)
        if holes + 2 * agents <= size * size
    ]


def board(seed: int, index: int, kind: Stratum) -> list[str]:
    """Board `index` of a run, a grid in the published symbols."""
    rng = random.Random(f"{seed}/{index}")
    return oracles.random_grid(rng, kind.size, kind.hole_ratio, kind.agents, kind.together)


def solve(grids: Sequence[list[str]]) -> list[oracles.Answer]:
    """The solver's answers, by one program for batches of CHUNK boards of up to five agents."""
    import jax
    import numpy as np

    from jaxlake import Status, parse_grid, stack_instances

    parsed = [parse_grid(grid, max_size=max(SIZES), max_agents=max(AGENTS)) for grid in grids]
    filled = parsed + parsed[:1] * (CHUNK - len(parsed))
    solutions = jax.device_get(_solver()(stack_instances(filled)))
    answers = []
    for i, instance in enumerate(parsed):
        slots = np.flatnonzero(instance.agent_mask)
        answers.append(
            oracles.Answer(
                status=Status(int(solutions.status[i])).name,
                sum_of_costs=int(solutions.sum_of_costs[i]),
                makespan=int(solutions.makespan[i]),
                needs_wait=bool(solutions.needs_wait[i]),
                plan=solutions.plan[i][:, slots].tolist(),
                makespan_plan=solutions.makespan_plan[i][:, slots].tolist(),
            )
        )
    return answers


@cache
def _solver() -> Any:
    import jax

    import jaxlake

    return jax.jit(jax.vmap(jaxlake.solve))


def judge(grid: list[str]) -> oracles.Truth | str:
    """What is true of a board, or how two oracles contradict each other."""
    try:
        return oracles.judge(grid)
    except oracles.OracleError as error:
        return str(error)


def compare_chunk(
    seed: int, start: int, stop: int, kinds: Sequence[Stratum], pool: ProcessPoolExecutor
) -> Json:
    """Counts by stratum, and every board in dispute, of the boards start to stop - 1."""
    chosen = [kinds[index % len(kinds)] for index in range(start, stop)]
    grids = [board(seed, start + n, kind) for n, kind in enumerate(chosen)]
    truths = pool.map(judge, grids, chunksize=8)
    began = time.perf_counter()
    answers = solve(grids)
    solver_seconds = time.perf_counter() - began
    counts: dict[str, Counter[str]] = {}
    disputes = []
    for n, truth in enumerate(truths):
        grid, answer = grids[n], answers[n]
        row = counts.setdefault(chosen[n].name, Counter())
        row["boards"] += 1
        row[answer.status.lower()] += 1
        dispute: Json = {"board": start + n, "grid": grid}
        if isinstance(truth, str):
            row["undecided"] += 1
            disputes.append(dispute | {"oracles": truth})
            continue
        row["undecided"] += bool(truth.undecided)
        row["cbs_gave_up"] += truth.cbs_gave_up
        wrong = oracles.mistakes(grid, truth, answer)
        row["mismatches"] += bool(wrong)
        if wrong:
            disputes.append(dispute | {"mismatches": wrong})
        if truth.undecided:
            disputes.append(dispute | {"undecided": truth.undecided})
    return {
        "start": start,
        "stop": stop,
        "counts": counts,
        "disputes": disputes,
        "solver_seconds": round(solver_seconds, 3),
    }


def unknown_rates(seed: int, boards: int) -> list[Json]:
    """How often the solver says UNKNOWN on full size boards, for each number of agents."""
    rows = []
    for agents in AGENTS:
        kind = Stratum(agents, UNKNOWN_SIZE, UNKNOWN_HOLE_RATIO, together=False)
        unknown: list[bool] = []
        connected: list[bool] = []
        for start in range(0, boards, CHUNK):
            indices = range(start, min(start + CHUNK, boards))
            # Negative indices are the boards of no comparison.
            grids = [board(seed, -1 - index, kind) for index in indices]
            unknown += [answer.status == "UNKNOWN" for answer in solve(grids)]
            connected += [oracles.sum_of_distances(grid) is not None for grid in grids]
        of_connected = sum(map(operator.and_, unknown, connected))
        rows.append(
            {
                "agents": agents,
                "boards": boards,
                "unknown": sum(unknown),
                "interval_95": _interval(sum(unknown), boards),
                "connected": sum(connected),
                "unknown_of_connected": of_connected,
                "interval_95_of_connected": _interval(of_connected, sum(connected)),
            }
        )
        print(
            f"UNKNOWN, {agents} agents, {UNKNOWN_SIZE}x{UNKNOWN_SIZE}, "
            f"{UNKNOWN_HOLE_RATIO:.0%} holes: {sum(unknown)} of {boards:,}, "
            f"{of_connected} of {sum(connected):,} on which each agent alone gets to its goal",
            flush=True,
        )
    return rows


def _interval(successes: int, total: int) -> list[float]:
    from jaxlake import wilson_interval

    return [round(float(end), 6) for end in wilson_interval(successes, total)]


def settings(args: argparse.Namespace) -> Json:
    """What a result depends on; chunks of other settings are not gone on with."""
    import jax

    from jaxlake import DEFAULT_HORIZON

    return {
        "boards": args.boards,
        "seed": args.seed,
        "horizon": DEFAULT_HORIZON,
        "sat_conflicts": oracles.CONFLICTS,
        "cbs_seconds": oracles.CBS_SECONDS,
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
    }


def chunks_of(path: Path, wanted: Json, resume: bool) -> list[Json]:
    """Chunks of an interrupted run. A line cut short by the interruption is left out.

    Raises:
        SystemExit: the file is of other settings.
    """
    if not resume or not path.exists():
        return []
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    if lines and lines[0] != wanted:
        sys.exit(f"{path}: its settings are others, go on without --resume")
    return lines[1:]


def run(args: argparse.Namespace) -> int:
    """Compare, print, write; 1 if anything is in dispute but what no oracle could decide."""
    target = Path(args.json)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial.jsonl")
    wanted = settings(args)
    chunks = chunks_of(partial, wanted, args.resume)
    _write(partial, "".join(json.dumps(line) + "\n" for line in [wanted, *chunks]))
    kinds = strata()
    began = time.monotonic()
    first = chunks[-1]["stop"] if chunks else 0
    with oracles.processes(args.workers) as pool, partial.open("a", encoding="utf-8") as out:
        for start in range(first, args.boards, CHUNK):
            stop = min(start + CHUNK, args.boards)
            chunks.append(compare_chunk(args.seed, start, stop, kinds, pool))
            out.write(json.dumps(chunks[-1]) + "\n")
            out.flush()
            for dispute in chunks[-1]["disputes"]:
                print(json.dumps(dispute), flush=True)
            pace = (stop - first) / (time.monotonic() - began)
            print(f"{stop:,} of {args.boards:,} boards, {pace:,.0f}/s", flush=True)
    rates = unknown_rates(args.seed, args.unknown_boards)
    report = summary(wanted, kinds, chunks, rates)
    _write(target, "\n".join(_one_row_a_line(report)) + "\n")
    partial.unlink()
    print("\n".join(table(report)))
    return 1 if any("undecided" not in dispute for dispute in report["disputes"]) else 0


def summary(wanted: Json, kinds: Sequence[Stratum], chunks: Sequence[Json], rates: Any) -> Json:
    """The result file: totals, each stratum, every board in dispute, the rates of UNKNOWN."""
    counts: dict[str, Counter[str]] = {}
    for chunk in chunks:
        for name, row in chunk["counts"].items():
            counts.setdefault(name, Counter()).update(row)
    rows: list[Json] = [
        {
            "agents": kind.agents,
            "size": kind.size,
            "hole_ratio": kind.hole_ratio,
            "together": kind.together,
            **{field: counts.get(kind.name, Counter())[field] for field in COUNTS},
        }
        for kind in kinds
    ]
    total: dict[str, int] = {field: sum(row[field] for row in rows) for field in COUNTS}
    interval = _interval(total["unknown"], total["boards"])
    return {
        "settings": wanted,
        "total": {**total, "unknown_interval_95": interval},
        "unknown_at_full_size": {
            "size": UNKNOWN_SIZE,
            "hole_ratio": UNKNOWN_HOLE_RATIO,
            "rows": rates,
        },
        "disputes": [dispute for chunk in chunks for dispute in chunk["disputes"]],
        "strata": rows,
    }


def table(report: Json) -> Iterator[str]:
    """The strata by agents and size, for people; UNKNOWN with its interval at 95%."""
    yield f"{'agents':>6} {'size':>5} " + " ".join(f"{name:>11}" for name in COUNTS) + "   UNKNOWN"
    pairs = dict.fromkeys((row["agents"], row["size"]) for row in report["strata"])
    for agents, size in pairs:
        rows = [r for r in report["strata"] if (r["agents"], r["size"]) == (agents, size)]
        yield _table_row(f"{agents:>6} {size:>5}", rows)
    for agents in AGENTS:
        yield _table_row(
            f"{agents:>6} {'all':>5}", [r for r in report["strata"] if r["agents"] == agents]
        )
    yield _table_row(f"{'all':>6} {'all':>5}", report["strata"])


def _table_row(label: str, rows: Sequence[Json]) -> str:
    sums = {name: sum(row[name] for row in rows) for name in COUNTS}
    low, high = _interval(sums["unknown"], sums["boards"])
    return (
        f"{label} "
        + " ".join(f"{sums[name]:>11,}" for name in COUNTS)
        + (f"   {low:.2%} to {high:.2%}")
    )


def _one_row_a_line(report: Json) -> Iterator[str]:
    """JSON in which lists of records have a record a line, so that changes can be read."""
    yield "{"
    for n, (name, value) in enumerate(report.items()):
        comma = "," if n < len(report) - 1 else ""
        if isinstance(value, list):
            yield f"  {json.dumps(name)}: ["
            yield ",\n".join(f"    {json.dumps(row)}" for row in value)
            yield f"  ]{comma}"
        else:
            yield f"  {json.dumps(name)}: {json.dumps(value)}{comma}"
    yield "}"


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boards", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", default="benchmarks/results/exactness.json")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    parser.add_argument("--workers", type=int, default=2, help="processes for the oracles")
    parser.add_argument(
        "--unknown-boards", type=int, default=5_000, help="boards for the rates of UNKNOWN"
    )
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
