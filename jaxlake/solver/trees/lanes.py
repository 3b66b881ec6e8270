"""Lanes that search constraint trees: their state, and how they start queries."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.bitboard import word_type
from jaxlake.solver.space_time import ABSENT, NEVER, SearchBuffers, search_buffers
from jaxlake.solver.trees import node as tree_node
from jaxlake.solver.trees.conflicts import PathConflict
from jaxlake.solver.trees.node import TreeBranch, TreeLevel, TreeNode, TreeQueries

MAX_DEPTH = 64
"""Maximum number of constraints on one branch; queries that need more give up."""


class Teams(NamedTuple):
    """Lanes that search the tree of one query together, each below its own prefixes.

    A prefix determines the child at each of the first `split` splits, above which there is no
    bypass. When all prefixes are done and every lane is through, the bound is refuted.
    """

    size: jax.Array  # int32 (), lanes of a team; divides the number of lanes
    split: jax.Array  # int32 (), at most 14


class TreeLanes(NamedTuple):
    """Lanes of a search, each at its own node."""

    query: jax.Array  # int32 (B,), index of the current query, -1 for idle lanes
    task: TreeQueries  # leaves (..., B), the current queries
    bound: jax.Array  # int16 (B,)
    cut: jax.Array  # int16 (B,), least cost that was cut at this bound
    prefix: jax.Array  # int32 (B,), sides taken at the first splits, one bit each
    next_prefix: jax.Array  # int32 (B,), next prefix that the team hands out
    through: jax.Array  # bool (B,), done with its prefix
    planned: jax.Array  # int16 (B,), agents of the root that have their first path
    depth: jax.Array  # int16 (B,)
    agent: jax.Array  # int16 (B,), next agent to plan
    expansions: jax.Array  # int32 (B,)
    done: jax.Array  # bool (B,), the query is answered
    solved: jax.Array  # bool (B,)
    gave_up: jax.Array  # bool (B,)
    node: TreeNode
    last_time: jax.Array  # int16 (B,), `node.forbidden` is empty after this time
    root: jax.Array  # int16 (K, T + 1, B), `paths` of the root
    root_costs: jax.Array  # int16 (K, B), its `costs`
    branch: TreeBranch
    level: TreeLevel  # level of the current node
    buffers: SearchBuffers


def new_lanes(queries: TreeQueries, query: jax.Array, horizon: int, teams: Teams) -> TreeLanes:
    """Return lanes that start queries (B,)."""
    R, K, T, L, B = queries.free.shape[0], len(queries.starts), horizon, MAX_DEPTH, len(query)
    word = word_type(R)

    def zeros(*shape: int, dtype: jax.typing.DTypeLike = jnp.int16) -> jax.Array:
        return jnp.zeros((*shape, B), dtype)

    false, number, never = zeros(dtype=bool), zeros(dtype=jnp.int32), zeros() + NEVER
    # Unplanned agents stay in distinct cells off the board, so that none of them meet.
    off_board = (ABSENT - jnp.arange(K, dtype=jnp.int16))[:, None, None]
    paths = jnp.broadcast_to(off_board, (K, T + 1, B))
    return TreeLanes(
        query=query,
        task=jax.tree.map(lambda leaf: leaf[..., query], queries),
        bound=queries.first[query],
        cut=never,
        prefix=jnp.arange(B, dtype=jnp.int32) % teams.size,
        next_prefix=number + teams.size,
        # All lanes plan the root, including those without a prefix.
        through=false,
        planned=zeros(),
        depth=zeros(),
        agent=zeros(),
        expansions=number,
        done=false,
        solved=false,
        gave_up=false,
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
    lanes: TreeLanes, queries: TreeQueries, query: jax.Array, starting: jax.Array, teams: Teams
) -> TreeLanes:
    """Start queries (B,) in the lanes marked by `starting`, bool (B,)."""
    # A search writes the other arrays before it reads them, so they are passed through unchanged.
    new = new_lanes(queries, query, lanes.node.paths.shape[1] - 1, teams)
    last = jnp.max(jnp.where(starting, lanes.last_time, jnp.int16(0)))
    forbidden = _clear_constraints(lanes.node.forbidden, starting, last)
    lanes = lanes._replace(node=lanes.node._replace(forbidden=forbidden))
    new = new._replace(
        node=new.node._replace(forbidden=forbidden),
        root=lanes.root,
        root_costs=lanes.root_costs,
        branch=lanes.branch,
        level=lanes.level,
        buffers=lanes.buffers,
    )
    return jax.tree.map(lambda x, y: y if x is y else jnp.where(starting, x, y), new, lanes)


def _clear_constraints(forbidden: jax.Array, starting: jax.Array, last: jax.Array) -> jax.Array:
    """Clear the sets (5, K, T + 1, R, B) of lanes in `starting`, bool (B,), up to time `last`."""
    # By bit masks, since XLA selects lane by lane on CPUs.
    keep_mask = starting.astype(forbidden.dtype) - 1

    def clear_all(forbidden: jax.Array) -> jax.Array:
        return forbidden & keep_mask

    def clear_by_time(forbidden: jax.Array) -> jax.Array:
        def clear(t: jax.Array, forbidden: jax.Array) -> jax.Array:
            now = jax.lax.dynamic_index_in_dim(forbidden, t, axis=2)
            return jax.lax.dynamic_update_index_in_dim(forbidden, clear_all(now), t, axis=2)

        return jax.lax.fori_loop(0, last.astype(jnp.int32) + 1, clear, forbidden)

    # They are the largest arrays of a search, and plans on small boards are short.
    return jax.lax.platform_dependent(forbidden, cpu=clear_by_time, default=clear_all)
