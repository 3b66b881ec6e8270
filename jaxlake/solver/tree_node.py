"""One node of a constraint tree a lane: its paths and constraints, and the branch that leads to it.

Constraints are added and taken away in place. They ban one agent from a cell or from a move, fix
where it is, or bound when it arrives (target reasoning). A node never holds more than one branch
needs: what a constraint replaced stands in its level.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.bitboard import PITCH, line_and_bit, marks, single
from jaxlake.solver.conflicts import NARROW, SWAP, TARGET, VERTEX, Conflict
from jaxlake.solver.hold import hold
from jaxlake.solver.queries import Queries
from jaxlake.solver.space_time import (
    NOBODY,
    Closed,
    Scratch,
    Track,
    occupied,
    reach,
    trace,
    track_of,
)


class Level(NamedTuple):
    """A node of the branch in hand, and the constraint that leads to the next: int16 (B,) each."""

    conflict: Conflict  # what the node splits on
    side: jax.Array  # the child in hand or to be tried; 2 when both are done
    clashes: jax.Array  # conflicts of the node
    cost: jax.Array  # of the constrained agent before
    limit: jax.Array  # the arrival limit that the constraint replaced
    fixed: jax.Array  # what the constraint fixed: 1 at its time, 2 one step later


FIELDS = len(Conflict._fields) + len(Level._fields) - 1
SIDE = len(Conflict._fields)


class Branch(NamedTuple):
    """The branch in hand, one level for each constraint."""

    levels: jax.Array  # int16 (FIELDS, L, B), the fields of `Level`
    paths: jax.Array  # int16 (B, L, T + 1), of the constrained agent before; with NARROW


class Node(NamedTuple):
    """The node in hand."""

    paths: jax.Array  # int16 (K, T + 1, B), cells; with NARROW where the agent has no choice
    costs: jax.Array  # int16 (K, B)
    earliest: jax.Array  # int16 (K, B), arrivals before that are forbidden
    latest: jax.Array  # int16 (K, B), likewise after that; others keep off the goal from then on
    forbidden: jax.Array  # words (5, K, T + 1, R, B), to one agent: the fields of `Closed`
    fixed: jax.Array  # words (2, K, T + 1, B), line and bit of where one agent has to be; no bit
    #   where it does not matter
    tracks: Track  # words (K, T + 1, B) each, of the paths


def unplanned(agents: int) -> jax.Array:
    """int16 (K, 1, 1): cells off the board, another one for each agent, so that none meet."""
    return (NOBODY - jnp.arange(agents, dtype=jnp.int16))[:, None, None]


def pick(values: jax.Array, agent: jax.Array) -> jax.Array:
    """(K, ..., B) to (..., B): the entry of agent (B,)."""
    chosen = values[0]
    for k in range(1, values.shape[0]):
        chosen = jnp.where(agent == k, values[k], chosen)
    return chosen


def put(values: jax.Array, agent: jax.Array, new: jax.Array, where: jax.Array) -> jax.Array:
    """(K, ..., B) with the entry of agent (B,) replaced by `new` (..., B) where bool (B,) says."""
    K, B = values.shape[0], values.shape[-1]
    here = where & (agent == np.arange(K, dtype=np.int16)[:, None])
    return jnp.where(here.reshape(K, *(1,) * (values.ndim - 2), B), new, values)


def with_path(
    node: Node, agent: jax.Array, path: jax.Array, where: jax.Array, true: jax.Array
) -> Node:
    """The node with the path, int16 (T + 1, B) with NARROW, of agent (B,) replaced."""
    track = hold(track_of(path & (NARROW - 1), node.forbidden.shape[3]), true)
    return node._replace(
        paths=put(node.paths, agent, path, where),
        tracks=Track(
            *(put(old, agent, new, where) for old, new in zip(node.tracks, track, strict=True))
        ),
    )


def read(branch: Branch, depth: jax.Array) -> Level:
    """The levels at depth (B,)."""
    fields = branch.levels[:, depth, jnp.arange(depth.shape[0])]
    of_conflict = len(Conflict._fields)
    return Level(Conflict(*fields[:of_conflict]), *fields[of_conflict:])


def write(branch: Branch, depth: jax.Array, level: Level) -> Branch:
    """The branch with the levels at depth (B,) replaced."""
    fields = jnp.stack([field.astype(jnp.int16) for field in jax.tree.leaves(level)])
    b = jnp.arange(depth.shape[0])
    return branch._replace(levels=branch.levels.at[:, depth, b].set(fields))


def _sort_of_move(here: jax.Array, there: jax.Array) -> jax.Array:
    """int32 (B,): which field of `Closed` a move between neighbouring cells, int16 (B,), is in."""
    step = there - here
    downwards = jnp.where(step > 0, 3, 4)
    return jnp.where(step == 1, 1, jnp.where(step == -1, 2, downwards))


def toggle(
    node: Node, level: Level, where: jax.Array, undo: bool = False
) -> tuple[Node, tuple[jax.Array, jax.Array]]:
    """Add the constraint of the child at hand, or take it away again.

    A vertex or swapping constraint is one bit, never set twice on a branch, since paths obey what
    is on it; adding and removing are the same exclusive or.

    Args:
        node: the node.
        level: the level; to undo it with the `limit` and `fixed` that adding returned.
        where: bool (B,), which lanes.
        undo: whether to take it away.

    Returns:
        The node, int16 (B,) the arrival limit that was replaced, and int16 (B,) which steps of the
        first agent were fixed.
    """
    conflict = level.conflict
    word = node.forbidden.dtype.type
    R = node.forbidden.shape[3]
    first = level.side == 0
    agent = jnp.where(first, conflict.one, conflict.other)
    here = jnp.where(first, conflict.one_here, conflict.other_here)
    there = jnp.where(first, conflict.one_there, conflict.other_there)
    vertex = where & (conflict.kind == VERTEX)
    swap = where & (conflict.kind == SWAP)
    b = jnp.arange(agent.shape[0])
    lower = jnp.where(swap, jnp.minimum(here, there), here)
    bit = word(1) << (lower & (PITCH - 1)).astype(word)
    bit = jnp.where(vertex | swap, bit, jnp.zeros_like(bit))
    sort = jnp.where(vertex | ~swap, 0, _sort_of_move(here, there))
    at = (sort, agent, conflict.time, jnp.clip(lower >> 6, 0, R - 1), b)
    forbidden = node.forbidden.at[at].set(node.forbidden[at] ^ bit)

    # A target conflict names the agent at rest second. Side 0: it rests there by then, and nobody
    # else may enter; side 1: it arrives later.
    target = where & (conflict.kind == TARGET)
    rests, delayed = target & first, target & ~first
    old = jnp.where(first, pick(node.latest, conflict.other), pick(node.earliest, conflict.other))
    # Disjoint splitting: in the second child the first agent does what the first child forbids.
    now = (conflict.one, conflict.time, b)
    then = (conflict.one, jnp.minimum(conflict.time + 1, node.fixed.shape[2] - 1), b)
    before, after = node.fixed[:, *now], node.fixed[:, *then]
    if undo:
        earliest = latest = level.limit
        fixed = jnp.where(where, level.fixed, jnp.int16(0))
        before = jnp.where(fixed & 1 != 0, word(0), before)
        after = jnp.where(fixed & 2 != 0, word(0), after)
    else:
        earliest = jnp.maximum(old, conflict.time + 1)
        latest = jnp.minimum(old, conflict.time)
        at_first = (vertex | swap) & ~first & (before[1] == 0)
        at_second = swap & ~first & (after[1] == 0)
        fixed = at_first + jnp.int16(2) * at_second
        before = jnp.where(at_first, jnp.stack(line_and_bit(conflict.one_here, R)), before)
        after = jnp.where(at_second, jnp.stack(line_and_bit(conflict.one_there, R)), after)
    rested, turned = node.latest[conflict.other, b], node.earliest[conflict.other, b]
    node = node._replace(
        forbidden=forbidden,
        earliest=node.earliest.at[conflict.other, b].set(jnp.where(delayed, earliest, turned)),
        latest=node.latest.at[conflict.other, b].set(jnp.where(rests, latest, rested)),
        fixed=node.fixed.at[:, *now].set(before).at[:, *then].set(after),
    )
    return node, (old, fixed)


def best_path(
    task: Queries, memory: Scratch, node: Node, agent: jax.Array, latest: jax.Array
) -> tuple[jax.Array, jax.Array, Scratch]:
    """An earliest path of one agent (B,) under its constraints, with few conflicts.

    Returns:
        int16 (T + 1, B) cells with NARROW where the agent has no choice, int16 (B,) its arrival
        or NEVER, and the scratch memory.
    """
    K = node.paths.shape[0]
    R = task.free.shape[0]
    is_agent = agent == np.arange(K, dtype=np.int16)[:, None]
    hard = _forbidden(task, node, agent, is_agent)
    soft = occupied(node.tracks, R, ~is_agent)
    closed = (hard, hard | soft)
    goal = single(pick(task.goals, agent), R)
    found = reach(
        single(pick(task.starts, agent), R),
        goal,
        closed,
        waits=task.waits,
        earliest=pick(node.earliest, agent),
        latest=latest,
        layers=memory.layers,
    )
    path, cells = trace(goal, found, closed, waits=task.waits, scratch=memory.cells)
    narrow = jnp.where(path.narrow, jnp.int16(NARROW), jnp.int16(0))
    return path.cells | narrow, found.arrival, Scratch(found.layers, cells)


def _forbidden(task: Queries, node: Node, agent: jax.Array, is_agent: jax.Array) -> Closed:
    """What holes and constraints close to an agent (B,): words (T + 1, R, B)."""
    K, times, _ = node.paths.shape
    R = task.free.shape[0]
    none = jnp.zeros((), task.free.dtype)
    number = np.arange(R, dtype=task.free.dtype)[:, None]
    t = np.arange(times, dtype=np.int16)[:, None, None]
    cells, *moves = (pick(words, agent) for words in node.forbidden)
    cells |= ~task.free
    for k in range(K):
        # At its goal at the end of its path; nobody else may enter once it has to be at rest.
        resting = (number == node.tracks.line[k, -1]) & (node.latest[k] <= t) & ~is_agent[k]
        cells |= jnp.where(resting, node.tracks.bit[k, -1], none)
    cells |= marks(node.fixed[0], node.fixed[1], R, ~is_agent)
    line, bit = pick(node.fixed[0], agent)[:, None], pick(node.fixed[1], agent)[:, None]
    cells |= jnp.where(bit == 0, none, ~jnp.where(number == line, bit, none))
    return Closed(cells, *moves)
