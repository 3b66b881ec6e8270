"""A benchmark with the structure of the paper's: 3,150 boards of 3 to 5 agents with proved optima.

A cell of the benchmark is a number of agents and a board size. Hashes cover boards, requests and
optima, but not plans, so solvers may break ties differently.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxlake.board.grids import format_grid
from jaxlake.datasets.solution_fields import optimum_fields
from jaxlake.datasets.source_files import DatasetError, read_rows
from jaxlake.files import write_text_atomic
from jaxlake.generator import hole_count, lake_params
from jaxlake.generator.board_digests import DigestSet
from jaxlake.generator.quotas import DrawOptions, SolvedBoards, fill_quotas
from jaxlake.language.prompts import render
from jaxlake.solver import DEFAULT_HORIZON

Row = dict[str, Any]
RowsByConfiguration = dict[str, list[Row]]

_HASHED_FIELDS = (
    *("sample_id", "num_agents", "size", "grid"),
    *("requested_hole_ratio", "requested_wait_ratio", "requested_holes", "requested_needs_wait"),
    *("holes", "needs_wait", "sum_of_costs", "makespan"),
)


@dataclass(frozen=True)
class Benchmark:
    """The parameters of a benchmark; those of a published version never change."""

    version: str
    seed: int
    cells: tuple[tuple[int, int], ...]  # (agents, size)
    hole_ratios: tuple[float, ...]
    wait_ratios: tuple[float, ...]
    boards_each: int  # boards per cell, hole ratio and wait ratio
    max_candidates: int  # per kind and call of the generator
    max_size: int = 10
    max_agents: int = 5
    horizon: int = DEFAULT_HORIZON

    @property
    def configurations(self) -> tuple[str, ...]:
        """One name per wait ratio."""
        return tuple(f"benchmark_wr{ratio:g}" for ratio in self.wait_ratios)

    @property
    def quota(self) -> np.ndarray:
        """Boards per wait ratio that need no wait and that need one, int64 (W, 2)."""
        num_waits = [int(np.floor(ratio * self.boards_each + 0.5)) for ratio in self.wait_ratios]
        return np.array([[self.boards_each - num_wait, num_wait] for num_wait in num_waits])


V2 = Benchmark(
    version="v2",
    seed=260617682,  # the paper's number on arXiv
    cells=tuple((agents, size) for agents in (3, 4, 5) for size in range(agents, 11)),
    hole_ratios=(0.1, 0.2, 0.3, 0.4, 0.5),
    wait_ratios=(0.25, 0.5, 0.75),
    boards_each=10,
    max_candidates=1 << 17,
)


def cell_name(num_agents: int, size: int) -> str:
    """Return the name of a cell."""
    return f"{num_agents}ag_{size}x{size}"


def make_cell(benchmark: Benchmark, num_agents: int, size: int) -> RowsByConfiguration:
    """Return the rows of one cell by configuration; they only depend on the arguments.

    A row has the published fields `sample_id` (`3ag_3x3_hr0.1_000`), `num_agents` and `text` (a
    prompt in style `full`), the requested values (`requested_*`), the board, and its optimum.

    Raises:
        DatasetError: there are not enough boards, even without holes.
    """
    key = jax.random.key(benchmark.seed, impl="threefry2x32")
    key = jax.random.fold_in(jax.random.fold_in(key, num_agents), size)
    digest_set = DigestSet()
    rows: RowsByConfiguration = {name: [] for name in benchmark.configurations}
    for ratio_index, hole_ratio in enumerate(benchmark.hole_ratios):
        boards_key = jax.random.fold_in(key, ratio_index)
        boards = _make_boards(benchmark, boards_key, num_agents, size, hole_ratio, digest_set)
        assignments = _assign_boards(boards, benchmark)
        for config, wait_ratio, board_indices in zip(
            rows, benchmark.wait_ratios, assignments, strict=True
        ):
            for index, (board_index, needs_wait) in enumerate(board_indices):
                board = boards.take(np.asarray(board_index))
                holes = np.asarray(board.instances.holes)[:size, :size]
                row = {
                    "sample_id": f"{cell_name(num_agents, size)}_hr{hole_ratio:g}_{index:03d}",
                    "num_agents": num_agents,
                    "text": render(board.instances, "full"),
                    "size": size,
                    "grid": format_grid(board.instances),
                    "requested_hole_ratio": hole_ratio,
                    "requested_wait_ratio": wait_ratio,
                    "requested_holes": int(hole_count(size, hole_ratio)),
                    "requested_needs_wait": needs_wait,
                    "holes": int(np.sum(holes)),
                    **optimum_fields(board.solutions, num_agents),
                }
                rows[config].append(row)
    return rows


def write_benchmark(
    directory: str | Path,
    *,
    benchmark: Benchmark = V2,
    progress: Callable[[str, int, int], None] | None = None,
) -> RowsByConfiguration:
    """Make the benchmark, write one JSON-lines file per configuration, and return the rows.

    Args:
        directory: the folder; created if it does not exist.
        benchmark: the parameters.
        progress: called after each cell with its name, the number of finished cells, and the total.

    Returns:
        The rows by configuration.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    cells = _make_cells(benchmark, progress or (lambda *_: None))
    rows = {
        name: [row for cell in cells for row in cell[name]] for name in benchmark.configurations
    }
    for config, config_rows in rows.items():
        content = "".join(json.dumps(row) + "\n" for row in config_rows)
        write_text_atomic(directory / f"{config}.jsonl", content)
    return rows


def _make_cells(
    benchmark: Benchmark, report: Callable[[str, int, int], None]
) -> list[RowsByConfiguration]:
    """Make all cells in threads, and return them in benchmark order."""
    # The first cell compiles the shared program; then the slowest cells start first.
    first_cell, *other_cells = benchmark.cells
    rows = {first_cell: make_cell(benchmark, *first_cell)}
    report(cell_name(*first_cell), 1, len(benchmark.cells))
    threads = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        ordered_cells = sorted(other_cells, reverse=True)
        results = threads.map(lambda cell: make_cell(benchmark, *cell), ordered_cells)
        for cell, cell_rows in zip(ordered_cells, results, strict=True):
            rows[cell] = cell_rows
            report(cell_name(*cell), len(rows), len(benchmark.cells))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
    return [rows[cell] for cell in benchmark.cells]


def read_benchmark(directory: str | Path, *, benchmark: Benchmark = V2) -> RowsByConfiguration:
    """Read the rows of `write_benchmark`; raise `DatasetError` if a file is invalid."""
    rows: RowsByConfiguration = {name: [] for name in benchmark.configurations}
    for config, config_rows in rows.items():
        for location, row in read_rows(Path(directory) / f"{config}.jsonl"):
            if missing_fields := [field for field in _HASHED_FIELDS if field not in row]:
                raise DatasetError(
                    f"{location}: the fields {', '.join(missing_fields)} are missing"
                )
            config_rows.append(row)
    return rows


def make_record(benchmark: Benchmark, rows: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Return the row counts and hashes of each cell and of the whole benchmark."""
    cells: dict[str, dict[str, Any]] = {}
    for num_agents, size in benchmark.cells:
        num_rows, digest = 0, hashlib.sha256()
        for config in benchmark.configurations:
            for row in rows[config]:
                if (row["num_agents"], row["size"]) == (num_agents, size):
                    values = [config, *(row[field] for field in _HASHED_FIELDS)]
                    digest.update(json.dumps(values, separators=(",", ":")).encode() + b"\n")
                    num_rows += 1
        cells[cell_name(num_agents, size)] = {"rows": num_rows, "sha256": digest.hexdigest()}
    cell_hashes = "".join(f"{name} {cell['sha256']}\n" for name, cell in cells.items())
    return {
        "version": benchmark.version,
        "rows": sum(map(len, rows.values())),
        "sha256": hashlib.sha256(cell_hashes.encode()).hexdigest(),
        "cells": cells,
    }


def read_published_record() -> dict[str, Any]:
    """Return the record of `V2` shipped with this package."""
    file = resources.files("jaxlake.datasets") / f"paper_benchmark_{V2.version}.json"
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return record


def compare_records(record: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Return one line for each cell whose rows or hash differ from the expected record."""
    return [
        f"{name}: {field}: got {record['cells'][name][field]}, expected {cell[field]}"
        for name, cell in expected["cells"].items()
        for field in ("rows", "sha256")
        if record["cells"][name][field] != cell[field]
    ]


def _make_boards(
    benchmark: Benchmark,
    key: jax.Array,
    num_agents: int,
    size: int,
    hole_ratio: float,
    digest_set: DigestSet,
) -> SolvedBoards:
    """Make the boards of one hole ratio.

    If boards of a kind (that need a wait, or that need none) run out, boards of the other kind
    replace them. If both run out, boards with fewer holes replace them.
    """
    counts = benchmark.quota.sum(axis=0)
    names = ("max_size", "max_agents", "horizon", "max_candidates")
    options = DrawOptions(int(counts.sum()), **{name: getattr(benchmark, name) for name in names})
    batches: list[SolvedBoards] = []
    num_holes = min(int(hole_count(size, hole_ratio)), size * size - 2 * num_agents)
    num_missing = counts.copy()
    while num_missing.any():
        if num_holes < 0:
            raise DatasetError(
                f"{cell_name(num_agents, size)}, hole_ratio {hole_ratio:g}: {num_missing.sum()} of "
                f"{counts.sum()} boards are missing, and there are none with fewer holes"
            )
        params = lake_params(size, hole_ratio=num_holes / size**2, num_agents=num_agents)
        for attempt in range(2):
            call_key = jax.random.fold_in(jax.random.fold_in(key, num_holes), attempt)
            result = fill_quotas(
                call_key, params, num_missing[None], digest_set, options, oversample=True
            )
            batches.append(result.boards)
            num_missing = num_missing - result.counts[0]
            # The second attempt requests the other kind.
            num_missing = num_missing[::-1] if num_missing.any() else num_missing
        num_holes -= 1
    return SolvedBoards.concatenate(batches)


def _assign_boards(boards: SolvedBoards, benchmark: Benchmark) -> list[list[tuple[int, bool]]]:
    """Return (board index, whether a wait was requested) for the boards of each configuration.

    Boards that replace another kind come last and fill the remaining quotas.
    """
    kinds = np.asarray(boards.solutions.needs_wait).astype(int)
    remaining_quotas = benchmark.quota.copy()
    assignments: list[list[tuple[int, bool]]] = [[] for _ in benchmark.configurations]
    for board_index, kind in enumerate(kinds.tolist()):
        requested_kind = kind if remaining_quotas[:, kind].any() else 1 - kind
        config = int(np.argmax(remaining_quotas[:, requested_kind] > 0))
        remaining_quotas[config, requested_kind] -= 1
        assignments[config].append((board_index, bool(requested_kind)))
    return assignments
