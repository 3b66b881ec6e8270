"""Memory of a program that searches constraint trees, and cooperation between its lanes.

A program has 32 lanes, a GPU warp. They search the nodes of several trees at once: each node has
one lane, or several lanes that share its work.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.pallas import triton

from jaxlake.solver.chunks import TEAM_LANES
from jaxlake.solver.trees.conflicts import FORCED

LANES = 32
"""Number of lanes of a program."""

CELL_MASK = FORCED - 1
"""Bits of a path's entry that hold the cell."""

SCALAR_FIELDS = ("sum_objective", "may_wait", "min_bound", "max_bound", "max_expansions")
"""Fields of `TreeQueries` with one number per query, in the order of the kernel's input."""


class LaneQueries(NamedTuple):
    """Fields of `TreeQueries` for the current query of each lane; int32 unless noted."""

    free: tuple[jax.Array, ...]  # words
    starts: tuple[jax.Array, ...]  # cells, one per agent; negative for absent agents
    goals: tuple[jax.Array, ...]
    solo_distances: list[jax.Array]
    pair_costs: list[jax.Array]
    staircases: list[list[jax.Array]]  # two words per pair, uint32
    sum_objective: jax.Array  # bool
    may_wait: jax.Array  # bool
    min_bound: jax.Array
    max_bound: jax.Array
    max_expansions: jax.Array


class Memory(NamedTuple):
    """References to the memory of the program, int32 (..., nodes) except for the last two."""

    paths: Any  # (K, T + 1), cells, with FORCED
    root_paths: Any  # (K, T + 1), `paths` of the root
    saved_paths: Any  # (L, T + 1), old path of the agent that a level constrains
    levels: Any  # (5, L), packed `Level`s
    constraints: Any  # (3 * L,), packed `Constraint`s of the branch
    list_heads: Any  # (T + 1,), number of the first constraint at a time, from 1; 0 if none
    layers: Any  # words (2, T + 1, W), reachable cells: all, and those without conflicts
    forbidden: Any  # words (2, T + 1, 5, W), forbidden cells and moves, for `SharedPathPlanner`


class ReplanRequest(NamedTuple):
    """The agent that a lane replans, and its constraints."""

    agent: jax.Array
    start: jax.Array
    goal: jax.Array
    latest: tuple[jax.Array, ...]  # latest arrivals of all agents; from then on goals are closed
    goal_open_from: jax.Array  # time from which no constraint closes the goal
    patient: jax.Array  # bool, whether to prefer a later path without conflicts
    goal_unvisited_from: jax.Array  # time from which no other agent is at the goal, if patient


def elementwise_max(values: Sequence[jax.Array]) -> jax.Array:
    """Return the elementwise maximum of arrays."""
    return reduce(jnp.maximum, values)


def store(ref: Any, index: tuple[Any, ...], values: jax.Array, where: Any = None) -> None:
    """Write values at a different index in each lane where `where`, bool (lanes,), is True."""
    triton.store(ref.at[index], values, mask=where)


@dataclass(frozen=True)
class Helpers:
    """Neighbouring lanes that process one node: they hold the same values and divide the times."""

    count: int  # number of lanes per node (static)
    node: jax.Array  # int32, index of the node in the memory of its program
    rank: jax.Array  # int32, index of the lane in its node
    barrier: bool  # whether lanes must wait before they read values that others wrote (static)

    @staticmethod
    def create(lane: jax.Array, count: int, barrier: bool) -> "Helpers":
        """Divide the lanes of a program into nodes of `count` lanes."""
        if count == 1:
            return Helpers(count, lane, jnp.zeros_like(lane), False)
        return Helpers(count, jax.lax.div(lane, count), jax.lax.rem(lane, count), barrier)

    def synchronise(self) -> None:
        """Synchronise the lanes after writes."""
        if self.barrier:
            triton.debug_barrier()

    def read(self, ref: Any, *index: Any) -> jax.Array:
        """Read from the memory of the node."""
        return ref[index] if self.count == 1 else ref[(*index, self.node)]

    def write(self, ref: Any, index: tuple[Any, ...], values: jax.Array) -> None:
        """Write to the memory of the node."""
        if self.count == 1:
            ref[index] = values
        else:
            store(ref, (*index, self.node), values)

    def num_rounds(self, times: jax.Array) -> jax.Array:
        """Return the number of rounds in which the lanes process `times`, a scalar."""
        return times if self.count == 1 else jax.lax.div(times + (self.count - 1), self.count)

    def time_of_round(self, i: jax.Array) -> jax.Array:
        """Return the time that a lane processes in round i, a scalar if `count` is 1."""
        return i if self.count == 1 else i * self.count + self.rank

    def max(self, values: jax.Array) -> jax.Array:
        """Return the maximum over the lanes of a node."""
        return self._reduce(values, jnp.max)

    def min(self, values: jax.Array) -> jax.Array:
        """Return the minimum over the lanes of a node."""
        return self._reduce(values, jnp.min)

    def sum(self, values: jax.Array) -> jax.Array:
        """Return the sum over the lanes of a node."""
        return self._reduce(values, jnp.sum)

    def _reduce(self, values: jax.Array, reducer: Callable[..., jax.Array]) -> jax.Array:
        return values if self.count == 1 else _reduce_neighbours(values, self.count, reducer)


class Teams(NamedTuple):
    """Teams of one node or of `TEAM_LANES` nodes, as `trees.lanes.Teams`."""

    size: jax.Array  # int32, number of nodes per team
    team: jax.Array  # int32, index of the lane's team
    rank: jax.Array  # int32, index of the lane's node in its team
    split: jax.Array  # int32 ()
    helpers: Helpers

    def any(self, flags: jax.Array) -> jax.Array:
        """Return whether any node of the team is flagged; flags are int32, the result bool."""
        return self._reduce(flags, jnp.max) != 0

    def sum(self, values: jax.Array) -> jax.Array:
        """Return the sum over the nodes of a team."""
        return self._reduce(self._keep_first_lanes(values), jnp.sum, values)

    def min(self, values: jax.Array) -> jax.Array:
        """Return the minimum over the nodes of a team."""
        return self._reduce(values, jnp.min)

    def count_before(self, flags: jax.Array) -> jax.Array:
        """Return the number of flagged nodes that precede a node in its team."""
        count = jnp.cumsum(self._keep_first_lanes(flags)) - flags
        # Counts do not decrease within a program, so the minimum belongs to the team's first node.
        return count - self.min(count)

    def _keep_first_lanes(self, values: jax.Array) -> jax.Array:
        """Keep the value of the first lane of each node, and set the others to 0."""
        return values if self.helpers.count == 1 else jnp.where(self.helpers.rank == 0, values, 0)

    def _reduce(
        self,
        values: jax.Array,
        reducer: Callable[..., jax.Array],
        single_node: jax.Array | None = None,
    ) -> jax.Array:
        result = _reduce_neighbours(values, TEAM_LANES * self.helpers.count, reducer)
        return jnp.where(self.size > 1, result, values if single_node is None else single_node)


def _reduce_neighbours(
    values: jax.Array, count: int, reducer: Callable[..., jax.Array]
) -> jax.Array:
    """Reduce each group of `count` neighbouring lanes, and return the result in all its lanes."""
    rows = values.reshape(-1, count)
    reduced_rows = jnp.broadcast_to(reducer(rows, axis=1)[:, None], rows.shape)
    return reduced_rows.reshape(values.shape)
