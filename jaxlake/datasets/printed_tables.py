"""Results printed in the paper (arXiv 2606.17682): percentages of valid and optimal answers."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

FILE_NAME = "published_results.csv"

METRICS = ("valid", "optimal")

BOARDS = 150
"""Number of boards per cell."""

# Printed percentages have two decimals, so they are within 0.005 of the true values.
_ROUNDING = 0.005 + 1e-9


@dataclass(frozen=True)
class PublishedResult:
    """A printed row: the results of a model on boards of one size, or of all sizes."""

    num_agents: int
    model: str  # as printed, such as `Qwen3-4B (base)`
    size: int | None  # side of the boards in cells; None: the aggregate over all sizes
    valid: float  # percent, as printed
    optimal: float  # percent, as printed; by makespan, according to the paper's page
    means: tuple[float, float] | None = None  # for aggregates: means of both over cells, percent

    @property
    def misprinted(self) -> tuple[str, ...]:
        """The `METRICS` whose printed values are impossible.

        The value of one size is impossible if no count out of 150 boards rounds to it. The value of
        all sizes is impossible if it differs from the mean over the sizes.
        """
        printed_values = (self.valid, self.optimal)
        if self.means is None:
            expected, tolerance = tuple(map(_nearest_rate, printed_values)), _ROUNDING
        else:  # both the means and the averaged values are rounded
            expected, tolerance = self.means, 2 * _ROUNDING
        return tuple(
            metric
            for metric, expected_value, value in zip(METRICS, expected, printed_values, strict=True)
            if not abs(expected_value - value) <= tolerance
        )


@cache
def published_results() -> tuple[PublishedResult, ...]:
    """Return the printed rows, in file order."""
    file = resources.files("jaxlake.datasets") / FILE_NAME
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    results = [
        PublishedResult(
            num_agents=int(row["num_agents"]),
            model=row["model"],
            size=None if row["size"] == "all" else int(row["size"]),
            valid=float(row["valid_pct"]),
            optimal=float(row["optimal_pct"]),
        )
        for row in rows
    ]
    return tuple(row if row.size is not None else _add_means(row, results) for row in results)


def published_models() -> tuple[str, ...]:
    """Return the names of the published models, in file order."""
    return tuple(dict.fromkeys(result.model for result in published_results()))


def _nearest_rate(percent: float) -> float:
    """Return the nearest percentage that a count of boards of a cell can give."""
    return 100.0 * round(percent * BOARDS / 100.0) / BOARDS


def _add_means(aggregate: PublishedResult, results: Iterable[PublishedResult]) -> PublishedResult:
    """Add the means over the cells of an aggregate, which have equal numbers of boards."""
    key = (aggregate.num_agents, aggregate.model)
    rows = [row for row in results if (row.num_agents, row.model) == key and row.size is not None]
    valid_mean = sum(row.valid for row in rows) / len(rows)
    optimal_mean = sum(row.optimal for row in rows) / len(rows)
    return replace(aggregate, means=(valid_mean, optimal_mean))
