"""Nodes of constraint trees, one per lane: paths, constraints and the branch to the node."""

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
    """Q queries, each for the least bound within which a board has a plan."""

    free: jax.Array  # words (R, Q)
    starts: jax.Array  # int16 (K, Q), cells; NOBODY for absent agents
    goals: jax.Array  # int16 (K, Q), likewise
    solo_distances: jax.Array  # int16 (K, Q), earliest arrivals; 0 for absent agents
    pair_costs: jax.Array  # int16 (P, Q), lower bounds on the cost of both; 0 where unknown
    stairs: jax.Array  # uint32 (2, P, Q), from `arrivals.staircases`; 0 where unknown
    total: jax.Array  # bool (Q,), whether bounds are on the sum of costs; else on the makespan
    waits: jax.Array  # bool (Q,), whether agents may wait before their last arrival
    first: jax.Array  # int16 (Q,), first bound to search
    last: jax.Array  # int16 (Q,), last bound to search
    budget: jax.Array  # int32 (Q,), number of replanned agents before the search gives up
    active: jax.Array  # bool (Q,)


class TreeAnswers(NamedTuple):
    """Answers of a search, one per query."""

    solved: jax.Array  # bool (Q,), a plan within `bound`, which is the least possible
    gave_up: jax.Array  # bool (Q,), neither a plan nor a proof that none exists up to `last`
    bound: jax.Array  # int16 (Q,), least bound that is not refuted
    expansions: jax.Array  # int32 (Q,), agents replanned
    paths: jax.Array  # int16 (K, T + 1, Q), cells, where `solved`


def empty_answers(queries: TreeQueries, horizon: int) -> TreeAnswers:
    """Return empty answers for plans of T = `horizon` steps."""
    K, Q = queries.starts.shape
    false, zero = jnp.zeros(Q, bool), jnp.zeros(Q, jnp.int32)
    return TreeAnswers(false, false, queries.first, zero, jnp.zeros((K, horizon + 1, Q), jnp.int16))


class TreeLevel(NamedTuple):
    """A node of the current branch, and the constraint to the next node: int16 (B,) each."""

    conflict: PathConflict  # conflict that the node splits on
    side: jax.Array  # current or next child, 0 or 1; 2 when both are done
    conflicts: jax.Array  # number of conflicts of the node
    cost: jax.Array  # cost of the constrained agent before the constraint
    limit: jax.Array  # arrival limit that the constraint replaced
    fixed: jax.Array  # cells that the constraint fixed: bit 0 at its time, bit 1 one step later


FIELDS = len(PathConflict._fields) + len(TreeLevel._fields) - 1
SIDE = len(PathConflict._fields)


class TreeBranch(NamedTuple):
    """The current branch, one level per constraint."""

    levels: jax.Array  # int16 (FIELDS, L, B), the fields of `TreeLevel`
    paths: jax.Array  # int16 (B, L, T + 1), the constrained agent's path before, with FORCED


class TreeNode(NamedTuple):
    """The current node."""

    paths: jax.Array  # int16 (K, T + 1, B), cells; with FORCED where the agent has no choice
    costs: jax.Array  # int16 (K, B)
    earliest: jax.Array  # int16 (K, B), earliest allowed arrivals
    latest: jax.Array  # int16 (K, B), latest allowed arrivals; then the goal is closed to others
    forbidden: jax.Array  # words (5, K, T + 1, R, B) per agent: the fields of `Blocked`
    fixed: jax.Array  # words (2, K, T + 1, B), row and bit of the cell that an agent must be in; no
    #   bit where the agent is free


def take_agent(values: jax.Array | Sequence[jax.Array], agent: jax.Array) -> jax.Array:
    """Return the entry of agent (B,): (K, ..., B) to (..., B)."""
    result = values[0]
    for k in range(1, len(values)):
        result = jnp.where(agent == k, values[k], result)
    return result


def set_agent(values: jax.Array, agent: jax.Array, new: jax.Array, where: jax.Array) -> jax.Array:
    """Replace the entry of agent (B,) in (K, ..., B) with `new` (..., B) where `where` is True."""
    K, B = values.shape[0], values.shape[-1]
    mask = where & (agent == np.arange(K, dtype=np.int16)[:, None])
    return jnp.where(mask.reshape(K, *(1,) * (values.ndim - 2), B), new, values)


def read_level(branch: TreeBranch, depth: jax.Array) -> TreeLevel:
    """Return the levels at depth (B,)."""
    fields = branch.levels[:, depth, jnp.arange(depth.shape[0])]
    return TreeLevel(PathConflict(*fields[:SIDE]), *fields[SIDE:])


def write_level(branch: TreeBranch, depth: jax.Array, level: TreeLevel) -> TreeBranch:
    """Replace the levels at depth (B,)."""
    fields = jnp.stack([field.astype(jnp.int16) for field in jax.tree.leaves(level)])
    b = jnp.arange(depth.shape[0])
    return branch._replace(levels=branch.levels.at[:, depth, b].set(fields))


def constrained_agent(level: Any) -> jax.Array:
    """Return the agent that the current child constrains and replans, (B,)."""
    return jnp.where(level.side == 0, level.conflict.first, level.conflict.second)


def toggle_constraint(
    node: TreeNode, level: TreeLevel, where: jax.Array, undo: bool = False
) -> tuple[TreeNode, tuple[jax.Array, jax.Array]]:
    """Add the constraint of the current child where `where` is True, or undo it.

    Returns:
        The node; int16 (B,), the arrival limit that was replaced; and int16 (B,), the cells of the
        first agent that were fixed. The last two are the `limit` and `fixed` of the level, which
        are needed to undo the constraint.
    """
    conflict = level.conflict
    word = node.forbidden.dtype.type
    R = node.forbidden.shape[3]
    first_child = level.side == 0
    agent = constrained_agent(level)
    cell = jnp.where(first_child, conflict.first_cell, conflict.second_cell)
    next_cell = jnp.where(first_child, conflict.first_next_cell, conflict.second_next_cell)
    vertex = where & (conflict.kind == VERTEX)
    swap = where & (conflict.kind == SWAP)
    b = jnp.arange(agent.shape[0])
    lower = jnp.where(swap, jnp.minimum(cell, next_cell), cell)
    bit = word(1) << (lower & (PITCH - 1)).astype(word)
    bit = jnp.where(vertex | swap, bit, jnp.zeros_like(bit))
    field = jnp.where(vertex | ~swap, 0, _field_of_move(cell, next_cell))
    at = (field, agent, conflict.time, jnp.clip(lower >> ROW_SHIFT, 0, R - 1), b)
    # Paths obey the branch, so no bit is set twice, and the same exclusive or undoes a constraint.
    forbidden = node.forbidden.at[at].set(node.forbidden[at] ^ bit)

    # In a TARGET conflict the second agent rests. Side 0: it is at rest by then, and no other agent
    # may enter; side 1: it arrives later. In an ARRIVAL conflict one of the two is late.
    target, arrival = where & (conflict.kind == TARGET), where & (conflict.kind == ARRIVAL)
    rests, delayed = target & first_child, (target & ~first_child) | arrival
    limited = jnp.where(arrival, agent, conflict.second)
    latest, earliest = node.latest[limited, b], node.earliest[limited, b]
    limit = jnp.where(rests, latest, earliest)
    # Disjoint splitting: the second child requires the first agent to do what the first forbids.
    now = (conflict.first, conflict.time, b)
    then = (conflict.first, jnp.minimum(conflict.time + 1, node.fixed.shape[2] - 1), b)
    before, after = node.fixed[:, *now], node.fixed[:, *then]
    if undo:
        new_earliest = new_latest = level.limit
        fixed = jnp.where(where, level.fixed, jnp.int16(0))
        before = jnp.where(fixed & 1 != 0, word(0), before)
        after = jnp.where(fixed & 2 != 0, word(0), after)
    else:
        new_earliest = jnp.maximum(limit, jnp.where(arrival, cell, conflict.time + 1))
        new_latest = jnp.minimum(limit, conflict.time)
        # A cell that is already fixed remains so when this constraint is undone.
        fix_now = (vertex | swap) & ~first_child & (before[1] == 0)
        fix_then = swap & ~first_child & (after[1] == 0)
        fixed = fix_now + jnp.int16(2) * fix_then
        before = jnp.where(fix_now, jnp.stack(row_and_bit(conflict.first_cell, R)), before)
        after = jnp.where(fix_then, jnp.stack(row_and_bit(conflict.first_next_cell, R)), after)
    at_rest = (limited, b)
    node = node._replace(
        forbidden=forbidden,
        earliest=node.earliest.at[at_rest].set(jnp.where(delayed, new_earliest, earliest)),
        latest=node.latest.at[at_rest].set(jnp.where(rests, new_latest, latest)),
        fixed=node.fixed.at[:, *now].set(before).at[:, *then].set(after),
    )
    return node, (limit, fixed)


def _field_of_move(cell: jax.Array, next_cell: jax.Array) -> jax.Array:
    """Return the `Blocked` field, int32 (B,), of a move between neighbours, int16 (B,) each."""
    step = next_cell - cell
    downwards = jnp.where(step > 0, 3, 4)
    return jnp.where(step == 1, 1, jnp.where(step == -1, 2, downwards))


def replan_agent(
    task: TreeQueries, buffers: SearchBuffers, node: TreeNode, agent: jax.Array, latest: jax.Array
) -> tuple[jax.Array, jax.Array, SearchBuffers]:
    """Find an earliest path of agent (B,) under its constraints, with few conflicts.

    With a bound on the makespan, a later path is accepted if it avoids all conflicts.

    Returns:
        int16 (T + 1, B), cells with FORCED; int16 (B,), the arrival or NEVER; and the buffers.
    """
    K, R = node.paths.shape[0], task.free.shape[0]
    is_agent = agent == np.arange(K, dtype=np.int16)[:, None]
    opaque_true = jnp.any(latest >= -1)
    cells = jnp.where(node.paths < 0, jnp.int16(ABSENT), node.paths & (FORCED - 1))
    bits = materialize(space_time.path_bits(cells, R), opaque_true)
    hard = _forbidden_to(task, node, bits, agent, is_agent)
    soft = space_time.block_paths(bits, R, ~is_agent)
    blocked = (hard, hard | soft)
    start, goal = materialize(
        tuple(cell_bitboard(take_agent(side, agent), R) for side in (task.starts, task.goals)),
        opaque_true,
    )
    reachable = space_time.reach_goal(
        start,
        goal,
        blocked,
        may_wait=task.waits,
        earliest=take_agent(node.earliest, agent),
        latest=latest,
        layers=buffers.layers,
        patient=~task.total,
    )
    path, layers = space_time.trace_back(
        goal, reachable, blocked, may_wait=task.waits, buffer=buffers.cells
    )
    forced = jnp.where(path.forced, jnp.int16(FORCED), jnp.int16(0))
    return path.cells | forced, reachable.arrival, SearchBuffers(reachable.layers, layers)


def _forbidden_to(
    task: TreeQueries, node: TreeNode, bits: PathBits, agent: jax.Array, is_agent: jax.Array
) -> Blocked:
    """Return the cells and moves that holes and constraints forbid agent (B,): (T + 1, R, B)."""
    K, times, _ = node.paths.shape
    R = task.free.shape[0]
    zero = jnp.zeros((), task.free.dtype)
    number = np.arange(R, dtype=task.free.dtype)[:, None]
    t = np.arange(times, dtype=np.int16)[:, None, None]
    cells, *moves = (take_agent(words, agent) for words in node.forbidden)
    cells |= ~task.free
    for k in range(K):
        # Each agent ends its path at its goal; once it must rest there, no other agent may enter.
        resting = (number == bits.row[k, -1]) & (node.latest[k] <= t) & ~is_agent[k]
        cells |= jnp.where(resting, bits.bit[k, -1], zero)
    # Others avoid cells where an agent must be, and the agent itself avoids all other cells.
    cells |= unite_cells(node.fixed[0], node.fixed[1], R, ~is_agent)
    row, bit = take_agent(node.fixed[0], agent)[:, None], take_agent(node.fixed[1], agent)[:, None]
    cells |= jnp.where(bit == 0, zero, ~jnp.where(number == row, bit, zero))
    return Blocked(cells, *moves)
