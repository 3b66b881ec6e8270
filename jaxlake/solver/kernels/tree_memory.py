"""What a program that searches constraint trees works on, and the lanes that work together."""

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
"""Lanes of a program: a warp of a GPU."""

CELL = FORCED - 1
"""The bits of an entry of a path that say which cell it is."""

NUMBERS = ("total", "waits", "first", "last", "budget")
"""Fields of `TreeQueries` that are numbers of a query."""


class Task(NamedTuple):
    """The queries in the lanes of a program, as `TreeQueries`; int32 if not said otherwise."""

    free: tuple[jax.Array, ...]  # words
    starts: tuple[jax.Array, ...]  # cells, one per agent; negative where there is none
    goals: tuple[jax.Array, ...]
    alone: list[jax.Array]
    pair_costs: list[jax.Array]
    stairs: list[list[jax.Array]]  # two words of each pair, uint32
    total: jax.Array  # bool
    waits: jax.Array  # bool
    first: jax.Array
    last: jax.Array
    budget: jax.Array


class Memory(NamedTuple):
    """References to memory of the program, int32 (..., nodes) but for the last two."""

    paths: Any  # (K, T + 1), cells, with FORCED
    roots: Any  # (K, T + 1), `paths` of the root
    saved: Any  # (L, T + 1), of the agent that a level constrains, before the constraint
    levels: Any  # (5, L), packed
    notes: Any  # (3 * L,), constraints of the branch, packed, each with the next one of its time
    heads: Any  # (T + 1,), the first note of a time, counted from 1; 0 where there is none
    layers: Any  # words (2, T + 1, W), where the agent can be; in the second, without conflicts
    masks: Any  # words (2, T + 1, 5, W), of `SharedPaths`: cells and moves that are open


class Route(NamedTuple):
    """The agent that a lane replans, and what it has to obey."""

    agent: jax.Array
    start: jax.Array
    goal: jax.Array
    latest: tuple[jax.Array, ...]  # of all agents: others keep off their goals from then on
    free_again: jax.Array  # no constraint closes the goal at this time or later
    patient: jax.Array  # bool, it may arrive later than it could, where it meets nobody
    deserted: jax.Array  # no other agent is at the goal at this time or later; for those only


def largest(values: Sequence[jax.Array]) -> jax.Array:
    """Return the largest of some values in each lane."""
    return reduce(jnp.maximum, values)


def put(ref: Any, place: tuple[Any, ...], values: jax.Array, where: Any = None) -> None:
    """Write to a place of each lane's own, only where bool (lanes) says so, if it is given."""
    triton.store(ref.at[place], values, mask=where)


@dataclass(frozen=True)
class Helpers:
    """The neighbouring lanes of one node: they share its numbers, and share out times."""

    count: int
    node: jax.Array  # int32, the number of the node in its program: where its memory lies
    rank: jax.Array  # int32, the number of the lane among those of its node
    barrier: bool  # (static) lanes have to wait before they read what others wrote

    @staticmethod
    def of(lane: jax.Array, count: int, barrier: bool) -> "Helpers":
        """Share out the lanes of a program; alone, a lane is its node."""
        if count == 1:
            return Helpers(count, lane, jnp.zeros_like(lane), False)
        return Helpers(count, jax.lax.div(lane, count), jax.lax.rem(lane, count), barrier)

    def meet(self) -> None:
        """Wait until all have written what others will read."""
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
        """Return in how many rounds so many times, a scalar, are done, `count` in each."""
        return times if self.count == 1 else jax.lax.div(times + (self.count - 1), self.count)

    def own(self, i: jax.Array) -> jax.Array:
        """Return which time a lane does in round i: a scalar where it is alone."""
        return i if self.count == 1 else i * self.count + self.rank

    def most(self, values: jax.Array) -> jax.Array:
        """Return the largest value of the lanes of a node."""
        return self._reduce(values, jnp.max)

    def least(self, values: jax.Array) -> jax.Array:
        """Return the least value."""
        return self._reduce(values, jnp.min)

    def sum(self, values: jax.Array) -> jax.Array:
        """Add up the values of the lanes of a node."""
        return self._reduce(values, jnp.sum)

    def _reduce(self, values: jax.Array, reduce: Callable[..., jax.Array]) -> jax.Array:
        return values if self.count == 1 else _over_groups(values, self.count, reduce)


class Teams(NamedTuple):
    """As `trees.lanes.Teams`: of one node each, or of `TEAM_LANES`."""

    size: jax.Array  # int32, how many nodes a team has in hand
    team: jax.Array  # int32, which team a lane is in
    rank: jax.Array  # int32, the place of its node there
    split: jax.Array  # int32 ()
    helpers: Helpers

    def any(self, flags: jax.Array) -> jax.Array:
        """Tell, as bool, whether any node of the team is marked, int32."""
        return self._reduce(flags, jnp.max) != 0

    def sum(self, values: jax.Array) -> jax.Array:
        """Add up the values of a team's nodes."""
        return self._reduce(self._once(values), jnp.sum, values)

    def least(self, values: jax.Array) -> jax.Array:
        """Return the least value of a team."""
        return self._reduce(values, jnp.min)

    def count_before(self, flags: jax.Array) -> jax.Array:
        """Count the nodes of the same team that come before and are marked."""
        before = jnp.cumsum(self._once(flags)) - flags
        # It never falls, so the least one is that of the team's first node.
        return before - self.least(before)

    def _once(self, values: jax.Array) -> jax.Array:
        """Keep the value of one lane of each node."""
        return values if self.helpers.count == 1 else jnp.where(self.helpers.rank == 0, values, 0)

    def _reduce(
        self,
        values: jax.Array,
        reduce: Callable[..., jax.Array],
        alone: jax.Array | None = None,
    ) -> jax.Array:
        reduced = _over_groups(values, TEAM_LANES * self.helpers.count, reduce)
        return jnp.where(self.size > 1, reduced, values if alone is None else alone)


def _over_groups(values: jax.Array, size: int, reduce: Callable[..., jax.Array]) -> jax.Array:
    """Give each lane what comes of its group, of so many neighbours."""
    groups = values.reshape(-1, size)
    reduced = jnp.broadcast_to(reduce(groups, axis=1)[:, None], groups.shape)
    return reduced.reshape(values.shape)
