"""What is asked of a search for plans of several agents, and what it answers."""

from typing import NamedTuple

import jax


class Queries(NamedTuple):
    """What is asked, Q questions about boards that lie in the last axis."""

    free: jax.Array  # words (R, Q)
    starts: jax.Array  # int16 (K, Q), cells; NOBODY for agents that do not exist
    goals: jax.Array  # int16 (K, Q), likewise
    pair_costs: jax.Array  # int16 (P, Q), lower bounds on the cost of both; 0 where unknown
    total: jax.Array  # bool (Q,), bounds are on the sum of costs; else on the makespan
    waits: jax.Array  # bool (Q,), whether agents may wait before their last arrival
    first: jax.Array  # int16 (Q,), the bound to begin with
    last: jax.Array  # int16 (Q,), the largest bound of interest
    budget: jax.Array  # int32 (Q,), replanned agents after which it is given up
    wanted: jax.Array  # bool (Q,)


class Answers(NamedTuple):
    """What was found."""

    found: jax.Array  # bool (Q,), a plan within `bound`, which is the least possible
    gave_up: jax.Array  # bool (Q,), neither a plan nor a proof that there is none up to `last`
    bound: jax.Array  # int16 (Q,), the least bound not refuted
    expansions: jax.Array  # int32 (Q,), agents replanned
    paths: jax.Array  # int16 (K, T + 1, Q), cells, where found
