"""Failure statistics by map size, holes, waits and kind, as device reductions."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.instance import Instance
from jaxlake.verify import Failure, Outcome

HOLE_TENTHS = 11
TIME_BINS = 65
"""Times of the first failure that are told apart: 0 to 63, and 64 or later."""

AXES = ("size", "hole_tenth", "needs_wait")
"""The axes by which `rows` can group, in the order of the arrays of `Statistics`."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Statistics:
    """Counts of outcomes; the sum of two is the statistics of both batches together.

    Axes: S = N + 1 board sizes; H = 11 hole tenths, floor(10 * holes / cells) of the board itself;
    2, whether the board needs a wait; F = 7 failures, with Failure.NONE counting the valid plans.
    """

    failures: jax.Array  # int32 (S, H, 2, F)
    optimal_sum_of_costs: jax.Array  # int32 (S, H, 2)
    optimal_makespan: jax.Array  # int32 (S, H, 2)
    first_failure_time: jax.Array  # int32 (F, 65), steps; the last bin holds 64 and later

    def __add__(self, other: "Statistics") -> "Statistics":
        return jax.tree.map(jnp.add, self, other)


def tabulate(
    instances: Instance,
    needs_wait: jax.Array,
    outcomes: Outcome,
    mask: jax.Array | None = None,
) -> Statistics:
    """Count the outcomes of a batch.

    Args:
        instances: leaves (B, ...).
        needs_wait: bool (B,), `Solution.needs_wait` of each board.
        outcomes: leaves (B,).
        mask: bool (B,), which rows count; all if None.

    Returns:
        The `Statistics` of the rows that count. Failures without a time (parse errors) are left out
        of `first_failure_time`.
    """
    N = instances.holes.shape[-1]
    size = jnp.clip(instances.size, 0, N)
    cells = jnp.maximum(size * size, 1)
    holes = jnp.sum(instances.holes, axis=(-1, -2), dtype=jnp.int32) - (N * N - cells)
    tenth = jnp.clip(10 * holes // cells, 0, HOLE_TENTHS - 1)
    wait = needs_wait.astype(jnp.int32)
    kind = outcomes.failure.astype(jnp.int32)
    weight = jnp.ones(size.shape, jnp.int32) if mask is None else mask.astype(jnp.int32)
    time = jnp.clip(outcomes.time.astype(jnp.int32), 0, TIME_BINS - 1)
    timed = weight * (outcomes.time >= 0)
    board_kinds = (N + 1, HOLE_TENTHS, 2)

    def count(shape: tuple[int, ...], where: tuple[jax.Array, ...], amount: jax.Array) -> jax.Array:
        return jnp.zeros(shape, jnp.int32).at[where].add(amount)

    board = (size, tenth, wait)
    return Statistics(
        failures=count((*board_kinds, len(Failure)), (*board, kind), weight),
        optimal_sum_of_costs=count(board_kinds, board, weight * outcomes.optimal_sum_of_costs),
        optimal_makespan=count(board_kinds, board, weight * outcomes.optimal_makespan),
        first_failure_time=count((len(Failure), TIME_BINS), (kind, time), timed),
    )


def rows(statistics: Statistics, by: Sequence[str] = ("size",)) -> list[dict[str, Any]]:
    """Statistics as plain rows (host side), one for each group that holds anything.

    Args:
        statistics: the counts of one or more batches, added up.
        by: what to group by, any of `AXES`; the empty sequence gives one row of totals.

    Returns:
        Dictionaries with the values of `by` (needs_wait as bool), then `total`, `valid`,
        `optimal_sum_of_costs`, `optimal_makespan` and the count of each failure by its label.

    Raises:
        ValueError: `by` names something else, or one thing twice.
    """
    if len(set(by)) != len(by) or not set(by) <= set(AXES):
        raise ValueError(f"by: got {tuple(by)}, allowed are distinct names of {AXES}")
    away = tuple(i for i, name in enumerate(AXES) if name not in by)
    failures = np.asarray(statistics.failures).sum(axis=away)
    optimal = {
        name: np.asarray(getattr(statistics, name)).sum(axis=away)
        for name in ("optimal_sum_of_costs", "optimal_makespan")
    }
    kept = [name for name in AXES if name in by]
    table = []
    for group in np.ndindex(failures.shape[:-1]):
        counts = failures[group]
        if counts.sum() == 0:
            continue
        values = dict(zip(kept, group, strict=True))
        row: dict[str, Any] = {
            name: bool(values[name]) if name == "needs_wait" else int(values[name]) for name in by
        }
        row["total"] = int(counts.sum())
        row["valid"] = int(counts[Failure.NONE])
        row |= {name: int(array[group]) for name, array in optimal.items()}
        row |= {kind.label: int(counts[kind]) for kind in Failure if kind != Failure.NONE}
        table.append(row)
    return table


def wilson_interval(
    successes: Any, total: Any, confidence: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Score interval of a proportion (Wilson 1927), NumPy float64, elementwise.

    Args:
        successes: number of successes, 0 to total.
        total: number of trials; where it is 0 the interval is (0, 1).
        confidence: coverage, strictly between 0 and 1.

    Returns:
        (low, high), within 0 and 1.

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence: got {confidence}, above 0 and below 1 is allowed")
    k = np.asarray(successes, np.float64)
    n = np.asarray(total, np.float64)
    if np.any(n < 0) or np.any(k < 0) or np.any(k > n):
        raise ValueError(f"successes: got {successes} of total {total}, 0 to total are allowed")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    trials = np.maximum(n, 1.0)
    share = k / trials
    scale = 1.0 + z**2 / trials
    centre = (share + z**2 / (2 * trials)) / scale
    half = z / scale * np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    # At the ends the bounds are 0 and 1 exactly; the formula gives them up to rounding.
    low = np.where(k == 0, 0.0, np.maximum(centre - half, 0.0))
    high = np.where(k == n, 1.0, np.minimum(centre + half, 1.0))
    return np.where(n == 0, 0.0, low), np.where(n == 0, 1.0, high)
