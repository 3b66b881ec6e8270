"""Exact counters of a policy's results on one configuration.

A `Summary` takes 184 bytes, a `Statistics` table 38,780 bytes.
"""

from dataclasses import dataclass
from typing import Union

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.instance import Instance
from jaxlake.board.verification import Failure, Outcome
from jaxlake.solver import Solution, Status
from jaxlake.statistics.uint64_words import add_words, sum_words, to_words, words_to_int64

_FAILURES = ("valid", *(failure.label for failure in Failure if failure != Failure.NONE))

COUNTERS = (
    *_FAILURES,  # plans, by failure
    "optimal_sum_of_costs",  # plans
    "optimal_makespan",  # plans
    "compared",  # valid plans of boards with a proved optimum
    "agents",  # of all boards
    "agents_at_goal",  # at the end of their plan
    "needs_wait",  # boards
    "valid_needs_wait",  # valid plans of boards that need a wait
    "sum_of_costs",  # sum over valid plans
    "sum_of_costs_squared",  # sum of squares over valid plans
    "makespan",  # sum over valid plans
    "makespan_squared",  # sum of squares over valid plans
    "excess_sum_of_costs",  # sum of cost - optimum over `compared`
    "excess_makespan",  # sum of makespan - optimum over `compared`
    "candidates",  # boards drawn by the generator
    "unknown",  # candidates that the solver gave up on
    "missing",  # requested boards that the generator did not make
)
"""The counters of a `Summary`, in order."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Summary:
    """Exact counters below 2**63; `a + b` merges two summaries.

    There may be leading axes, such as configurations and policies. `summary_columns` returns the
    counters by name, and `merge_summaries` adds summaries along the first axis.
    """

    words: jax.Array  # uint32 (..., len(COUNTERS), 2), the high word first

    @classmethod
    def zeros(cls, shape: tuple[int, ...] = ()) -> "Summary":
        """Return empty summaries with these leading axes."""
        return cls(jnp.zeros((*shape, len(COUNTERS), 2), jnp.uint32))

    def __add__(self, other: "Summary") -> "Summary":
        return Summary(add_words(self.words, other.words))

    def __radd__(self, other: Union["Summary", int]) -> "Summary":
        """Let the built-in `sum` start from its 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented


@jax.jit
def summarize(
    instances: Instance,
    outcomes: Outcome,
    solutions: Solution,
    mask: jax.Array | None = None,
    *,
    candidates: jax.Array | int = 0,
    unknown: jax.Array | int = 0,
    missing: jax.Array | int = 0,
) -> Summary:
    """Return the counters of a batch of outcomes; works under `jax.vmap`.

    Args:
        instances: Leaves (B, ...).
        outcomes: Leaves (B, ...).
        solutions: Leaves (B, ...), the optima to compare with.
        mask: bool (B,), the boards to count. Defaults to all.
        candidates: int (), boards that the generator drew.
        unknown: int (), candidates that the solver gave up on.
        missing: int (), requested boards that the generator did not make.

    Returns:
        A `Summary` without leading axes.
    """
    B = instances.agent_mask.shape[0]
    mask = jnp.ones(B, bool) if mask is None else jnp.asarray(mask, bool)
    is_valid = jnp.asarray(outcomes.valid, bool)
    is_compared = is_valid & (solutions.status == Status.OPTIMAL)
    sum_of_costs, makespan = (
        jnp.where(is_valid, costs, 0).astype(jnp.int32)
        for costs in (outcomes.sum_of_costs, outcomes.makespan)
    )
    failures = outcomes.failure[:, None] == jnp.arange(len(Failure), dtype=outcomes.failure.dtype)
    columns = [
        outcomes.optimal_sum_of_costs,
        outcomes.optimal_makespan,
        is_compared,
        jnp.sum(instances.agent_mask, axis=-1, dtype=jnp.int32),
        jnp.sum(outcomes.at_goal, axis=-1, dtype=jnp.int32),
        solutions.needs_wait,
        solutions.needs_wait & is_valid,
        sum_of_costs,
        sum_of_costs * sum_of_costs,  # below 2**30, because T * K is below 2**15
        makespan,
        makespan * makespan,
        jnp.where(is_compared, sum_of_costs - solutions.sum_of_costs, 0),
        jnp.where(is_compared, makespan - solutions.makespan, 0),
    ]
    board_counts = jnp.stack(
        [jnp.asarray(column).astype(jnp.uint32) for column in columns], axis=-1
    )
    board_counts = jnp.concatenate([failures.astype(jnp.uint32), board_counts], axis=-1)
    board_counts = jnp.where(mask[:, None], board_counts, jnp.uint32(0))
    batch_counts = jnp.stack([jnp.asarray(count) for count in (candidates, unknown, missing)])
    return Summary(jnp.concatenate([sum_words(to_words(board_counts)), to_words(batch_counts)]))


@jax.jit
def merge_summaries(summaries: Summary) -> Summary:
    """Return the sum of summaries along their first axis, of any length.

    The axis may be sharded over the devices of several processes.

    Args:
        summaries: Words uint32 (n, ..., len(COUNTERS), 2).

    Returns:
        A summary without the first axis.

    Raises:
        ValueError: `summaries` has no leading axis.
    """
    if summaries.words.ndim < 3:
        raise ValueError(
            "summaries must have a leading axis, got one summary with words of shape "
            f"{summaries.words.shape}"
        )
    return Summary(sum_words(summaries.words))


def summary_columns(summary: Summary) -> dict[str, np.ndarray]:
    """Return the counters by name, int64 with the leading axes of the summary (on the host).

    The first column is `boards`, the number of plans counted; the others are `COUNTERS`.
    """
    counters = words_to_int64(summary.words)
    boards = counters[..., : len(_FAILURES)].sum(axis=-1)
    return {"boards": boards, **{name: counters[..., i] for i, name in enumerate(COUNTERS)}}
