"""The counts of `survey` that the package ships, to look acceptance up without a device.

`jaxlake feasibility --agents 2 --table jaxlake/generator/feasibility_table.json` makes the file. Of
other numbers of agents it says nothing: `survey` counts them on demand.
"""

import functools
import itertools
import json
from collections.abc import Iterable
from dataclasses import asdict
from importlib import resources
from typing import Any

from jaxlake.generator.feasibility_survey import KindSurvey, acceptance_rate
from jaxlake.generator.mixture import holes_on_board, infeasibility

TABLE_SIZES = tuple(range(2, 11))
TABLE_HOLE_RATIOS = tuple(percent / 100 for percent in range(0, 51, 5))

_FILE = "feasibility_table.json"
_VERSION = 1


def acceptance(
    size: int, hole_ratio: float, wait_ratio: float, num_agents: int = 2
) -> float | None:
    """The share of candidates that a large set of such boards can use, from the shipped counts.

    Between the hole counts of the table, the shares of boards that do and don't need a wait are
    interpolated. A rate of 0 means that the set is infeasible, or that none of the thousands of
    candidates tried was of a kind it needs.

    Args:
        size: side of the boards.
        hole_ratio: 0 to 1.
        wait_ratio: share of the set that needs a wait, 0 to 1.
        num_agents: agents on each board.

    Returns:
        0 to 1, or None where the table says nothing: its sizes are 2 to 10, its ratios 0 to 0.5.
    """
    if not 0.0 <= wait_ratio <= 1.0:
        raise ValueError(f"wait_ratio: got {wait_ratio}, 0 to 1 are allowed")
    if infeasibility(size, hole_ratio, num_agents) is not None:
        return 0.0
    known = _table().get((num_agents, size), ())
    holes = holes_on_board(size, hole_ratio)
    for stratum in known:
        if stratum.holes == holes:
            return stratum.acceptance(wait_ratio)
    for below, above in itertools.pairwise(known):
        if below.holes < holes < above.holes and above.candidates:
            part = (holes - below.holes) / (above.holes - below.holes)
            wait, no_wait = (
                (1 - part) * getattr(below, kind) / below.candidates
                + part * getattr(above, kind) / above.candidates
                for kind in ("wait", "no_wait")
            )
            return acceptance_rate(wait_ratio, wait, no_wait)
    return None


def table_kinds(num_agents: Iterable[int]) -> list[tuple[int, int, int]]:
    """The feasible kinds (num_agents, size, holes) that the table holds."""
    grid = itertools.product(num_agents, TABLE_SIZES, TABLE_HOLE_RATIOS)
    return list(
        dict.fromkeys(
            (agents, size, holes_on_board(size, ratio))
            for agents, size, ratio in grid
            if infeasibility(size, ratio, agents) is None
        )
    )


def table_text(strata: Iterable[KindSurvey], *, seed: int, horizon: int) -> str:
    """Write the table as JSON text, one kind per line."""
    lines = ",\n".join(json.dumps(asdict(stratum)) for stratum in strata)
    head = f'"version": {_VERSION}, "seed": {seed}, "horizon": {horizon}'
    return f'{{{head}, "strata": [\n{lines}\n]}}\n'


@functools.cache
def _table() -> dict[tuple[int, int], tuple[KindSurvey, ...]]:
    """By (num_agents, size), holes ascending."""
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    if content.get("version") != _VERSION:
        raise ValueError(f"{_FILE}: got version {content.get('version')}, {_VERSION} is needed")
    table: dict[tuple[int, int], list[KindSurvey]] = {}
    for fields in content["strata"]:
        stratum = KindSurvey(**fields)
        table.setdefault((stratum.num_agents, stratum.size), []).append(stratum)
    return {kind: tuple(sorted(rows, key=lambda row: row.holes)) for kind, rows in table.items()}
