"""One agent's earliest arrival among things that move, for many boards at once.

Time-expanded reachability on bit boards: where the agent can be at time t + 1 is the dilation of
where it can be at time t, less what is closed. A path leads back from the goal through these sets.

What is closed is worked out for all times before the loops, and the loops write down only what
they carry: on CPUs a compiler vectorises both, and neither a set that is worked out step by step
nor one that is written while it is worked out (27 times slower, measured).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.dynamics import Action
from jaxlake.solver.bitboard import (
    CELL_DELTAS,
    Edges,
    contains,
    dilate,
    line_and_bit,
    marks,
    only_cell,
    word_type,
)

NEVER = 1 << 13
"""Time of an arrival that does not happen: above any time, and two add up within int16."""

NOBODY = -1
"""The cell of an agent that does not exist, in a path."""


class Closed(NamedTuple):
    """What an agent can't use, time by time: words (T + 1, ..., R, B) each."""

    cells: jax.Array  # at t
    right: jax.Array  # moves, from t to t + 1, as in `Edges`
    left: jax.Array
    down: jax.Array
    up: jax.Array

    def edges(self, t: jax.Array) -> Edges:
        """The moves closed from t to t + 1: words (..., R, B)."""
        return Edges(*(_at(moves, t) for moves in self[1:]))

    def __or__(self, other: "Closed") -> "Closed":
        """What either closes."""
        return Closed(*(x | y for x, y in zip(self, other, strict=True)))


class Reach(NamedTuple):
    """Where one agent can be, time by time."""

    layers: tuple[jax.Array, ...]  # words (T + 1, R, B) a level; after all arrivals no matter what
    arrival: jax.Array  # int16 (B,), when the agent is at its goal to stay, NEVER if it isn't


class Path(NamedTuple):
    """One path a board."""

    cells: jax.Array  # int16 (T + 1, B), at the goal from the arrival on
    narrow: jax.Array  # bool (T + 1, B), all earliest paths are in this cell; with two levels only


class Track(NamedTuple):
    """A path as words (T + 1, B): a cell is a bit of a line, an edge the one at its lower end."""

    line: jax.Array
    bit: jax.Array
    edge_line: jax.Array  # of the edge from t to t + 1
    across: jax.Array  # its bit, if it lies in a row
    along: jax.Array  # its bit, if it lies in a column


class Scratch(NamedTuple):
    """Memory that the searches write before they read it."""

    layers: tuple[jax.Array, ...]  # words (T + 1, R, B) a level
    cells: jax.Array  # words (T + 1, R, B)


def scratch(horizon: int, rows: int, boards: int, levels: int) -> Scratch:
    """Memory for plans of T = `horizon` steps."""
    blank = jnp.zeros((horizon + 1, rows, boards), word_type(rows))
    return Scratch((blank,) * levels, blank)


def _at(array: jax.Array, t: jax.Array | int) -> jax.Array:
    return jax.lax.dynamic_index_in_dim(array, t, keepdims=False)


def _all(where: jax.Array | bool, like: jax.Array) -> jax.Array:
    """Words (B,): all ones where bool (B,) is True."""
    ones = ~jnp.zeros(like.shape[-1], like.dtype)
    return jnp.where(where, ones, jnp.zeros_like(ones))


class _Forward(NamedTuple):
    time: jax.Array  # int32 ()
    boards: tuple[jax.Array, ...]  # words (R, B) a level
    arrival: jax.Array  # int16 (B,)
    layers: tuple[jax.Array, ...]


def reach(
    start: jax.Array,
    goal: jax.Array,
    closed: tuple[Closed, ...],
    *,
    waits: jax.Array | bool,
    earliest: jax.Array | int,
    latest: jax.Array,
    layers: tuple[jax.Array, ...],
) -> Reach:
    """Search forward until every agent has arrived to stay, or can't any more.

    Levels are searches with different ideas of what is closed, side by side. The first one decides
    about the arrival.

    Args:
        start: words (R, B), one cell each.
        goal: words (R, B), one cell each.
        closed: of each level, holes included.
        waits: bool (B,), whether the agent may wait before it has arrived.
        earliest: int16 (B,), arrivals before that do not count.
        latest: int16 (B,), nor do arrivals after that; at most T, negative for idle lanes.
        layers: scratch, as in `Reach`.

    Returns:
        The `Reach`.
    """
    times, _, B = layers[0].shape
    never = jnp.int16(NEVER)
    stays = _all(waits, start)
    # The agent stays from its arrival on: not before the goal is closed for the last time.
    shut = contains(closed[0].cells & goal)
    after = np.arange(1, times + 1, dtype=np.int16)[:, None]
    first = jnp.maximum(jnp.max(jnp.where(shut, after, jnp.int16(0)), axis=0), earliest)

    def settle(now: jax.Array, board: jax.Array, arrival: jax.Array) -> jax.Array:
        there = contains(board & goal) & (now >= first) & (now <= latest)
        return jnp.where(there, jnp.minimum(arrival, now), arrival)

    def advance(state: _Forward) -> _Forward:
        t = state.time
        boards, layers = [], []
        for board, layer, shut in zip(state.boards, state.layers, closed, strict=True):
            layers.append(jax.lax.dynamic_update_index_in_dim(layer, board, t, 0))
            wider = (board & stays) | dilate(board, shut.edges(t))
            boards.append(wider & ~_at(shut.cells, t + 1))
        now = (t + 1).astype(jnp.int16)
        return _Forward(t + 1, tuple(boards), settle(now, boards[0], state.arrival), tuple(layers))

    def unfinished(state: _Forward) -> jax.Array:
        return jnp.any((state.time.astype(jnp.int16) < latest) & (state.arrival == never))

    boards = tuple(start & ~shut.cells[0] for shut in closed)
    arrival = settle(jnp.int16(0), boards[0], jnp.full(B, never))
    state = _Forward(jnp.int32(0), boards, arrival, layers)
    state = jax.lax.while_loop(unfinished, advance, state)
    return Reach(state.layers, state.arrival)


def backwards(cells: jax.Array, closed: Edges) -> jax.Array:
    """Where the moves that lead into `cells` begin, but for closed ones; not masked by holes."""
    return dilate(cells, Edges(closed.left, closed.right, closed.up, closed.down))


class _Backward(NamedTuple):
    cell: jax.Array  # words (R, B)
    sets: jax.Array  # words (R, B), where some earliest path is
    cells: jax.Array  # words (T + 1, R, B), the cells so far
    narrow: jax.Array  # bool (T + 1, B)


def trace(
    goal: jax.Array,
    found: Reach,
    closed: tuple[Closed, ...],
    *,
    waits: jax.Array | bool,
    scratch: jax.Array,
    upwards: bool = False,
) -> tuple[Path, jax.Array]:
    """An earliest path, found backwards.

    With two levels, of the possible steps those come first that lie on a path which uses nothing
    that the second level closes, then those that themselves use nothing of that. After that moves
    come before waits, and steps from above before those from below, or after with `upwards`.

    Args:
        goal: words (R, B), one cell each.
        found: what `reach` returned.
        closed: what `reach` was given.
        waits: bool (B,), likewise.
        scratch: words (T + 1, R, B).
        upwards: see above.

    Returns:
        The `Path`, at its goal at all times where there is none, and the scratch memory.
    """
    times, R, B = found.layers[0].shape
    arrival = jnp.where(found.arrival == NEVER, jnp.int16(0), found.arrival)
    last = jnp.max(arrival).astype(jnp.int32)
    stays = _all(waits, goal)
    number = np.arange(R, dtype=goal.dtype)[:, None]
    rank = number[::-1] if upwards else number
    none = np.asarray(R, goal.dtype)
    hold = jax.lax.optimization_barrier

    def back(i: jax.Array, state: _Backward) -> _Backward:
        t = last - 1 - i
        cell, layer, edges = state.cell, _at(found.layers[0], t), closed[0].edges(t)
        walking = _all(t.astype(jnp.int16) < arrival, goal)
        # From the most liked on: sets of cells to come from, and whether waiting is as good.
        moves, waiting = [backwards(cell, edges) & layer], [_all(True, goal)]
        if len(closed) > 1:
            room = layer & ~_at(closed[1].cells, t)
            polite, still = backwards(cell, closed[1].edges(t)) & room, cell & stays & room
            clean = _at(found.layers[1], t)
            moves = [polite & clean, polite, *moves]
            waiting = [_all(contains(still & clean), goal), _all(contains(still), goal), *waiting]
        moves = hold(moves)
        rows = [jnp.min(jnp.where(move != 0, rank, none), axis=0) for move in moves]
        rows = hold(rows)
        chosen = cell
        for move, row, still in reversed(list(zip(moves, rows, waiting, strict=True))):
            step = jnp.where(rank == row, move & -move, 0)
            chosen = jnp.where(row != none, step, (cell & still) | (chosen & ~still))
        cell = hold((chosen & walking) | (cell & ~walking))
        cells = jax.lax.dynamic_update_index_in_dim(state.cells, cell, t, 0)
        if len(closed) == 1:
            return state._replace(cell=cell, cells=cells)
        before = (backwards(state.sets, edges) | (state.sets & stays)) & layer
        sets = hold((before & walking) | (state.sets & ~walking))
        alone = ~contains(sets & ~cell)
        narrow = jax.lax.dynamic_update_index_in_dim(state.narrow, alone, t, 0)
        return _Backward(cell, sets, cells, narrow)

    begun = _Backward(goal, goal, scratch, jnp.ones((times, B), bool))
    ended = jax.lax.fori_loop(0, last, back, begun)
    at_goal = np.arange(times, dtype=np.int16)[:, None] >= arrival
    path = jnp.where(at_goal, only_cell(goal), only_cell(ended.cells))
    return Path(path, ended.narrow), ended.cells


def track_of(cells: jax.Array, rows: int) -> Track:
    """The track of a path, int16 (T + 1, B) cells; NOBODY leaves none."""
    line, bit = line_and_bit(cells, rows)
    next_line, next_bit = (jnp.concatenate([words[1:], words[-1:]]) for words in (line, bit))
    none = jnp.zeros((), bit.dtype)
    beside, below = (line == next_line) & (bit != next_bit), line != next_line
    return Track(
        line=line,
        bit=bit,
        edge_line=jnp.minimum(line, next_line),
        across=jnp.where(beside, jnp.minimum(bit, next_bit), none),
        along=jnp.where(below, bit, none),
    )


def occupied(tracks: Track, rows: int, where: jax.Array) -> Closed:
    """What agents on their tracks, words (K, T + 1, B), leave no room for.

    Only those agents for which `where`, bool (K, B), is True.
    """
    across = marks(tracks.edge_line, tracks.across, rows, where)
    along = marks(tracks.edge_line, tracks.along, rows, where)
    # Who moves along an edge closes it both ways.
    return Closed(marks(tracks.line, tracks.bit, rows, where), across, across, along, along)


def plan_of(path: jax.Array) -> jax.Array:
    """Cells int16 (..., T + 1, B) to actions int8 (..., T, B)."""
    change = path[..., 1:, :] - path[..., :-1, :]
    actions = jnp.zeros(change.shape, jnp.int8)
    for action in Action:
        actions = jnp.where(change == CELL_DELTAS[action], jnp.int8(action), actions)
    return actions
