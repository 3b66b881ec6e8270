"""Lanes that search constraint trees: what each holds, and how they take queries."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.bitboard import word_type
from jaxlake.solver.space_time import NEVER, NOBODY, SearchBuffers, search_buffers
from jaxlake.solver.trees import node as tree_node
from jaxlake.solver.trees.conflicts import PathConflict
from jaxlake.solver.trees.node import TreeBranch, TreeLevel, TreeNode, TreeQueries

MAX_DEPTH = 64
"""Constraints on one branch; a query that needs more gives up."""


class Teams(NamedTuple):
    """Lanes that search the tree of one query together, each below prefixes of its own.

    A prefix says which child to take at the first `split` splits, above which there is no bypass.
    When all prefixes are done and every lane is through, the bound is refuted.
    """

    size: jax.Array  # int32 (), lanes of a team; divides the number of lanes
    split: jax.Array  # int32 (), at most 14


class TreeLanes(NamedTuple):
    """The lanes of a search, each at a node of its own."""

    query: jax.Array  # int32 (B,), index of the query in hand, -1 if there is none
    task: TreeQueries  # leaves (..., B), of the queries in hand
    bound: jax.Array  # int16 (B,)
    cut: jax.Array  # int16 (B,), least cost that was cut at this bound
    prefix: jax.Array  # int32 (B,), the sides taken at the first splits, a bit each
    next_prefix: jax.Array  # int32 (B,), the prefix that the team hands out next
    through: jax.Array  # bool (B,), done with its prefix
    planned: jax.Array  # int16 (B,), agents of the root that have their first path
    depth: jax.Array  # int16 (B,)
    agent: jax.Array  # int16 (B,), to be planned next
    expansions: jax.Array  # int32 (B,)
    done: jax.Array  # bool (B,), has its answer
    found: jax.Array  # bool (B,)
    gave_up: jax.Array  # bool (B,)
    node: TreeNode
    last_time: jax.Array  # int16 (B,), after which `node.forbidden` is empty
    root: jax.Array  # int16 (K, T + 1, B), `paths` of the root
    root_costs: jax.Array  # int16 (K, B), its `costs`
    branch: TreeBranch
    level: TreeLevel  # of the node in hand
    buffers: SearchBuffers


def new_lanes(queries: TreeQueries, query: jax.Array, horizon: int, teams: Teams) -> TreeLanes:
    """Return lanes that begin queries (B,)."""
    R, K, T, L, B = queries.free.shape[0], len(queries.starts), horizon, MAX_DEPTH, len(query)
    word = word_type(R)

    def zeros(*shape: int, dtype: jax.typing.DTypeLike = jnp.int16) -> jax.Array:
        return jnp.zeros((*shape, B), dtype)

    no, number, never = zeros(dtype=bool), zeros(dtype=jnp.int32), zeros() + NEVER
    # Unplanned agents are each in a cell of its own off the board, so that none meet.
    nowhere = (NOBODY - jnp.arange(K, dtype=jnp.int16))[:, None, None]
    paths = jnp.broadcast_to(nowhere, (K, T + 1, B))
    return TreeLanes(
        query=query,
        task=jax.tree.map(lambda leaf: leaf[..., query], queries),
        bound=queries.first[query],
        cut=never,
        prefix=jnp.arange(B, dtype=jnp.int32) % teams.size,
        next_prefix=number + teams.size,
        # All plan the root, also those for which there is no prefix.
        through=no,
        planned=zeros(),
        depth=zeros(),
        agent=zeros(),
        expansions=number,
        done=no,
        found=no,
        gave_up=no,
        node=TreeNode(
            paths=paths,
            costs=zeros(K),
            earliest=zeros(K),
            latest=zeros(K) + NEVER,
            forbidden=zeros(5, K, T + 1, R, dtype=word),
            fixed=zeros(2, K, T + 1, dtype=word),
        ),
        last_time=zeros(),
        root=paths,
        root_costs=zeros(K),
        branch=TreeBranch(
            levels=zeros(tree_node.FIELDS, L), paths=jnp.zeros((B, L, T + 1), jnp.int16)
        ),
        level=TreeLevel(PathConflict(*(zeros(),) * 8), *(zeros(),) * 5),
        buffers=search_buffers(T, R, B, levels=2),
    )


def start_queries(
    lanes: TreeLanes, queries: TreeQueries, query: jax.Array, taken: jax.Array, teams: Teams
) -> TreeLanes:
    """Put queries (B,) into the lanes that `taken`, bool (B,), marks."""
    # A search writes the rest before it reads it, so it stays the very same arrays.
    new = new_lanes(queries, query, lanes.node.paths.shape[1] - 1, teams)
    last = jnp.max(jnp.where(taken, lanes.last_time, jnp.int16(0)))
    forbidden = _without_constraints(lanes.node.forbidden, taken, last)
    lanes = lanes._replace(node=lanes.node._replace(forbidden=forbidden))
    new = new._replace(
        node=new.node._replace(forbidden=forbidden),
        root=lanes.root,
        root_costs=lanes.root_costs,
        branch=lanes.branch,
        level=lanes.level,
        buffers=lanes.buffers,
    )
    return jax.tree.map(lambda x, y: y if x is y else jnp.where(taken, x, y), new, lanes)


def _without_constraints(forbidden: jax.Array, taken: jax.Array, last: jax.Array) -> jax.Array:
    """Empty the sets (5, K, T + 1, R, B) of the lanes taken, bool (B,), up to a time, int16 ()."""
    # As words, since XLA selects lane by lane on CPUs.
    kept = taken.astype(forbidden.dtype) - 1

    def together(forbidden: jax.Array) -> jax.Array:
        return forbidden & kept

    def time_by_time(forbidden: jax.Array) -> jax.Array:
        def clear(t: jax.Array, forbidden: jax.Array) -> jax.Array:
            now = jax.lax.dynamic_index_in_dim(forbidden, t, axis=2)
            return jax.lax.dynamic_update_index_in_dim(forbidden, together(now), t, axis=2)

        return jax.lax.fori_loop(0, last.astype(jnp.int32) + 1, clear, forbidden)

    # They are the largest arrays of a search, and on small boards plans are short.
    return jax.lax.platform_dependent(forbidden, cpu=time_by_time, default=together)
