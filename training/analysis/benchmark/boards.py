"""Read the boards of a benchmark from a folder."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jaxlake import format_grid
from jaxlake.command_line.board_records import solve_lines
from jaxlake.datasets import DatasetError, read_published
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
    """Read a folder from `jaxlake dataset benchmark DIR`, or rows of the published data set.

    Published rows have no optimum, so their boards are solved first.

    Raises:
        UserError: `path` is not a folder of valid boards with distinct keys.
    """
    if not path.is_dir():
        raise UserError(f"--benchmark must be a folder of boards, got {path}")
    try:
        files = published_files(path)
        boards = [
            BenchmarkBoard(
                config=row.config or "",
                sample_id=row.sample_id,
                num_agents=row.num_agents,
                size=int(row.instance.size),
                grid=tuple(format_grid(row.instance)),
                optimum=row.optimum,
            )
            for row in read_published(path)
        ]
    except DatasetError as error:
        raise UserError(f"--benchmark: {error}") from error
    counts = Counter(board.key for board in boards)
    if repeated_keys := [key for key, count in counts.items() if count > 1]:
        name = "/".join(filter(None, repeated_keys[0]))
        raise UserError(f"--benchmark: {path}: board {name} occurs twice")
    digests = {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }
    return BenchmarkFolder(path, tuple(_solve_missing_optima(boards)), digests)


def select_board_indices(
    boards: Sequence[BenchmarkBoard],
    *,
    agents: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
    max_boards: int | None = None,
) -> list[int]:
    """Return the indices of the selected boards.

    Args:
        boards: All boards.
        agents: Numbers of agents to select; None selects all.
        sizes: Board sizes to select; None selects all.
        max_boards: Maximum number of boards, spread evenly over the selection.

    Raises:
        UserError: No board has one of the numbers, or no board matches both selections.
    """
    for option, values, available_values in (
        ("--agents", agents, {board.num_agents for board in boards}),
        ("--sizes", sizes, {board.size for board in boards}),
    ):
        if unknown_values := [value for value in values or () if value not in available_values]:
            allowed = ", ".join(map(str, sorted(available_values)))
            raise UserError(f"{option} must be among {allowed}, got {unknown_values[0]}")
    indices = [
        index
        for index, board in enumerate(boards)
        if (agents is None or board.num_agents in agents) and (sizes is None or board.size in sizes)
    ]
    if not indices:
        raise UserError("--agents and --sizes: no board matches both")
    if max_boards is None or max_boards >= len(indices):
        return indices
    return [indices[position * len(indices) // max_boards] for position in range(max_boards)]


def _solve_missing_optima(boards: Sequence[BenchmarkBoard]) -> list[BenchmarkBoard]:
    """Return the boards after solving those without an optimum."""
    unsolved = [board for board in boards if board.optimum is None]
    if not unsolved:
        return list(boards)
    console.print(f"Solving {len(unsolved)} boards without a known optimum.")
    lines = (json.dumps({"id": i, "grid": board.grid}).encode() for i, board in enumerate(unsolved))
    optima = {
        board.key: (record["sum_of_costs"], record["makespan"])
        for board, (_, record) in zip(unsolved, solve_lines(lines), strict=True)
        if record.get("status") == "OPTIMAL"
    }
    return [replace(board, optimum=board.optimum or optima.get(board.key)) for board in boards]
