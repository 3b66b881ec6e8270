"""What the solver says about an instance."""

from dataclasses import dataclass
from enum import IntEnum

import jax
import jax.numpy as jnp

DEFAULT_HORIZON = 64
"""Longest plan, in steps, that `solve` looks for unless told otherwise."""


class Status(IntEnum):
    """What `solve` can say about an instance."""

    OPTIMAL = 0
    UNSOLVABLE = 1
    UNKNOWN = 2


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Solution:
    """The two optima of one instance, each with a plan that attains it.

    Both plans are padded with WAIT after the last arrival, and are -1 throughout unless OPTIMAL.
    """

    status: jax.Array  # int8 (), a Status
    sum_of_costs: jax.Array  # int16 (), least sum of costs, -1 unless OPTIMAL
    makespan: jax.Array  # int16 (), least makespan, -1 unless OPTIMAL
    needs_wait: jax.Array  # bool (), False unless OPTIMAL
    plan: jax.Array  # int8 (horizon, K), attains sum_of_costs
    makespan_plan: jax.Array  # int8 (horizon, K), attains makespan
    expansions: jax.Array  # int32 (), nodes expanded by the search; 0 if none was needed


def unknown_solution(horizon: int, num_agents: int) -> Solution:
    """Give the solution of an instance about which nothing is known: all of it is UNKNOWN."""
    none, plan = jnp.int16(-1), jnp.full((horizon, num_agents), -1, jnp.int8)
    status, needs_wait = jnp.int8(Status.UNKNOWN), jnp.bool_(False)
    return Solution(status, none, none, needs_wait, plan, plan, expansions=jnp.int32(0))


def no_solutions(horizon: int, num_agents: int) -> Solution:
    """Give the solutions of no boards, leaves (0, ...)."""
    one = unknown_solution(horizon, num_agents)
    return jax.tree.map(lambda leaf: jnp.zeros((0, *leaf.shape), leaf.dtype), one)
