"""Read benchmark boards from a folder, either ours or rows of the published data set."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jaxlake import format_grid
from jaxlake.command_line.board_records import solve_lines
from jaxlake.datasets import DatasetError, PublishedRow, read_published
from jaxlake.datasets.published import published_files
from training.errors import UserError
from training.run.progress import console


@dataclass(frozen=True)
class BenchmarkBoard:
    """One board of a benchmark."""

    config: str  # `benchmark_wr0.25`; empty if neither file nor row names one
    sample_id: str
    num_agents: int
    size: int  # side, cells
    grid: tuple[str, ...]  # rows in the published symbols
    optimum: tuple[int, int] | None  # sum of costs and makespan, steps; None if unknown

    @property
    def key(self) -> tuple[str, str]:
        """The identity of the board within the benchmark."""
        return self.config, self.sample_id


@dataclass(frozen=True)
class BenchmarkFolder:
    """All boards of a folder, in the order of its files, and the digests of the files."""

    path: Path
    boards: tuple[BenchmarkBoard, ...]
    files: dict[str, str]  # SHA-256 by name within the folder


def read_folder(path: Path) -> BenchmarkFolder:
    """Read the boards of `jaxlake dataset benchmark DIR`, or rows of the published data set.

    Published boards have no optimum, so they are solved here.
    """
    if not path.is_dir():
        raise UserError(f"--benchmark is {path}; it must be a folder of boards")
    try:
        files = published_files(path)
        boards = [_make_board(row) for row in read_published(path)]
    except DatasetError as error:
        raise UserError(f"--benchmark: {error}") from error
    if repeated := [
        key for key, count in Counter(board.key for board in boards).items() if count > 1
    ]:
        name = "/".join(filter(None, repeated[0]))
        raise UserError(f"--benchmark: {path}: the board {name} occurs twice")
    digests = {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }
    return BenchmarkFolder(path, tuple(_solve_missing_optima(boards)), digests)


def select_board_indices(
    boards: Sequence[BenchmarkBoard],
    *,
    agents: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
    limit: int | None = None,
) -> list[int]:
    """Return the indices of the selected boards.

    `agents` and `sizes` restrict the boards. At most `limit` boards are selected, evenly spread. A
    `UserError` names numbers that no board has.
    """
    for option, numbers, available in (
        ("--agents", agents, {board.num_agents for board in boards}),
        ("--sizes", sizes, {board.size for board in boards}),
    ):
        if unknown := [number for number in numbers or () if number not in available]:
            allowed = ", ".join(map(str, sorted(available)))
            raise UserError(f"{option}: got {unknown[0]}, the benchmark has boards of {allowed}")
    indices = [
        index
        for index, board in enumerate(boards)
        if (agents is None or board.num_agents in agents) and (sizes is None or board.size in sizes)
    ]
    if not indices:
        raise UserError("--agents, --sizes: got numbers that no board has both of")
    if limit is None or limit >= len(indices):
        return indices
    return [indices[number * len(indices) // limit] for number in range(limit)]


def _make_board(row: PublishedRow) -> BenchmarkBoard:
    return BenchmarkBoard(
        config=row.config or "",
        sample_id=row.sample_id,
        num_agents=row.num_agents,
        size=int(row.instance.size),
        grid=tuple(format_grid(row.instance)),
        optimum=row.optimum,
    )


def _solve_missing_optima(boards: Sequence[BenchmarkBoard]) -> list[BenchmarkBoard]:
    """Return the boards with missing optima added."""
    unsolved = [board for board in boards if board.optimum is None]
    if not unsolved:
        return list(boards)
    console.print(f"Solving {len(unsolved)} boards that come without their optimum.")
    lines = (
        json.dumps({"id": row, "grid": board.grid}).encode() for row, board in enumerate(unsolved)
    )
    optima = {
        board.key: (record["sum_of_costs"], record["makespan"])
        for board, (_, record) in zip(unsolved, solve_lines(lines), strict=True)
        if record.get("status") == "OPTIMAL"
    }
    return [replace(board, optimum=board.optimum or optima.get(board.key)) for board in boards]
