"""B lanes that search constraint trees: their state, and how they start queries."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.bitboard import word_type
from jaxlake.solver.space_time import ABSENT, NEVER, SearchBuffers, search_buffers
from jaxlake.solver.trees import node as tree_node
from jaxlake.solver.trees.conflicts import PathConflict
from jaxlake.solver.trees.node import TreeBranch, TreeLevel, TreeNode, TreeQueries

MAX_DEPTH = 64
"""Maximum number of constraints on a branch; queries that need more give up."""


class Teams(NamedTuple):
    """Groups of lanes that search the tree of one query together.

    The team divides the tree by prefixes. A prefix is the choice of a child at each of the first
    `split` splits, where bypasses are not allowed. The bound is refuted when all prefixes have been
    searched.
    """

    size: jax.Array  # int32 (), number of lanes per team, a divisor of the number of lanes
    split: jax.Array  # int32 (), at most 14


class TreeLanes(NamedTuple):
    """Lanes of a search, each at its own node. `node` defines the axes."""

    query_index: jax.Array  # int32 (B,), index of the current query, -1 for idle lanes
    query: TreeQueries  # leaves (..., B), the current queries
    bound: jax.Array  # int16 (B,), current bound
    next_bound: jax.Array  # int16 (B,), least cost of the nodes cut at the current bound
    prefix: jax.Array  # int32 (B,), children of the first splits, one bit each
    next_prefix: jax.Array  # int32 (B,), next prefix that the team assigns
    prefix_done: jax.Array  # bool (B,), whether the tree below the prefix is exhausted
    num_planned: jax.Array  # int16 (B,), number of agents with a path at the root
    depth: jax.Array  # int16 (B,), depth of the current node
    agent: jax.Array  # int16 (B,), next agent to plan
    expansions: jax.Array  # int32 (B,), number of replanned agents
    done: jax.Array  # bool (B,), whether the query has a result
    solved: jax.Array  # bool (B,)
    gave_up: jax.Array  # bool (B,)
    node: TreeNode
    last_forbidden_time: jax.Array  # int16 (B,), `node.forbidden` is empty after this time
    root_paths: jax.Array  # int16 (K, T + 1, B), `paths` of the root
    root_costs: jax.Array  # int16 (K, B), `costs` of the root
    branch: TreeBranch
    level: TreeLevel  # level of the current node
    buffers: SearchBuffers


def make_lanes(
    queries: TreeQueries, query_index: jax.Array, horizon: int, teams: Teams
) -> TreeLanes:
    """Return lanes that start queries (B,)."""
    R, K, T, L, B = queries.free.shape[0], len(queries.starts), horizon, MAX_DEPTH, len(query_index)

    def zeros(*shape: int, dtype: jax.typing.DTypeLike = jnp.int16) -> jax.Array:
        return jnp.zeros((*shape, B), dtype)

    false, zero, never = zeros(dtype=bool), zeros(dtype=jnp.int32), zeros() + NEVER
    # Agents without a path stay in distinct cells off the board, so that they never conflict.
    off_board = (ABSENT - jnp.arange(K, dtype=jnp.int16))[:, None, None]
    paths = jnp.broadcast_to(off_board, (K, T + 1, B))
    return TreeLanes(
        query_index=query_index,
        query=jax.tree.map(lambda leaf: leaf[..., query_index], queries),
        bound=queries.min_bound[query_index],
        next_bound=never,
        prefix=jnp.arange(B, dtype=jnp.int32) % teams.size,
        next_prefix=zero + teams.size,
        # All lanes plan the root, including those without a prefix.
        prefix_done=false,
        num_planned=zeros(),
        depth=zeros(),
        agent=zeros(),
        expansions=zero,
        done=false,
        solved=false,
        gave_up=false,
        node=TreeNode(
            paths=paths,
            costs=zeros(K),
            earliest=zeros(K),
            latest=zeros(K) + NEVER,
            forbidden=zeros(5, K, T + 1, R, dtype=word_type(R)),
            fixed=zeros(2, K, T + 1, dtype=word_type(R)),
        ),
        last_forbidden_time=zeros(),
        root_paths=paths,
        root_costs=zeros(K),
        branch=TreeBranch(
            levels=zeros(tree_node.NUM_LEVEL_FIELDS, L), paths=jnp.zeros((B, L, T + 1), jnp.int16)
        ),
        level=TreeLevel(PathConflict(*(zeros(),) * 8), *(zeros(),) * 5),
        buffers=search_buffers(T, R, B, levels=2),
    )


def start_queries(
    lanes: TreeLanes,
    queries: TreeQueries,
    query_index: jax.Array,
    is_starting: jax.Array,
    teams: Teams,
) -> TreeLanes:
    """Start queries with indices (B,) in the lanes where `is_starting`, bool (B,), is True."""
    started_lanes = make_lanes(queries, query_index, lanes.node.paths.shape[1] - 1, teams)
    last_time = jnp.max(jnp.where(is_starting, lanes.last_forbidden_time, jnp.int16(0)))
    forbidden = _clear_forbidden(lanes.node.forbidden, is_starting, last_time)
    lanes = lanes._replace(node=lanes.node._replace(forbidden=forbidden))
    # A search writes these arrays before it reads them, so they keep their old values.
    started_lanes = started_lanes._replace(
        node=started_lanes.node._replace(forbidden=forbidden),
        root_paths=lanes.root_paths,
        root_costs=lanes.root_costs,
        branch=lanes.branch,
        level=lanes.level,
        buffers=lanes.buffers,
    )
    return jax.tree.map(
        lambda x, y: y if x is y else jnp.where(is_starting, x, y), started_lanes, lanes
    )


def _clear_forbidden(
    forbidden: jax.Array, is_starting: jax.Array, last_time: jax.Array
) -> jax.Array:
    """Clear `TreeNode.forbidden` up to `last_time` in the lanes where `is_starting` is True."""
    # A bit mask, because XLA's select is not vectorised on CPUs.
    keep_mask = is_starting.astype(forbidden.dtype) - 1

    def clear_all(forbidden: jax.Array) -> jax.Array:
        return forbidden & keep_mask

    def clear_by_time(forbidden: jax.Array) -> jax.Array:
        def clear(t: jax.Array, forbidden: jax.Array) -> jax.Array:
            step = jax.lax.dynamic_index_in_dim(forbidden, t, axis=2)
            return jax.lax.dynamic_update_index_in_dim(forbidden, clear_all(step), t, axis=2)

        return jax.lax.fori_loop(0, last_time.astype(jnp.int32) + 1, clear, forbidden)

    # This is the largest array of a search, and on small boards only a few times are in use.
    return jax.lax.platform_dependent(forbidden, cpu=clear_by_time, default=clear_all)
