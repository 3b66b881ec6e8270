"""Memory of a program that searches constraint trees, and lanes that work together."""

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
"""Number of lanes of a program: a GPU warp."""

CELL = FORCED - 1
"""Bits of a path entry that hold the cell."""

NUMBERS = ("total", "waits", "first", "last", "budget")
"""Fields of `TreeQueries` that are numbers per query."""


class Task(NamedTuple):
    """Queries in the lanes of a program, as `TreeQueries`; int32 unless noted."""

    free: tuple[jax.Array, ...]  # words
    starts: tuple[jax.Array, ...]  # cells, one per agent; negative for absent agents
    goals: tuple[jax.Array, ...]
    solo_distances: list[jax.Array]
    pair_costs: list[jax.Array]
    stairs: list[list[jax.Array]]  # two words per pair, uint32
    total: jax.Array  # bool
    waits: jax.Array  # bool
    first: jax.Array
    last: jax.Array
    budget: jax.Array


class Memory(NamedTuple):
    """References to the memory of the program, int32 (..., nodes) except for the last two."""

    paths: Any  # (K, T + 1), cells, with FORCED
    roots: Any  # (K, T + 1), `paths` of the root
    saved: Any  # (L, T + 1), path of the agent that a level constrains, before the constraint
    levels: Any  # (5, L), packed
    notes: Any  # (3 * L,), packed constraints of the branch, each with the next one of its time
    heads: Any  # (T + 1,), first note of a time, counted from 1; 0 without notes
    layers: Any  # words (2, T + 1, W), reachable cells; the second avoid all conflicts
    masks: Any  # words (2, T + 1, 5, W), open cells and moves, for `SharedPaths`


class Route(NamedTuple):
    """The agent that a lane replans, and its constraints."""

    agent: jax.Array
    start: jax.Array
    goal: jax.Array
    latest: tuple[jax.Array, ...]  # of all agents: later, others must avoid their goals
    stay_from: jax.Array  # no constraint closes the goal at this time or later
    patient: jax.Array  # bool, the agent accepts a later arrival that avoids all conflicts
    clean_stay_from: (
        jax.Array
    )  # no other agent is at the goal at this time or later; only if patient


def largest(values: Sequence[jax.Array]) -> jax.Array:
    """Return the elementwise maximum of some values."""
    return reduce(jnp.maximum, values)


def put(ref: Any, place: tuple[Any, ...], values: jax.Array, where: Any = None) -> None:
    """Write to a separate place per lane, masked by `where`, bool (lanes), if given."""
    triton.store(ref.at[place], values, mask=where)


@dataclass(frozen=True)
class Helpers:
    """Neighbouring lanes of one node, which hold the same values and divide the times."""

    count: int
    node: jax.Array  # int32, number of the node in its program, the index into memory
    rank: jax.Array  # int32, number of the lane within its node
    barrier: bool  # (static) lanes must wait before they read values that others wrote

    @staticmethod
    def create(lane: jax.Array, count: int, barrier: bool) -> "Helpers":
        """Divide the lanes of a program into nodes of `count` lanes."""
        if count == 1:
            return Helpers(count, lane, jnp.zeros_like(lane), False)
        return Helpers(count, jax.lax.div(lane, count), jax.lax.rem(lane, count), barrier)

    def meet(self) -> None:
        """Synchronise the lanes after writes."""
        if self.barrier:
            triton.debug_barrier()

    def read(self, ref: Any, *place: Any) -> jax.Array:
        """Read from the memory of the node."""
        return ref[place] if self.count == 1 else ref[(*place, self.node)]

    def write(self, ref: Any, place: tuple[Any, ...], values: jax.Array) -> None:
        """Write to the memory of the node."""
        if self.count == 1:
            ref[place] = values
        else:
            put(ref, (*place, self.node), values)

    def rounds(self, times: jax.Array) -> jax.Array:
        """Return the number of rounds for `times`, a scalar, with `count` times per round."""
        return times if self.count == 1 else jax.lax.div(times + (self.count - 1), self.count)

    def time_of_round(self, i: jax.Array) -> jax.Array:
        """Return the time that a lane handles in round i: a scalar if `count` is 1."""
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

    def _reduce(self, values: jax.Array, reduce: Callable[..., jax.Array]) -> jax.Array:
        return values if self.count == 1 else _over_groups(values, self.count, reduce)


class Teams(NamedTuple):
    """As `trees.lanes.Teams`: teams of one node, or of `TEAM_LANES` nodes."""

    size: jax.Array  # int32, number of nodes per team
    team: jax.Array  # int32, the team of a lane
    rank: jax.Array  # int32, position of the lane's node in its team
    split: jax.Array  # int32 ()
    helpers: Helpers

    def any(self, flags: jax.Array) -> jax.Array:
        """Return whether any node of the team is flagged (int32), as bool."""
        return self._reduce(flags, jnp.max) != 0

    def sum(self, values: jax.Array) -> jax.Array:
        """Return the sum over a team's nodes."""
        return self._reduce(self._once_per_node(values), jnp.sum, values)

    def min(self, values: jax.Array) -> jax.Array:
        """Return the minimum over a team."""
        return self._reduce(values, jnp.min)

    def count_before(self, flags: jax.Array) -> jax.Array:
        """Return the number of flagged nodes that come earlier in the same team."""
        before = jnp.cumsum(self._once_per_node(flags)) - flags
        # The count never falls, so the minimum belongs to the team's first node.
        return before - self.min(before)

    def _once_per_node(self, values: jax.Array) -> jax.Array:
        """Keep the value of one lane per node, and 0 in the others."""
        return values if self.helpers.count == 1 else jnp.where(self.helpers.rank == 0, values, 0)

    def _reduce(
        self,
        values: jax.Array,
        reduce: Callable[..., jax.Array],
        single_node: jax.Array | None = None,
    ) -> jax.Array:
        reduced = _over_groups(values, TEAM_LANES * self.helpers.count, reduce)
        return jnp.where(self.size > 1, reduced, values if single_node is None else single_node)


def _over_groups(values: jax.Array, size: int, reduce: Callable[..., jax.Array]) -> jax.Array:
    """Return, in each lane, the reduction over its group of `size` neighbouring lanes."""
    groups = values.reshape(-1, size)
    reduced = jnp.broadcast_to(reduce(groups, axis=1)[:, None], groups.shape)
    return reduced.reshape(values.shape)
