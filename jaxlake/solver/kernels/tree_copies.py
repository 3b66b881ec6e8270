"""Copies of paths: a path is saved before another takes its place, and brought back later."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxlake.solver.kernels.tree_paths import CELL, Boards, Memory, largest, pick
from jaxlake.solver.kernels.tree_teams import Helpers, put
from jaxlake.solver.trees.conflicts import FORCED

_TOGETHER = 4
"""Times at which a lane that is alone copies a path at once."""


class PathCopies:
    """The paths of the nodes in hand, of roots and of branches, in the memory of one program."""

    def __init__(self, memory: Memory, boards: Boards, helpers: Helpers) -> None:
        self.memory, self.boards, self.helpers = memory, boards, helpers
        self.node = helpers.node
        self.agents, self.times = memory.paths.shape[:2]
        self.horizon = self.times - 1

    def begin(
        self,
        agent: jax.Array,
        depth: jax.Array,
        goal: jax.Array,
        end: jax.Array,
        where: jax.Array,
    ) -> None:
        """Save the path of an agent up to `end`, and put a path at its goal in its place."""

        def write(times: list[jax.Array]) -> None:
            old = [self.memory.paths[agent, t, self.node] for t in times]
            for t, entry in zip(times, old, strict=True):
                put(self.memory.saved, (depth, t, self.node), entry, where)
                put(self.memory.paths, (agent, t, self.node), goal | FORCED, where)

        self._for_times(end, write)

    def keep_forced(
        self, agent: jax.Array, depth: jax.Array, same_time: jax.Array, end: jax.Array
    ) -> None:
        """Where a path is new but no constraint is, keep where the old one was forced.

        Where a bypassing path is forced is known under the constraint only. But if it costs what
        the old path did, it too passes through every cell in which the old one was forced.
        """

        def write(i: jax.Array, _: None) -> None:
            t = jnp.minimum(self.helpers.own(i), self.horizon)
            place = (agent, t, self.node)
            kept = jnp.where(same_time, self.memory.saved[depth, t, self.node] & FORCED, 0)
            put(self.memory.paths, place, (self.memory.paths[place] & CELL) | kept, t < end)

        jax.lax.fori_loop(0, self.helpers.rounds(jnp.max(end)), write, None)
        self.helpers.meet()

    def restore(self, agent: jax.Array, depth: jax.Array, cost: jax.Array, end: jax.Array) -> None:
        """Give an agent the path of some cost that is saved at a level, up to `end`."""
        goal = pick(self.boards.goals, agent) | FORCED

        def write(times: list[jax.Array]) -> None:
            old = [self.memory.saved[depth, t, self.node] for t in times]
            for t, entry in zip(times, old, strict=True):
                # What is saved may end where the path does.
                entry = jnp.where(t < cost, entry, goal)
                put(self.memory.paths, (agent, t, self.node), entry, t < end)

        self._for_times(end, write)

    def _for_times(self, end: jax.Array, write: Callable[[list[jax.Array]], None]) -> None:
        """Do something at all times before the last `end`, and perhaps at a few more up to T.

        A lane that is alone does a few times together: a program waits once for what they load.
        """
        if self.helpers.count > 1:

            def one(i: jax.Array, _: None) -> None:
                write([jnp.minimum(self.helpers.own(i), self.horizon)])

            jax.lax.fori_loop(0, self.helpers.rounds(jnp.max(end)), one, None)
            self.helpers.meet()
            return

        def some(i: jax.Array, _: None) -> None:
            write([jnp.minimum(_TOGETHER * i + j, self.horizon) for j in range(_TOGETHER)])

        rounds = jax.lax.div(jnp.max(end) + (_TOGETHER - 1), _TOGETHER)
        jax.lax.fori_loop(0, rounds, some, None)

    def keep_roots(
        self,
        costs: tuple[jax.Array, ...],
        root_costs: tuple[jax.Array, ...],
        rooted: jax.Array,
        restored: jax.Array,
    ) -> None:
        """Keep the paths of a root where there is a new one, and bring those that are kept back."""
        longest = largest((*costs, *root_costs))
        end = jnp.max(jnp.where(rooted | restored, jnp.minimum(longest + 1, self.times), 0))

        def write(i: jax.Array, _: None) -> None:
            entry = jnp.minimum(self.helpers.own(i), self.agents * self.times - 1)
            t, k = jax.lax.div(entry, self.agents), jax.lax.rem(entry, self.agents)
            path = self.helpers.read(self.memory.paths, k, t)
            put(self.memory.roots, (k, t, self.node), path, rooted)
            goal = pick(self.boards.goals, k) | FORCED
            # What is kept may end where the path does.
            kept = self.helpers.read(self.memory.roots, k, t)
            root = jnp.where(t < pick(root_costs, k), kept, goal)
            exists = pick(self.boards.goals, k) >= 0
            put(self.memory.paths, (k, t, self.node), root, restored & exists & (t <= longest))

        jax.lax.fori_loop(0, self.helpers.rounds(end * self.agents), write, None)
        self.helpers.meet()
