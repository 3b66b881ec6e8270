"""Compare the exact solver with independent oracles on thousands of boards of every kind.

    python -m benchmarks.exactness --boards 20000 --json benchmarks/results/exactness.json

Board i depends only on the seed and on i. Boards cycle through the strata: 2 to 5 agents, sizes 2
to 10, hole ratios 0 to 0.5, starts and goals anywhere or all in one component. In every second
round, boards have as many slots as agents, otherwise five; two slots use a separate search.

The oracles (`benchmarks.oracles`) are CBS in C++, SAT, joint searches in plain Python on small
boards, and permutation groups for unsolvable boards. Boards that they can't decide are listed
separately and count as neither right nor wrong. Finally, the solver alone answers more full-size
boards in five slots, to measure the rate of UNKNOWN.
"""

import argparse
import json
import operator
import os
import random
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxlake
from benchmarks import oracles
from benchmarks.machine import git_commit
from benchmarks.results_file import write_result

AGENTS = (2, 3, 4, 5)
SIZES = tuple(range(2, 11))
HOLE_RATIOS = (0.0, 0.1, 0.2, 0.3, 0.35, 0.4, 0.5)
CHUNK_SIZE = 500
OWN_SLOTS_BATCH = 128  # batch size of boards with as many slots as agents
PACKAGES = ("jax", "jaxlib", "jaxlake", "numpy", "python-sat", "w9-pathfinding")

COUNTS = (
    *("boards", "in_own_slots", "optimal", "unsolvable", "unknown"),
    *("mismatches", "undecided", "cbs_gave_up"),
)
UNKNOWN_SIZE, UNKNOWN_HOLE_RATIO, UNKNOWN_BOARDS = 10, 0.35, 5_000

Json = dict[str, Any]


@dataclass(frozen=True)
class BoardKind:
    """One stratum of boards."""

    agents: int
    size: int
    hole_ratio: float
    together: bool  # starts and goals in the largest component, if they fit there

    @property
    def name(self) -> str:
        """Key in the result files: agents, size, holes, placement."""
        place = "together" if self.together else "anywhere"
        return f"{self.agents}/{self.size}/{self.hole_ratio}/{place}"


def list_strata() -> list[BoardKind]:
    """List all kinds with enough free cells; ratios with equal hole counts appear once."""
    ratios = {
        size: {oracles.hole_count(size, ratio): ratio for ratio in reversed(HOLE_RATIOS)}
        for size in SIZES
    }
    return [
        BoardKind(agents, size, ratio, together)
        for agents in AGENTS
        for size in SIZES
        for holes, ratio in sorted(ratios[size].items())
        for together in (False, True)
        if holes + 2 * agents <= size * size
    ]


def draw_board(seed: int, index: int, kind: BoardKind) -> list[str]:
    """Draw board `index` of a run as a grid."""
    rng = random.Random(f"{seed}/{index}")
    return oracles.random_grid(rng, kind.size, kind.hole_ratio, kind.agents, kind.together)


def count_slots(index: int, kinds: Sequence[BoardKind]) -> int:
    """Return the number of slots of board `index`: five, or its number of agents."""
    round_index, kind_index = divmod(index, len(kinds))
    return kinds[kind_index].agents if round_index % 2 else max(AGENTS)


def solve_each(
    grids: Sequence[list[str]], slot_counts: Sequence[int]
) -> list[oracles.SolverAnswer]:
    """Solve each board in its number of slots, with one compiled program per number."""
    answers: dict[int, oracles.SolverAnswer] = {}
    for num_slots in sorted(set(slot_counts)):
        batch_size = CHUNK_SIZE if num_slots == max(AGENTS) else OWN_SLOTS_BATCH
        rows = [i for i, slot_count in enumerate(slot_counts) if slot_count == num_slots]
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            answers |= zip(
                batch, solve([grids[i] for i in batch], num_slots, batch_size), strict=True
            )
    return [answers[i] for i in range(len(grids))]


def solve(
    grids: Sequence[list[str]], num_slots: int = max(AGENTS), batch_size: int = CHUNK_SIZE
) -> list[oracles.SolverAnswer]:
    """Solve up to `batch_size` boards of at most `num_slots` agents with one compiled program."""
    boards = [jaxlake.parse_grid(grid, max_size=max(SIZES), max_agents=num_slots) for grid in grids]
    batch = boards + boards[:1] * (batch_size - len(boards))
    solutions = jax.device_get(_compile_solver()(jaxlake.stack_instances(batch)))
    answers = []
    for i, board in enumerate(boards):
        agent_slots = np.flatnonzero(board.agent_mask)
        answers.append(
            oracles.SolverAnswer(
                status=jaxlake.Status(int(solutions.status[i])).name,
                sum_of_costs=int(solutions.sum_of_costs[i]),
                makespan=int(solutions.makespan[i]),
                needs_wait=bool(solutions.needs_wait[i]),
                plan=solutions.plan[i][:, agent_slots].tolist(),
                makespan_plan=solutions.makespan_plan[i][:, agent_slots].tolist(),
            )
        )
    return answers


@cache
def _compile_solver() -> Any:
    return jax.jit(jax.vmap(jaxlake.solve))


def judge(grid: list[str]) -> oracles.Truth | str:
    """Return the truth about a board, or a sentence if two oracles contradict each other."""
    try:
        return oracles.judge(grid)
    except oracles.OracleError as error:
        return str(error)


def compare_chunk(
    seed: int, start: int, stop: int, kinds: Sequence[BoardKind], pool: ProcessPoolExecutor
) -> Json:
    """Compare the boards `start` to `stop` - 1; return counts by stratum and all disputes."""
    chunk_kinds = [kinds[index % len(kinds)] for index in range(start, stop)]
    grids = [draw_board(seed, start + offset, kind) for offset, kind in enumerate(chunk_kinds)]
    truths = pool.map(judge, grids, chunksize=8)
    slot_counts = [count_slots(index, kinds) for index in range(start, stop)]
    answers = solve_each(grids, slot_counts)
    counts: dict[str, Counter[str]] = {}
    disputes = []
    for offset, (grid, answer, truth) in enumerate(zip(grids, answers, truths, strict=True)):
        row = counts.setdefault(chunk_kinds[offset].name, Counter())
        row["boards"] += 1
        row["in_own_slots"] += slot_counts[offset] == chunk_kinds[offset].agents
        row[answer.status.lower()] += 1
        dispute: Json = {"board": start + offset, "grid": grid}
        if isinstance(truth, str):
            row["undecided"] += 1
            disputes.append(dispute | {"oracles": truth})
            continue
        row["undecided"] += bool(truth.undecided)
        row["cbs_gave_up"] += truth.cbs_gave_up
        errors = oracles.find_mistakes(grid, truth, answer)
        row["mismatches"] += bool(errors)
        if errors:
            disputes.append(dispute | {"mismatches": errors})
        if truth.undecided:
            disputes.append(dispute | {"undecided": truth.undecided})
    return {"counts": counts, "disputes": disputes}


def measure_unknown_rates(seed: int, num_boards: int) -> list[Json]:
    """Measure how often the solver returns UNKNOWN on full-size boards, by number of agents."""
    rows = []
    for agents in AGENTS:
        kind = BoardKind(agents, UNKNOWN_SIZE, UNKNOWN_HOLE_RATIO, together=False)
        unknown: list[bool] = []
        connected: list[bool] = []
        for start in range(0, num_boards, CHUNK_SIZE):
            indices = range(start, min(start + CHUNK_SIZE, num_boards))
            # No comparison uses boards of negative indices.
            grids = [draw_board(seed, -1 - index, kind) for index in indices]
            unknown += [answer.status == "UNKNOWN" for answer in solve(grids)]
            connected += [oracles.sum_of_distances(grid) is not None for grid in grids]
        unknown_connected = sum(map(operator.and_, unknown, connected))
        rows.append(
            {
                "agents": agents,
                "boards": num_boards,
                "unknown": sum(unknown),
                "interval_95": _interval(sum(unknown), num_boards),
                "connected": sum(connected),
                "unknown_of_connected": unknown_connected,
                "interval_95_of_connected": _interval(unknown_connected, sum(connected)),
            }
        )
        print(
            f"UNKNOWN, {agents} agents, {UNKNOWN_SIZE}x{UNKNOWN_SIZE}, "
            f"{UNKNOWN_HOLE_RATIO:.0%} holes: {sum(unknown)} of {num_boards:,}, "
            f"{unknown_connected} of {sum(connected):,} on which each agent alone gets to its goal",
            flush=True,
        )
    return rows


def _interval(successes: int, count: int) -> list[float]:
    return [round(float(end), 6) for end in jaxlake.wilson_interval(successes, count)]


def summarize(kinds: Sequence[BoardKind], chunks: Sequence[Json]) -> Json:
    """Return the totals, the counts of all strata, and the boards in dispute."""
    counts: dict[str, Counter[str]] = {}
    for chunk in chunks:
        for name, row in chunk["counts"].items():
            counts.setdefault(name, Counter()).update(row)
    strata = [
        asdict(kind) | {field: counts.get(kind.name, Counter())[field] for field in COUNTS}
        for kind in kinds
    ]
    totals = {field: sum(row[field] for row in strata) for field in COUNTS}
    return {
        "total": totals | {"unknown_interval_95": _interval(totals["unknown"], totals["boards"])},
        "disputes": [dispute for chunk in chunks for dispute in chunk["disputes"]],
        "strata": strata,
    }


def main() -> int:
    """Run the comparison and write the result; return 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boards", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result here, too")
    args = parser.parse_args()
    kinds, chunks = list_strata(), []
    with oracles.start_judging_pool(os.cpu_count() or 1) as pool:
        for start in range(0, args.boards, CHUNK_SIZE):
            stop = min(start + CHUNK_SIZE, args.boards)
            chunks.append(compare_chunk(args.seed, start, stop, kinds, pool))
            for dispute in chunks[-1]["disputes"]:
                print(json.dumps(dispute), flush=True)
            print(f"{stop:,} of {args.boards:,} boards", flush=True)
    settings = {
        "commit": git_commit(),
        "boards": args.boards,
        "seed": args.seed,
        "horizon": jaxlake.DEFAULT_HORIZON,
        "sat_conflicts": oracles.JUDGING_CONFLICTS,
        "cbs_seconds": oracles.CBS_SECONDS,
        "device": jax.devices()[0].device_kind,
        **{package: version(package) for package in PACKAGES},
    }
    rates = measure_unknown_rates(args.seed, UNKNOWN_BOARDS)
    full_size = {"size": UNKNOWN_SIZE, "hole_ratio": UNKNOWN_HOLE_RATIO, "rows": rates}
    report = {"settings": settings, "unknown_at_full_size": full_size, **summarize(kinds, chunks)}
    if args.json is not None:
        write_result(args.json, report)
    print(json.dumps(report["total"], indent=1))
    return 1 if any("undecided" not in dispute for dispute in report["disputes"]) else 0


if __name__ == "__main__":
    sys.exit(main())
