"""Tables of outcomes by board size, number of agents, holes, waits and failure, on the device."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Union

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.instance import Instance
from jaxlake.board.verification import Failure, Outcome
from jaxlake.solver import Solution, Status
from jaxlake.statistics.uint64_words import sum_words, to_words

HOLE_TENTHS = 11
TIME_BINS = 65
"""Bins for the time of the first failure: one each for 0 to 63, and one for 64 and later."""

AXES = ("size", "num_agents", "hole_tenth", "needs_wait")
"""Axes by which `statistics_rows` can group, in the order of the axes of `Statistics`."""

_COUNTS = ("optimal_sum_of_costs", "optimal_makespan", "compared")
_SUMS = ("agents_at_goal", "sum_of_costs", "makespan", "excess_sum_of_costs", "excess_makespan")
_WORD_BITS = 16
_LOW_MASK = (1 << _WORD_BITS) - 1
_NUM_TABLE_AXES = len(AXES) + 1  # of `Statistics.failures`


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Statistics:
    """Counts of plans and sums over them; `a + b` merges two tables.

    The axes are S = N + 1 board sizes, A = K + 1 numbers of agents, H = 11 hole tenths, 2 for
    whether the board needs a wait, and F = 7 failures, where Failure.NONE counts the valid plans.
    The hole tenth is floor(10 * holes / cells) of the board without its padding. A count is at most
    2**31 - 1. Sums are exact: their last axis holds a high word and a low word of 16 bits, which
    `join_words` joins.
    """

    failures: jax.Array  # int32 (S, A, H, 2, F), plans
    optimal_sum_of_costs: jax.Array  # int32 (S, A, H, 2), plans
    optimal_makespan: jax.Array  # int32 (S, A, H, 2), plans
    compared: jax.Array  # int32 (S, A, H, 2), valid plans of boards with a given optimum
    agents_at_goal: jax.Array  # int32 (S, A, H, 2, 2), sum of agents at their goal at the end
    sum_of_costs: jax.Array  # int32 (S, A, H, 2, 2), sum over valid plans
    makespan: jax.Array  # int32 (S, A, H, 2, 2), sum over valid plans
    excess_sum_of_costs: jax.Array  # int32 (S, A, H, 2, 2), sum of cost - optimum over `compared`
    excess_makespan: jax.Array  # int32 (S, A, H, 2, 2), sum of makespan - optimum over `compared`
    first_failure_time: jax.Array  # int32 (F, 65), steps; the last bin holds 64 and later

    @classmethod
    def zeros(cls, max_size: int, max_agents: int) -> "Statistics":
        """Return an empty table for boards padded to N and K, the neutral element of sums."""
        shape = (max_size + 1, max_agents + 1, HOLE_TENTHS, 2)
        return cls(
            failures=jnp.zeros((*shape, len(Failure)), jnp.int32),
            first_failure_time=jnp.zeros((len(Failure), TIME_BINS), jnp.int32),
            **{name: jnp.zeros(shape, jnp.int32) for name in _COUNTS},
            **{name: jnp.zeros((*shape, 2), jnp.int32) for name in _SUMS},
        )

    def __add__(self, other: "Statistics") -> "Statistics":
        return _carry_bits(jax.tree.map(jnp.add, self, other))

    def __radd__(self, other: Union["Statistics", int]) -> "Statistics":
        """Let the built-in `sum` start from its 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented


@partial(jax.jit, static_argnames="axis_name")
def tabulate(
    instances: Instance,
    needs_wait: jax.Array,
    outcomes: Outcome,
    mask: jax.Array | None = None,
    solutions: Solution | None = None,
    *,
    axis_name: str | tuple[str, ...] | None = None,
) -> Statistics:
    """Return the table of B outcomes.

    `first_failure_time` does not count parse errors, which have no time.

    Args:
        instances: Leaves (B, ...), with B at most 2**23.
        needs_wait: bool (B,), `Solution.needs_wait` of each board.
        outcomes: Leaves (B, ...).
        mask: bool (B,), the boards to count. Defaults to all.
        solutions: Leaves (B, ...), the optima. Without them, `compared` is 0.
        axis_name: Mapped axes of `jax.shard_map` or `jax.vmap`, of size at most 32,767, over which
            to sum with `jax.lax.psum`. Under `jax.jit` with inputs that carry a `NamedSharding`, no
            axis name is needed.

    Returns:
        The `Statistics` of the counted boards.
    """
    N = instances.holes.shape[-1]
    B, K = instances.agent_mask.shape
    size = jnp.clip(instances.size, 0, N)
    cells = jnp.maximum(size * size, 1)
    holes = jnp.sum(instances.holes, axis=(-1, -2), dtype=jnp.int32) - (N * N - cells)
    hole_tenth = jnp.clip(10 * holes // cells, 0, HOLE_TENTHS - 1)
    num_agents = jnp.sum(instances.agent_mask, axis=-1, dtype=jnp.int32)
    wait_index = jnp.asarray(needs_wait).astype(jnp.int32)
    failure = outcomes.failure.astype(jnp.int32)
    mask = jnp.ones(B, bool) if mask is None else jnp.asarray(mask, bool)
    time = jnp.clip(outcomes.time.astype(jnp.int32), 0, TIME_BINS - 1)

    is_valid = jnp.asarray(outcomes.valid, bool)
    if solutions is None:
        is_compared = jnp.zeros(B, bool)
        excess_sum_of_costs = excess_makespan = jnp.zeros(B, jnp.int32)
    else:
        is_compared = is_valid & (solutions.status == Status.OPTIMAL)
        excess_sum_of_costs = outcomes.sum_of_costs.astype(jnp.int32) - solutions.sum_of_costs
        excess_makespan = outcomes.makespan.astype(jnp.int32) - solutions.makespan
    failures = failure[:, None] == jnp.arange(len(Failure))
    counts = [outcomes.optimal_sum_of_costs, outcomes.optimal_makespan, is_compared]
    sums = [
        jnp.sum(outcomes.at_goal, axis=-1, dtype=jnp.int32),
        jnp.where(is_valid, outcomes.sum_of_costs, 0),
        jnp.where(is_valid, outcomes.makespan, 0),
        jnp.where(is_compared, excess_sum_of_costs, 0),
        jnp.where(is_compared, excess_makespan, 0),
    ]

    # A single scatter adds all columns. Sums are split into bytes, which cannot overflow within one
    # batch.
    values = jnp.stack(sums, axis=-1).astype(jnp.int32)
    columns = jnp.concatenate(
        [failures, jnp.stack(counts, axis=-1).astype(bool), values >> 8, values & 255], axis=-1
    ).astype(jnp.int32)
    shape = (N + 1, K + 1, HOLE_TENTHS, 2)
    table = jnp.zeros((*shape, columns.shape[-1]), jnp.int32)
    rows = jnp.where(mask[:, None], columns, 0)
    table = table.at[size, num_agents, hole_tenth, wait_index].add(rows)
    offsets = list(np.cumsum([len(Failure), len(counts), len(sums)]))
    failures, plan_counts, high, low = jnp.split(table, offsets, axis=-1)
    words = jnp.stack([high >> 8, ((high & 255) << 8) + low], axis=-1)
    times = jnp.zeros((len(Failure), TIME_BINS), jnp.int32)
    statistics = Statistics(
        failures=failures,
        first_failure_time=times.at[failure, time].add(mask & (outcomes.time >= 0)),
        **{name: plan_counts[..., i] for i, name in enumerate(_COUNTS)},
        **{name: words[..., i, :] for i, name in enumerate(_SUMS)},
    )
    statistics = _carry_bits(statistics)
    return statistics if axis_name is None else _carry_bits(jax.lax.psum(statistics, axis_name))


def merge_statistics(statistics: Statistics) -> Statistics:
    """Return the sum of tables along their leading axis.

    The tables may be sharded over the devices of several processes; each process must then make the
    same call, and receives the result.

    Args:
        statistics: Tables with one leading axis on all leaves, as returned by `jax.vmap(tabulate)`.

    Returns:
        A single table.

    Raises:
        ValueError: `statistics` has no leading axis.
        OverflowError: A count of the result exceeds 2**31 - 1. Under jit and transformations it
            wraps around instead.
    """
    if np.ndim(statistics.failures) <= _NUM_TABLE_AXES:
        raise ValueError(
            "statistics must have a leading axis, got one table with failures of shape "
            f"{np.shape(statistics.failures)}"
        )
    total, overflow = _sum_tables(statistics)
    if not isinstance(overflow, jax.core.Tracer) and overflow:
        raise OverflowError(
            "statistics must have at most 2**31 - 1 plans per cell; merge fewer tables, or use "
            "summarize"
        )
    return total


@jax.jit
def _sum_tables(statistics: Statistics) -> tuple[Statistics, jax.Array]:
    """Return the sum of tables and whether one of its counts overflows, bool ()."""
    leaves, overflow = {}, jnp.bool_(False)
    for name, leaf in vars(statistics).items():
        words = to_words(leaf)
        if name not in _SUMS:
            high, low = jnp.moveaxis(sum_words(words), -1, 0)
            leaves[name] = low.astype(jnp.int32)
            overflow |= jnp.any((high > 0) | (low >> 31 > 0))
            continue
        # Convert a high word and a 16-bit low word to two 32-bit words, and back.
        high, low = words[..., 0, 1], words[..., 1, 1]
        words = jnp.stack([high >> _WORD_BITS, (high << _WORD_BITS) + low], axis=-1)
        high, low = jnp.moveaxis(sum_words(words), -1, 0)
        overflow |= jnp.any(high >> (31 - _WORD_BITS) > 0)
        high = (high << _WORD_BITS) + (low >> _WORD_BITS)
        leaves[name] = jnp.stack([high, low & _LOW_MASK], axis=-1).astype(jnp.int32)
    return Statistics(**leaves), overflow


def join_words(words: Any) -> np.ndarray:
    """Return a sum of `Statistics` as int64, with high and low words of the last axis joined."""
    pair = np.asarray(words).astype(np.int64)
    return (pair[..., 0] << _WORD_BITS) + pair[..., 1]


def _carry_bits(statistics: Statistics) -> Statistics:
    """Carry the bits of the low words beyond 16 into the high words."""

    def carry(words: jax.Array) -> jax.Array:
        high, low = words[..., 0], words[..., 1]
        return jnp.stack([high + (low >> _WORD_BITS), low & _LOW_MASK], axis=-1)

    return replace(statistics, **{name: carry(getattr(statistics, name)) for name in _SUMS})


def statistics_rows(statistics: Statistics, by: Sequence[str] = ("size",)) -> list[dict[str, Any]]:
    """Return statistics as dictionaries on the host, one per group of boards with plans.

    The rates follow POGEMA (`pogema/wrappers/metrics.py`). Unlike in POGEMA, where moves cannot
    fail, a plan ends before the step that breaks a rule.

    Args:
        statistics: A single table.
        by: Distinct names from `AXES` to group by. An empty sequence gives one row of totals.

    Returns:
        Dictionaries with these keys:

        - the names in `by`; `needs_wait` is a bool.
        - `total`, `valid`, `optimal_sum_of_costs`, `optimal_makespan`, `compared`, and the label of
            each failure: numbers of plans. `compared` counts valid plans of boards with an optimum.
        - `csr`, the cooperative success rate: the share of valid plans.
        - `isr`, the individual success rate: the mean share of agents that end at their goals.
        - `mean_sum_of_costs` and `mean_makespan` of valid plans, or None.
        - `mean_excess_sum_of_costs` and `mean_excess_makespan`: the means of `compared` plans above
            the optimum, or None.

    Raises:
        ValueError: `by` has an unknown or repeated name, or `statistics` holds several tables.
    """
    if np.ndim(statistics.failures) != _NUM_TABLE_AXES:
        raise ValueError(
            f"statistics must be one table, got failures of shape {np.shape(statistics.failures)}; "
            "add tables with merge_statistics, or select one with "
            "jax.tree.map(lambda leaf: leaf[i], statistics)"
        )
    if len(set(by)) != len(by) or not set(by) <= set(AXES):
        raise ValueError(f"by must be distinct names of {AXES}, got {tuple(by)}")
    summed_axes = tuple(i for i, name in enumerate(AXES) if name not in by)
    failures = np.asarray(statistics.failures).astype(np.int64).sum(axis=summed_axes)
    tables = {name: np.asarray(getattr(statistics, name), np.int64) for name in _COUNTS}
    counts = {name: table.sum(axis=summed_axes) for name, table in tables.items()}
    sums = {name: join_words(getattr(statistics, name)).sum(axis=summed_axes) for name in _SUMS}
    num_agents = np.maximum(np.arange(statistics.failures.shape[1]), 1)[:, None, None]
    agent_shares = (join_words(statistics.agents_at_goal) / num_agents).sum(axis=summed_axes)
    axes = [name for name in AXES if name in by]
    rows = []
    for index in np.ndindex(failures.shape[:-1]):
        num_plans, num_valid = int(failures[index].sum()), int(failures[index][Failure.NONE])
        if num_plans == 0:
            continue
        values = dict(zip(axes, index, strict=True))
        row: dict[str, Any] = {
            name: bool(values[name]) if name == "needs_wait" else int(values[name]) for name in by
        }
        row |= {"total": num_plans, "valid": num_valid}
        row |= {name: int(counts[name][index]) for name in _COUNTS}
        for failure in Failure:
            if failure != Failure.NONE:
                row[failure.label] = int(failures[index][failure])
        row |= {"csr": num_valid / num_plans, "isr": float(agent_shares[index]) / num_plans}
        for name in _SUMS[1:]:
            denominator = row["compared"] if name.startswith("excess") else num_valid
            row[f"mean_{name}"] = int(sums[name][index]) / denominator if denominator else None
        rows.append(row)
    return rows
