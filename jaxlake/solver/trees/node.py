"""Nodes of constraint trees: their paths and constraints, and the branch from the root.

Each of B lanes, the last axis of the arrays, searches another tree. Shapes: K agents, P pairs
of agents, L levels, T time steps, R rows of the board.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver import space_time
from jaxlake.solver.bitboard import PITCH, ROW_SHIFT, cell_bitboard, row_and_bit, unite_cells
from jaxlake.solver.materialize import materialize
from jaxlake.solver.space_time import ABSENT, Blocked, PathBits, SearchBuffers
from jaxlake.solver.trees.conflicts import ARRIVAL, FORCED, SWAP, TARGET, VERTEX, PathConflict


class TreeQueries(NamedTuple):
    """Q queries. Each asks for the least bound within which a board has a plan."""

    free: jax.Array  # words (R, Q), cells without holes
    starts: jax.Array  # int16 (K, Q), cells; ABSENT for absent agents
    goals: jax.Array  # int16 (K, Q), cells; ABSENT for absent agents
    solo_distances: jax.Array  # int16 (K, Q), earliest arrivals; 0 for absent agents
    pair_costs: jax.Array  # int16 (P, Q), lower bounds on the cost of each pair; 0 where unknown
    staircases: jax.Array  # uint32 (2, P, Q), from `arrivals.staircases`; 0 where unknown
    sum_objective: jax.Array  # bool (Q,), whether to bound the sum of costs, or the makespan
    may_wait: jax.Array  # bool (Q,), whether agents may wait before their last arrival
    min_bound: jax.Array  # int16 (Q,), first bound to search
    max_bound: jax.Array  # int16 (Q,), last bound to search
    max_expansions: jax.Array  # int32 (Q,), replanned agents before the search gives up
    active: jax.Array  # bool (Q,), whether to search


class QueryResults(NamedTuple):
    """Results of a search, one per query."""

    solved: jax.Array  # bool (Q,), found a plan within `bound`
    gave_up: jax.Array  # bool (Q,), neither found a plan nor refuted all bounds up to `max_bound`
    bound: jax.Array  # int16 (Q,), least bound that is not refuted
    expansions: jax.Array  # int32 (Q,), number of replanned agents
    paths: jax.Array  # int16 (K, T + 1, Q), cells of the plan where `solved`


def empty_results(queries: TreeQueries, horizon: int) -> QueryResults:
    """Return unsolved results for plans of T = `horizon` steps."""
    K, Q = queries.starts.shape
    false, zero = jnp.zeros(Q, bool), jnp.zeros(Q, jnp.int32)
    paths = jnp.zeros((K, horizon + 1, Q), jnp.int16)
    return QueryResults(false, false, queries.min_bound, zero, paths)


class TreeLevel(NamedTuple):
    """A node of the current branch, and the constraint to its child: int16 (B,) each."""

    conflict: PathConflict  # conflict that the node splits on
    child: jax.Array  # current or next child, 0 or 1; 2 after both children
    num_conflicts: jax.Array  # number of conflicts between the node's paths
    cost: jax.Array  # cost of the constrained agent before the constraint
    limit: jax.Array  # arrival limit that the constraint replaced
    fixed: jax.Array  # cells that the constraint fixed: bit 0 at its time, bit 1 one step later


NUM_LEVEL_FIELDS = len(PathConflict._fields) + len(TreeLevel._fields) - 1
CHILD_FIELD = len(PathConflict._fields)
"""Index of the field `child` in `TreeBranch.levels`."""


class TreeBranch(NamedTuple):
    """The current branch, one level per constraint."""

    levels: jax.Array  # int16 (NUM_LEVEL_FIELDS, L, B), the fields of `TreeLevel`
    paths: jax.Array  # int16 (B, L, T + 1), old path of the constrained agent, with FORCED


class TreeNode(NamedTuple):
    """The current node of every lane."""

    paths: jax.Array  # int16 (K, T + 1, B), cells; with FORCED where the agent has no choice
    costs: jax.Array  # int16 (K, B), last arrivals
    earliest: jax.Array  # int16 (K, B), earliest allowed arrivals
    latest: jax.Array  # int16 (K, B), latest allowed arrivals; from then on others avoid the goal
    forbidden: jax.Array  # words (5, K, T + 1, R, B), the fields of `Blocked` per agent
    fixed: jax.Array  # words (2, K, T + 1, B), row and bit of the required cell; bit 0 if none


def select_entry(values: jax.Array | Sequence[jax.Array], index: jax.Array) -> jax.Array:
    """Return the entries (..., B) at index (B,) of values (K, ..., B), or the first if invalid."""
    result = values[0]
    for k in range(1, len(values)):
        result = jnp.where(index == k, values[k], result)
    return result


def replace_agent(
    values: jax.Array, agent: jax.Array, new_values: jax.Array, where: jax.Array
) -> jax.Array:
    """Set values (K, ..., B) of agent (B,) to `new_values`, (..., B), where `where` is True."""
    K, B = values.shape[0], values.shape[-1]
    mask = where & (agent == np.arange(K, dtype=np.int16)[:, None])
    return jnp.where(mask.reshape(K, *(1,) * (values.ndim - 2), B), new_values, values)


def read_level(branch: TreeBranch, depth: jax.Array) -> TreeLevel:
    """Return the levels at depth (B,)."""
    fields = branch.levels[:, depth, jnp.arange(depth.shape[0])]
    return TreeLevel(PathConflict(*fields[:CHILD_FIELD]), *fields[CHILD_FIELD:])


def write_level(branch: TreeBranch, depth: jax.Array, level: TreeLevel) -> TreeBranch:
    """Replace the levels at depth (B,)."""
    fields = jnp.stack([field.astype(jnp.int16) for field in jax.tree.leaves(level)])
    b = jnp.arange(depth.shape[0])
    return branch._replace(levels=branch.levels.at[:, depth, b].set(fields))


def constrained_agent(level: Any) -> jax.Array:
    """Return the agent that the current child constrains and replans, (B,)."""
    return jnp.where(level.child == 0, level.conflict.first, level.conflict.second)


def toggle_constraint(
    node: TreeNode, level: TreeLevel, where: jax.Array, undo: bool = False
) -> tuple[TreeNode, tuple[jax.Array, jax.Array]]:
    """Add the constraint of the current child where `where` is True, or undo it.

    Returns:
        The node, and int16 (B,) each, the values of `TreeLevel.limit` and `TreeLevel.fixed` that
        are needed to undo the constraint.
    """
    conflict = level.conflict
    R = node.forbidden.shape[3]
    b = jnp.arange(conflict.time.shape[0])
    first_child = level.child == 0
    is_vertex, is_swap, is_target, is_arrival = (
        where & (conflict.kind == kind) for kind in (VERTEX, SWAP, TARGET, ARRIVAL)
    )
    node = node._replace(forbidden=_toggle_forbidden(node.forbidden, level, is_vertex, is_swap))

    # In a TARGET conflict, the second agent rests at its goal. The first child requires that it
    # rests by then and closes the goal to others; the second child requires that it arrives later.
    # In an ARRIVAL conflict, each child delays one of the agents.
    is_resting, is_delayed = is_target & first_child, (is_target & ~first_child) | is_arrival
    limited_index = (jnp.where(is_arrival, constrained_agent(level), conflict.second), b)
    latest, earliest = node.latest[limited_index], node.earliest[limited_index]
    limit = jnp.where(is_resting, latest, earliest)
    # Disjoint splitting: the second child requires of the first agent what the first child forbids.
    index = (conflict.first, conflict.time, b)
    next_index = (conflict.first, jnp.minimum(conflict.time + 1, node.fixed.shape[2] - 1), b)
    required, next_required = node.fixed[:, *index], node.fixed[:, *next_index]
    if undo:
        new_earliest = new_latest = level.limit
        fixed = jnp.where(where, level.fixed, jnp.int16(0))
        zero = jnp.zeros((), required.dtype)
        required = jnp.where(fixed & 1 != 0, zero, required)
        next_required = jnp.where(fixed & 2 != 0, zero, next_required)
    else:
        min_arrival = jnp.where(first_child, conflict.first_cell, conflict.second_cell)
        new_earliest = jnp.maximum(limit, jnp.where(is_arrival, min_arrival, conflict.time + 1))
        new_latest = jnp.minimum(limit, conflict.time)
        # A cell that an earlier constraint fixed remains fixed when this constraint is undone.
        fix = (is_vertex | is_swap) & ~first_child & (required[1] == 0)
        fix_next = is_swap & ~first_child & (next_required[1] == 0)
        fixed = fix + jnp.int16(2) * fix_next
        cell, next_cell = (
            jnp.stack(row_and_bit(cell, R))
            for cell in (conflict.first_cell, conflict.first_next_cell)
        )
        required = jnp.where(fix, cell, required)
        next_required = jnp.where(fix_next, next_cell, next_required)
    node = node._replace(
        earliest=node.earliest.at[limited_index].set(jnp.where(is_delayed, new_earliest, earliest)),
        latest=node.latest.at[limited_index].set(jnp.where(is_resting, new_latest, latest)),
        fixed=node.fixed.at[:, *index].set(required).at[:, *next_index].set(next_required),
    )
    return node, (limit, fixed)


def _toggle_forbidden(
    forbidden: jax.Array, level: TreeLevel, is_vertex: jax.Array, is_swap: jax.Array
) -> jax.Array:
    """Add or remove the cell or move that the current child forbids, in `TreeNode.forbidden`."""
    conflict = level.conflict
    dtype = forbidden.dtype.type
    first_child = level.child == 0
    cell = jnp.where(first_child, conflict.first_cell, conflict.second_cell)
    next_cell = jnp.where(first_child, conflict.first_next_cell, conflict.second_next_cell)
    lesser_cell = jnp.where(is_swap, jnp.minimum(cell, next_cell), cell)
    bit = dtype(1) << (lesser_cell & (PITCH - 1)).astype(dtype)
    bit = jnp.where(is_vertex | is_swap, bit, jnp.zeros_like(bit))
    field = jnp.where(is_vertex | ~is_swap, 0, _move_field(cell, next_cell))
    row = jnp.clip(lesser_cell >> ROW_SHIFT, 0, forbidden.shape[3] - 1)
    index = (field, constrained_agent(level), conflict.time, row, jnp.arange(len(row)))
    # Paths obey the constraints, so no bit is set twice, and an exclusive or undoes a constraint.
    return forbidden.at[index].set(forbidden[index] ^ bit)


def _move_field(cell: jax.Array, next_cell: jax.Array) -> jax.Array:
    """Return the `Blocked` field, int32 (B,), of a move between neighbours, int16 (B,) each."""
    step = next_cell - cell
    vertical = jnp.where(step > 0, 3, 4)
    return jnp.where(step == 1, 1, jnp.where(step == -1, 2, vertical))


def replan_agent(
    query: TreeQueries, buffers: SearchBuffers, node: TreeNode, agent: jax.Array, latest: jax.Array
) -> tuple[jax.Array, jax.Array, SearchBuffers]:
    """Find an earliest path of agent (B,) under its constraints, with few conflicts.

    If the makespan is bounded, a later path is preferred if it avoids all conflicts.

    Returns:
        The path, int16 (T + 1, B), cells with FORCED; the arrival or NEVER, int16 (B,); and the
        buffers.
    """
    K, R = node.paths.shape[0], query.free.shape[0]
    is_agent = agent == np.arange(K, dtype=np.int16)[:, None]
    opaque_true = jnp.any(latest >= -1)
    cells = jnp.where(node.paths < 0, jnp.int16(ABSENT), node.paths & (FORCED - 1))
    bits = materialize(space_time.path_bits(cells, R), opaque_true)
    forbidden = _forbidden_moves(query, node, bits, agent, is_agent)
    blocked = (forbidden, forbidden | space_time.block_paths(bits, R, ~is_agent))
    start, goal = (select_entry(ends, agent) for ends in (query.starts, query.goals))
    start, goal = materialize((cell_bitboard(start, R), cell_bitboard(goal, R)), opaque_true)
    reachable = space_time.reach_goal(
        start,
        goal,
        blocked,
        may_wait=query.may_wait,
        earliest=select_entry(node.earliest, agent),
        latest=latest,
        layers=buffers.layers,
        patient=~query.sum_objective,
    )
    path, layers = space_time.trace_back(
        goal, reachable, blocked, may_wait=query.may_wait, buffer=buffers.cells
    )
    forced_flags = jnp.where(path.forced, jnp.int16(FORCED), jnp.int16(0))
    return path.cells | forced_flags, reachable.arrival, SearchBuffers(reachable.layers, layers)


def _forbidden_moves(
    query: TreeQueries, node: TreeNode, bits: PathBits, agent: jax.Array, is_agent: jax.Array
) -> Blocked:
    """Return the cells and moves that holes and constraints forbid to agent (B,)."""
    K, times, _ = node.paths.shape
    R = query.free.shape[0]
    zero = jnp.zeros((), query.free.dtype)
    rows = np.arange(R, dtype=query.free.dtype)[:, None]
    t = np.arange(times, dtype=np.int16)[:, None, None]
    cells, *moves = (select_entry(words, agent) for words in node.forbidden)
    cells |= ~query.free
    for k in range(K):
        # A path ends at its agent's goal. Once the agent must rest there, others must not enter.
        is_resting = (rows == bits.row[k, -1]) & (node.latest[k] <= t) & ~is_agent[k]
        cells |= jnp.where(is_resting, bits.bit[k, -1], zero)
    # Forbid the required cells of other agents, and if this agent has one, all cells except it.
    cells |= unite_cells(node.fixed[0], node.fixed[1], R, ~is_agent)
    row, bit = (select_entry(part, agent)[:, None] for part in node.fixed)
    cells |= jnp.where(bit == 0, zero, ~jnp.where(rows == row, bit, zero))
    return Blocked(cells, *moves)
