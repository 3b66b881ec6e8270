"""Result of the solver for an instance."""

from dataclasses import dataclass
from enum import IntEnum

import jax
import jax.numpy as jnp

DEFAULT_HORIZON = 64
"""Default length limit of plans, in steps."""

HORIZONS = {10: 64, 16: 96, 32: 160}
"""Recommended length limit of plans, in steps, by largest board size: few boards stay UNKNOWN."""


def default_horizon(size: int) -> int:
    """Return the length limit of plans for boards of at most this size, in steps."""
    return next(horizon for max_size, horizon in HORIZONS.items() if size <= max_size)


class Status(IntEnum):
    """Outcome of `solve` for an instance."""

    OPTIMAL = 0
    UNSOLVABLE = 1
    UNKNOWN = 2


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Solution:
    """Optimal sum of costs and makespan of an instance, each with a plan that attains it.

    Plans are padded with WAIT after the last arrival. All entries are -1 unless OPTIMAL.
    """

    status: jax.Array  # int8 (), a `Status`
    sum_of_costs: jax.Array  # int16 (), optimal sum of costs, -1 unless OPTIMAL
    makespan: jax.Array  # int16 (), optimal makespan, -1 unless OPTIMAL
    needs_wait: jax.Array  # bool (), False unless OPTIMAL
    plan: jax.Array  # int8 (horizon, K), attains sum_of_costs
    makespan_plan: jax.Array  # int8 (horizon, K), attains makespan
    expansions: jax.Array  # int32 (), search effort, see `solve`; 0 without a search


def unknown_solution(horizon: int, num_agents: int) -> Solution:
    """Return an UNKNOWN solution."""
    no_cost, plan = jnp.int16(-1), jnp.full((horizon, num_agents), -1, jnp.int8)
    status, needs_wait = jnp.int8(Status.UNKNOWN), jnp.bool_(False)
    return Solution(status, no_cost, no_cost, needs_wait, plan, plan, expansions=jnp.int32(0))


def empty_solutions(horizon: int, num_agents: int) -> Solution:
    """Return an empty batch of solutions, leaves (0, ...)."""
    solution = unknown_solution(horizon, num_agents)
    return jax.tree.map(lambda leaf: jnp.zeros((0, *leaf.shape), leaf.dtype), solution)
