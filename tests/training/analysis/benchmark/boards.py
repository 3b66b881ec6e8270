"""A small benchmark for tests, made by the oracles: nothing here imports jaxlake."""

import json
import random
from pathlib import Path
from typing import Any

from benchmarks.oracles import least_makespan, least_sum_of_costs, random_grid


def write_rows(
    folder: Path, *, per_size: int, num_agents: int = 2, sizes: tuple[int, ...] = (3, 4)
) -> int:
    """Write rows as `jaxlake dataset benchmark` does, `per_size` per configuration and size."""
    rng = random.Random(7)
    num_rows = 0
    folder.mkdir(parents=True, exist_ok=True)
    for config in ("benchmark_wr0.25", "benchmark_wr0.5"):
        lines = []
        for size in sizes:
            num_boards = 0
            while num_boards < per_size:
                grid = random_grid(rng, size, 0.2, num_agents)
                solution = least_sum_of_costs(grid)
                if solution is None:
                    continue
                row: dict[str, Any] = {
                    "sample_id": f"{num_agents}ag_{size}x{size}_hr0.2_{num_boards:03d}",
                    "num_agents": num_agents,
                    "size": size,
                    "grid": grid,
                    "sum_of_costs": solution[0],
                    "makespan": least_makespan(grid),
                }
                lines.append(json.dumps(row))
                num_boards += 1
        num_rows += len(lines)
        (folder / f"{config}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "paper_benchmark_v2.json").write_text("{}")  # the hashes next to the rows
    return num_rows


def read_rows(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Read the rows by configuration and id."""
    return {
        (path.stem, row["sample_id"]): row
        for path in sorted(folder.glob("*.jsonl"))
        for row in map(json.loads, path.read_text().splitlines())
    }
