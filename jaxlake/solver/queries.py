"""What is asked of a search of constraint trees, and what it answers."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class TreeQueries(NamedTuple):
    """Q questions about boards, each for the least bound within which there is a plan."""

    free: jax.Array  # words (R, Q)
    starts: jax.Array  # int16 (K, Q), cells; NOBODY for agents that do not exist
    goals: jax.Array  # int16 (K, Q), likewise
    pair_costs: jax.Array  # int16 (P, Q), lower bounds on the cost of both; 0 where unknown
    total: jax.Array  # bool (Q,), bounds are on the sum of costs; else on the makespan
    waits: jax.Array  # bool (Q,), whether agents may wait before their last arrival
    first: jax.Array  # int16 (Q,), the bound to begin with
    last: jax.Array  # int16 (Q,), the largest bound of interest
    budget: jax.Array  # int32 (Q,), replanned agents after which the search gives up
    wanted: jax.Array  # bool (Q,)


class TreeAnswers(NamedTuple):
    """What a search found, one answer per query."""

    found: jax.Array  # bool (Q,), a plan within `bound`, which is the least possible
    gave_up: jax.Array  # bool (Q,), neither a plan nor a proof that there is none up to `last`
    bound: jax.Array  # int16 (Q,), the least bound not refuted
    expansions: jax.Array  # int32 (Q,), agents replanned
    paths: jax.Array  # int16 (K, T + 1, Q), cells, where found


def no_answers(queries: TreeQueries, horizon: int) -> TreeAnswers:
    """Return answers that say nothing yet, for plans of T = `horizon` steps."""
    K, Q = queries.starts.shape
    return TreeAnswers(
        found=jnp.zeros(Q, bool),
        gave_up=jnp.zeros(Q, bool),
        bound=queries.first,
        expansions=jnp.zeros(Q, jnp.int32),
        paths=jnp.zeros((K, horizon + 1, Q), jnp.int16),
    )
