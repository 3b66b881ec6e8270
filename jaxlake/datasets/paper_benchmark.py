"""A benchmark of the paper's shape: 3,150 solved boards of 3 to 5 agents.

21 cells (3 agents: 3x3 to 10x10; 4 agents: 4x4 to 10x10; 5 agents: 5x5 to 10x10), in each of them
hole ratios 0.1 to 0.5 and wait ratios 0.25, 0.5 and 0.75, ten boards of each. The published
boards are others: these are drawn by `jaxlake.generate`, with optima that are proved.

Every wait ratio is a configuration of its own (`benchmark_wr0.25`, ...), as in the published set,
and a JSON-lines file. Of ten boards 3, 5 and 8 shall need a wait (2.5 and 7.5 rounded, halves up).
All boards of one number of agents and one size are different, also across configurations.

Where boards do not exist: a board of n x n cells shall have floor(hole_ratio * n * n) holes. Where
starts and goals of all agents don't fit beside them, it has as many as leave just enough cells: of
the 21 cells this concerns 3 agents on 3x3 at 0.5 (3 holes instead of 4). Where one kind of boards
(needing a wait or not) runs out, which is after `max_candidates` candidates, boards of the other
kind take the place of the missing ones; where both run out, boards with one hole less do, and so
on. Such rows stay in their configuration and count in its number of boards; each row says what was
asked for (`requested_*`) and what it is.

The benchmark is reproducible: random bits are JAX's threefry, which is specified bit by bit and
does not change with JAX's version or the device. The hashes cover boards, requests and optima, not
the plans, so that they don't depend on how a solver breaks ties. A candidate that is UNKNOWN to the
solver is not used; how many there were is recorded beside the hashes.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from threading import Event, Lock
from typing import Any

import jax
import numpy as np

from jaxlake.board.dynamics import Action
from jaxlake.board.grids import format_grid
from jaxlake.board.instance import Instance, agent_tasks
from jaxlake.datasets.published import RECORD
from jaxlake.datasets.source_files import DatasetError, read_json, read_rows
from jaxlake.files import write_text_whole
from jaxlake.generator import hole_count, lake_params
from jaxlake.generator.board_digests import DigestSet
from jaxlake.generator.quotas import COUNTERS, DrawOptions, SolvedBoards, fill_quotas
from jaxlake.solver import DEFAULT_HORIZON

Row = dict[str, Any]

_BOARD = ("sample_id", "num_agents", "size", "grid")
_REQUESTED = ("hole_ratio", "wait_ratio", "holes", "needs_wait")
_OPTIMUM = ("holes", "needs_wait", "sum_of_costs", "makespan")
_HASHED = (*_BOARD, *(f"requested_{name}" for name in _REQUESTED), *_OPTIMUM)


@dataclass(frozen=True)
class Benchmark:
    """What decides a benchmark; one that is published under a version never changes."""

    version: str
    seed: int
    cells: tuple[tuple[int, int], ...]  # (agents, size)
    hole_ratios: tuple[float, ...]
    wait_ratios: tuple[float, ...]
    boards_each: int
    max_candidates: int
    max_size: int = 10
    max_agents: int = 5
    horizon: int = DEFAULT_HORIZON

    @property
    def configurations(self) -> tuple[str, ...]:
        """One name per wait ratio."""
        return tuple(f"benchmark_wr{ratio:g}" for ratio in self.wait_ratios)

    @property
    def quota(self) -> np.ndarray:
        """int64 (W, 2), of one hole ratio: boards that need no wait, and that need one."""
        waits = [int(np.floor(ratio * self.boards_each + 0.5)) for ratio in self.wait_ratios]
        return np.array([[self.boards_each - wait, wait] for wait in waits])


V2 = Benchmark(
    version="v2",
    seed=260617682,  # the paper's number on arXiv
    cells=tuple((agents, size) for agents in (3, 4, 5) for size in range(agents, 11)),
    hole_ratios=(0.1, 0.2, 0.3, 0.4, 0.5),
    wait_ratios=(0.25, 0.5, 0.75),
    boards_each=10,
    max_candidates=1 << 17,
)


@dataclass(frozen=True)
class BenchmarkCell:
    """One number of agents on one size of board."""

    agents: int
    size: int
    rows: dict[str, list[Row]]  # by configuration
    counters: dict[str, int]  # each of `quotas.COUNTERS`

    @property
    def name(self) -> str:
        """The name of the cell, such as 3ag_3x3, which the ids of its rows begin with."""
        return cell_name(self.agents, self.size)


def cell_name(agents: int, size: int) -> str:
    """Give the name of a cell."""
    return f"{agents}ag_{size}x{size}"


def minimal_prompt(instance: Instance) -> str:
    """Write the shortest text that `find_board` reads: the rows, then one line per agent."""
    tasks = [
        f"Agent {agent} needs to go from ({r}, {c}) to ({goal_r}, {goal_c})"
        for agent, r, c, goal_r, goal_c in agent_tasks(instance)
    ]
    return "\n".join([*format_grid(instance), *tasks]) + "\n"


def make_cell(
    benchmark: Benchmark,
    agents: int,
    size: int,
    *,
    text: Callable[[Instance], str] = minimal_prompt,
) -> BenchmarkCell:
    """Make the rows of one cell. They depend on the benchmark and on this cell only.

    A row has the published fields `sample_id` (`3ag_3x3_hr0.1_000`, counted within the
    configuration), `num_agents` and `text`; what was asked for: `requested_hole_ratio`,
    `requested_wait_ratio`, `requested_holes`, `requested_needs_wait`; the board: `size`, `grid`,
    `holes`; and its optimum: `needs_wait`, `sum_of_costs`, `makespan`, `plan` (names of actions,
    one list per agent up to its last arrival; it attains the sum of costs). It is a `DatasetError`
    if there are not enough boards even without holes.
    """
    key = jax.random.key(benchmark.seed, impl="threefry2x32")
    key = jax.random.fold_in(jax.random.fold_in(key, agents), size)
    seen = DigestSet()
    rows: dict[str, list[Row]] = {name: [] for name in benchmark.configurations}
    counters = dict.fromkeys(COUNTERS, 0)
    for number, hole_ratio in enumerate(benchmark.hole_ratios):
        place = jax.random.fold_in(key, number)
        boards, spent = _boards(benchmark, place, agents, size, hole_ratio, seen)
        for name in COUNTERS:
            counters[name] += spent[name]
        dealt = zip(rows, benchmark.wait_ratios, _deal(boards, benchmark), strict=True)
        for config, wait_ratio, places in dealt:
            for index, (board, needs_wait) in enumerate(places):
                single = boards.take(np.asarray(board))
                row = {
                    "sample_id": f"{cell_name(agents, size)}_hr{hole_ratio:g}_{index:03d}",
                    "num_agents": agents,
                    "text": text(single.instances),
                    "size": size,
                    "grid": format_grid(single.instances),
                    "requested_hole_ratio": hole_ratio,
                    "requested_wait_ratio": wait_ratio,
                    "requested_holes": int(hole_count(size, hole_ratio)),
                    "requested_needs_wait": needs_wait,
                }
                rows[config].append(row | _facts(single, agents))
    return BenchmarkCell(agents, size, rows, counters)


def write_benchmark(
    directory: str | Path,
    *,
    benchmark: Benchmark = V2,
    text: Callable[[Instance], str] = minimal_prompt,
    progress: Callable[[BenchmarkCell, int, int], None] | None = None,
) -> dict[str, Any]:
    """Make the whole benchmark: one JSON-lines file per configuration, and a record of hashes.

    The folder is made if need be; files of these names are replaced. `text` makes each row's
    `text`, which is not part of the hashes. `progress` is called after each cell with it, the
    number of cells done and of all. Gives the record of `make_record`, also in `record_name`.

    One program makes all cells. It is compiled with the first one, and the others are made side by
    side, in as many threads as there are cores.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    cells = _make_cells(benchmark, text, progress or (lambda *_: None))
    configurations = benchmark.configurations
    rows = {name: [row for cell in cells for row in cell.rows[name]] for name in configurations}
    unknown = {cell.name: cell.counters["unknown"] for cell in cells}
    for config, lines in rows.items():
        content = "".join(json.dumps(row) + "\n" for row in lines)
        write_text_whole(directory / f"{config}.jsonl", content)
    record = make_record(benchmark, rows, unknown)
    content = json.dumps(record, indent=1) + "\n"
    write_text_whole(directory / record_name(benchmark), content)
    return record


def _make_cells(
    benchmark: Benchmark,
    text: Callable[[Instance], str],
    report: Callable[[BenchmarkCell, int, int], None],
) -> list[BenchmarkCell]:
    """Make all cells, and give them in the order of the benchmark."""
    made: dict[tuple[int, int], BenchmarkCell] = {}
    reporting, stopped = Lock(), Event()

    def make(agents: int, size: int) -> None:
        if stopped.is_set():
            return
        cell = make_cell(benchmark, agents, size, text=text)
        with reporting:
            made[agents, size] = cell
            report(cell, len(made), len(benchmark.cells))

    first, *others = benchmark.cells
    make(*first)
    threads = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        # Boards of many agents take the longest, so they begin first.
        tasks = [threads.submit(make, *place) for place in sorted(others, reverse=True)]
        for task in as_completed(tasks):
            task.result()
    finally:
        # Where one failed or was interrupted, nobody waits for the others, which end after their
        # present cell.
        stopped.set()
        threads.shutdown(wait=False)
    return [made[place] for place in benchmark.cells]


def read_benchmark(
    directory: str | Path, *, benchmark: Benchmark = V2
) -> tuple[dict[str, list[Row]], dict[str, Any]]:
    """The rows by configuration that `write_benchmark` wrote, and the record beside them.

    Raises:
        DatasetError: a file is missing, not JSON, or a row lacks a field.
    """
    directory = Path(directory)
    rows: dict[str, list[Row]] = {}
    for config in benchmark.configurations:
        rows[config] = []
        for place, row in read_rows(directory / f"{config}.jsonl"):
            if missing := [field for field in _HASHED if field not in row]:
                raise DatasetError(f"{place}: the fields {', '.join(missing)} are missing")
            rows[config].append(row)
    return rows, read_json(directory / record_name(benchmark))


def make_record(
    benchmark: Benchmark, rows: Mapping[str, Sequence[Row]], unknown: Mapping[str, int]
) -> dict[str, Any]:
    """Count and hash the rows, given by configuration, of every cell and of the whole.

    Gives `version`, `rows`, `sha256` (of the lines "CELL SHA256"), and for each cell `rows`,
    `fewer_holes` and `other_kind` (rows that are not what was asked for), `unknown` (candidates
    that the solver could say nothing about) and `sha256`.
    """
    cells: dict[str, dict[str, Any]] = {}
    for agents, size in benchmark.cells:
        name = cell_name(agents, size)
        here = [
            (config, row)
            for config in benchmark.configurations
            for row in rows[config]
            if (row["num_agents"], row["size"]) == (agents, size)
        ]
        digest = hashlib.sha256()
        for config, row in here:
            values = [config, *(row[field] for field in _HASHED)]
            digest.update(json.dumps(values, separators=(",", ":")).encode() + b"\n")
        cells[name] = {
            "rows": len(here),
            "fewer_holes": sum(row["holes"] != row["requested_holes"] for _, row in here),
            "other_kind": sum(row["needs_wait"] != row["requested_needs_wait"] for _, row in here),
            "unknown": unknown.get(name, 0),
            "sha256": digest.hexdigest(),
        }
    total = hashlib.sha256("".join(f"{n} {c['sha256']}\n" for n, c in cells.items()).encode())
    return {
        "version": benchmark.version,
        "rows": sum(len(lines) for lines in rows.values()),
        "sha256": total.hexdigest(),
        "cells": cells,
    }


def record_name(benchmark: Benchmark = V2) -> str:
    """The file name of a record, beside the rows and in this package."""
    return f"{RECORD}{benchmark.version}.json"


def committed_record(benchmark: Benchmark = V2) -> dict[str, Any]:
    """The record that this package holds of a published benchmark, or a `DatasetError`."""
    file = resources.files("jaxlake.datasets") / record_name(benchmark)
    if not file.is_file():
        raise DatasetError(f"{record_name(benchmark)}: is not part of this package")
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return record


def record_differences(record: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Say where a record differs from the expected one: one line per difference."""
    said = []
    if record.get("version") != expected["version"]:
        said.append(f"version: got {record.get('version')!r}, expected {expected['version']!r}")
    got = record.get("cells", {})
    said += [f"{name}: unexpected" for name in got if name not in expected["cells"]]
    for name, cell in expected["cells"].items():
        for field in ("rows", "sha256"):
            value = got.get(name, {}).get(field)
            if value != cell[field]:
                said.append(f"{name}: {field}: got {value}, expected {cell[field]}")
    if record.get("sha256") != expected["sha256"] and not said:
        said.append(f"sha256: got {record.get('sha256')}, expected {expected['sha256']}")
    return said


def _boards(
    benchmark: Benchmark, key: jax.Array, agents: int, size: int, hole_ratio: float, seen: DigestSet
) -> tuple[SolvedBoards, dict[str, int]]:
    """As many boards as one hole ratio needs, by the rule for boards that do not exist."""
    wanted = benchmark.quota.sum(axis=0)
    names = ("max_size", "max_agents", "horizon", "max_candidates")
    options = DrawOptions(int(wanted.sum()), **{name: getattr(benchmark, name) for name in names})
    parts: list[SolvedBoards] = []
    spent = dict.fromkeys(COUNTERS, 0)
    holes = min(int(hole_count(size, hole_ratio)), size * size - 2 * agents)
    missing = wanted.copy()
    while missing.any():
        if holes < 0:
            raise DatasetError(
                f"{cell_name(agents, size)}, hole_ratio {hole_ratio:g}: {missing.sum()} of "
                f"{wanted.sum()} boards are missing, and there are none with fewer holes"
            )
        params = lake_params(size, hole_ratio=holes / size**2, num_agents=agents)
        for turn in range(2):
            place = jax.random.fold_in(jax.random.fold_in(key, holes), turn)
            made = fill_quotas(place, params, missing[None], seen, options, oversample=True)
            parts.append(made.boards)
            missing = missing - made.made[0]
            for name in COUNTERS:
                spent[name] += int(made.counters[name][0])
            # What is missing of one kind is asked for of the other one in the second turn.
            missing = missing[::-1] if missing.any() else missing
        holes -= 1
    return SolvedBoards.concatenate(parts), spent


def _deal(boards: SolvedBoards, benchmark: Benchmark) -> list[list[tuple[int, bool]]]:
    """Which board goes where: for each configuration (index, kind that was asked for).

    Boards fill the places of their kind in the order in which they were found, configuration by
    configuration. What stands in for a kind that ran out, or has fewer holes, was found last and
    goes where places are left.
    """
    kinds = np.asarray(boards.solutions.needs_wait).astype(int)
    left = benchmark.quota.copy()
    dealt: list[list[tuple[int, bool]]] = [[] for _ in benchmark.configurations]
    for board, kind in enumerate(kinds.tolist()):
        place = kind if left[:, kind].any() else 1 - kind
        config = int(np.argmax(left[:, place] > 0))
        left[config, place] -= 1
        dealt[config].append((board, bool(place)))
    return dealt


def _facts(board: SolvedBoards, agents: int) -> Row:
    instance, solution = board.instances, board.solutions
    size = int(instance.size)
    plan = np.asarray(solution.plan)[:, :agents].T
    names = [[Action(int(a)).name for a in np.trim_zeros(actions, "b")] for actions in plan]
    return {
        "holes": int(np.sum(np.asarray(instance.holes)[:size, :size])),
        "needs_wait": bool(solution.needs_wait),
        "sum_of_costs": int(solution.sum_of_costs),
        "makespan": int(solution.makespan),
        "plan": names,
    }
