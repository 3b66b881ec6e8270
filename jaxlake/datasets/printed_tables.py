"""The results printed in arXiv 2606.17682: valid and optimal per cent by agents, model and size."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

FILE_NAME = "published_results.csv"

METRICS = ("valid", "optimal")

BOARDS = 150
"""How many boards a cell has."""

# A printed per cent has two decimals, so it is within 0.005 of the true one.
_ROUNDING = 0.005 + 1e-9


@dataclass(frozen=True)
class PublishedResult:
    """One printed row: what a model reached on the boards of one size, or of all sizes."""

    num_agents: int
    model: str  # as it is printed, such as `Qwen3-4B (base)`
    size: int | None  # side of the boards, cells; None: the aggregate over all sizes
    valid: float  # per cent, as printed
    optimal: float  # per cent, as printed; the paper's page says: by makespan
    means: tuple[float, float] | None = None  # of an aggregate: its cells' means of both, per cent

    @property
    def misprinted(self) -> tuple[str, ...]:
        """Which of `METRICS` can't be right.

        They are cells that no count of 150 boards gives, and aggregates other than their cells'
        mean.
        """
        printed = (self.valid, self.optimal)
        if self.means is None:
            expected, allowed = tuple(map(_nearest_rate, printed)), _ROUNDING
        else:  # the mean of rounded cells, rounded once more
            expected, allowed = self.means, 2 * _ROUNDING
        return tuple(
            name
            for name, right, value in zip(METRICS, expected, printed, strict=True)
            if not abs(right - value) <= allowed
        )


@cache
def published_results() -> tuple[PublishedResult, ...]:
    """Return the printed rows of this package, in the order of the file."""
    file = resources.files("jaxlake.datasets") / FILE_NAME
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    printed = [
        PublishedResult(
            num_agents=int(row["num_agents"]),
            model=row["model"],
            size=None if row["size"] == "all" else int(row["size"]),
            valid=float(row["valid_pct"]),
            optimal=float(row["optimal_pct"]),
        )
        for row in rows
    ]
    return tuple(row if row.size is not None else _with_means(row, printed) for row in printed)


def published_models() -> tuple[str, ...]:
    """Return the names of the published models, in the order of the file."""
    return tuple(dict.fromkeys(result.model for result in published_results()))


def _nearest_rate(percent: float) -> float:
    """Return the nearest per cent that a count of a cell's boards gives."""
    return 100.0 * round(percent * BOARDS / 100.0) / BOARDS


def _with_means(aggregate: PublishedResult, printed: Iterable[PublishedResult]) -> PublishedResult:
    """Add the means of an aggregate's own cells, which all have the same number of boards."""
    own = (aggregate.num_agents, aggregate.model)
    cells = [row for row in printed if (row.num_agents, row.model) == own and row.size is not None]
    valid = sum(row.valid for row in cells) / len(cells)
    optimal = sum(row.optimal for row in cells) / len(cells)
    return replace(aggregate, means=(valid, optimal))
