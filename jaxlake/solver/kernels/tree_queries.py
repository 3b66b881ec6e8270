"""What a program is told of its queries, and what it answers."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.arrivals import Stair, look_up_pairs
from jaxlake.solver.pairs import best_matching, pair_gains


class Task(NamedTuple):
    """What a program is told about each query, int32."""

    total: jax.Array
    waits: jax.Array
    first: jax.Array
    last: jax.Array
    budget: jax.Array


class Proved(NamedTuple):
    """What is known of the agents of each query, int32, and of its pairs."""

    alone: list[jax.Array]  # least arrivals
    pair_costs: list[jax.Array]
    stairs: list[list[jax.Array]]  # two words of each pair, uint32

    def excesses(self, costs: tuple[jax.Array, ...]) -> list[jax.Array]:
        """Return how much later than at the least agents arrive."""
        return [jnp.maximum(x - y, 0) for x, y in zip(costs, self.alone, strict=True)]

    def stairs_of(self, costs: tuple[jax.Array, ...]) -> list[Stair]:
        """Look up where the pairs stand on their staircases."""
        return look_up_pairs(self.stairs, self.excesses(costs))

    def gain(self, costs: tuple[jax.Array, ...], stairs: list[Stair]) -> jax.Array:
        """Return what pairs without a common agent add to these costs."""
        return best_matching(pair_gains(costs, self.pair_costs, stairs), len(costs))


class Answers(NamedTuple):
    """What a program says of each query, int32."""

    found: jax.Array
    gave_up: jax.Array
    bound: jax.Array
    expansions: jax.Array
