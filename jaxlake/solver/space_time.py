"""Earliest arrival of one agent among moving obstacles, for many boards at once."""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.dynamics import Action
from jaxlake.solver import bitboard

NEVER = 1 << 13
"""Arrival time of an unreachable goal. It exceeds all times, and twice its value fits in int16."""

ABSENT = -1
"""Cell of an absent agent."""


class Blocked(NamedTuple):
    """Cells and moves that an agent cannot use: words (T + 1, ..., R, B) each."""

    cells: jax.Array  # at t
    right: jax.Array  # moves, from t to t + 1, as in `MoveSets`
    left: jax.Array
    down: jax.Array
    up: jax.Array

    def moves(self, t: jax.Array) -> bitboard.MoveSets:
        """Return the moves blocked from t to t + 1, words (..., R, B)."""
        return bitboard.MoveSets(*(_at_time(moves, t) for moves in self[1:]))

    def __or__(self, other: "Blocked") -> "Blocked":
        return Blocked(*(x | y for x, y in zip(self, other, strict=True)))


class Reachable(NamedTuple):
    """Reachable cells of one agent by time."""

    layers: tuple[jax.Array, ...]  # words (T + 1, R, B) per level; undefined after all arrivals
    arrival: jax.Array  # int16 (B,), time from which the agent stays at its goal, or NEVER


class TracedPath(NamedTuple):
    """One path per board."""

    cells: jax.Array  # int16 (T + 1, B), at the goal from the arrival on
    forced: jax.Array  # bool (T + 1, B), all earliest paths use this cell; with two levels only


class PathBits(NamedTuple):
    """Paths as words (..., T + 1, B): row and bit of each cell, and of each edge's lesser cell."""

    row: jax.Array
    bit: jax.Array
    edge_row: jax.Array  # row of the edge from t to t + 1
    across: jax.Array  # bit of the edge, if it lies in a row
    along: jax.Array  # bit of the edge, if it lies in a column


class SearchBuffers(NamedTuple):
    """Memory that the searches write before they read it."""

    layers: tuple[jax.Array, ...]  # words (T + 1, R, B) per level
    cells: jax.Array  # words (T + 1, R, B)


def search_buffers(horizon: int, rows: int, boards: int, levels: int) -> SearchBuffers:
    """Allocate memory for plans of T = `horizon` steps."""
    blank = jnp.zeros((horizon + 1, rows, boards), bitboard.word_type(rows))
    return SearchBuffers((blank,) * levels, blank)


def _at_time(array: jax.Array, t: jax.Array) -> jax.Array:
    return jax.lax.dynamic_index_in_dim(array, t, keepdims=False)


def _max_over_times(values: jax.Array) -> jax.Array:
    """Return the largest of int16 (T + 1, B) for each board, (B,)."""
    # XLA splits longer reductions in two on CPUs and does not vectorise the first part.
    parts = [jnp.max(values[t : t + 32], axis=0) for t in range(0, len(values), 32)]
    return reduce(jnp.maximum, parts)


def _lane_mask(where: jax.Array | bool, like: jax.Array) -> jax.Array:
    """Return words (B,): all ones where bool (B,) is True."""
    ones = ~jnp.zeros(like.shape[-1], like.dtype)
    return jnp.where(where, ones, jnp.zeros_like(ones))


def distances_alone(free: jax.Array, starts: jax.Array, goals: jax.Array) -> jax.Array:
    """Return the number of steps that each agent needs alone, int16 (K, B).

    Boards are words (R, B); starts and goals are int16 (K, B) cells. The result is NEVER without a
    path and 0 for absent agents.
    """
    R = free.shape[0]
    State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

    def spread(state: State) -> State:
        t, boards, steps, _ = state
        at_goal = bitboard.any_cell(boards & ends)
        steps = jnp.where(at_goal, jnp.minimum(steps, t), steps)
        wider = boards | (bitboard.dilate(boards) & free)
        return t + 1, wider, steps, jnp.any(bitboard.any_cell(wider ^ boards) & (steps == NEVER))

    boards, ends = (
        jnp.stack([bitboard.cell_bitboard(cell, R) for cell in side]) for side in (starts, goals)
    )
    steps = jnp.where(starts == ABSENT, jnp.int16(0), jnp.int16(NEVER))
    state = (jnp.int16(0), boards, steps, jnp.bool_(True))
    return jax.lax.while_loop(lambda state: state[3], spread, state)[2]


class _Forward(NamedTuple):
    time: jax.Array  # int32 ()
    boards: tuple[jax.Array, ...]  # words (R, B) per level, cells that the agent can be in now
    arrivals: tuple[jax.Array, ...]  # int16 (B,) per requested level
    layers: tuple[jax.Array, ...]


def reach_goal(
    start: jax.Array,
    goal: jax.Array,
    blocked: tuple[Blocked, ...],
    *,
    waits: jax.Array | bool,
    earliest: jax.Array | int,
    latest: jax.Array,
    layers: tuple[jax.Array, ...],
    patient: jax.Array | None = None,
) -> Reachable:
    """Search forward until every agent stays at its goal or cannot reach it.

    Levels are searches with different blocked cells and moves; blocked cells include holes. The
    first level determines the arrival. `patient` agents use the arrival of the second level if it
    has one.

    Args:
        start: words (R, B) with one cell each.
        goal: words (R, B) with one cell each.
        blocked: One or two levels.
        waits: bool (B,), whether the agent may wait before it has arrived.
        earliest: int16 (B,), earliest arrival.
        latest: int16 (B,), latest arrival, at most T; negative for idle lanes.
        layers: Buffers for the layers of the result.
        patient: bool (B,), agents that prefer the arrival of the second level.
    """
    times, _, B = layers[0].shape
    never = jnp.int16(NEVER)
    may_stay = _lane_mask(waits, start)
    after = np.arange(1, times + 1, dtype=np.int16)[:, None]

    def earliest_stay(shut: Blocked) -> jax.Array:
        """Return the earliest allowed arrival: after the last time at which the goal is blocked."""
        shut_goal = bitboard.any_cell(shut.cells & goal)
        return jnp.maximum(_max_over_times(jnp.where(shut_goal, after, jnp.int16(0))), earliest)

    levels = blocked[: 1 if patient is None else 2]
    first = [earliest_stay(shut) for shut in levels]

    def arrive(
        now: jax.Array, boards: tuple[jax.Array, ...], arrivals: tuple[jax.Array, ...]
    ) -> tuple[jax.Array, ...]:
        new = []
        for board, arrival, least in zip(boards, arrivals, first, strict=False):
            at_goal = bitboard.any_cell(board & goal) & (now >= least) & (now <= latest)
            new.append(jnp.where(at_goal, jnp.minimum(arrival, now), arrival))
        return tuple(new)

    def advance(state: _Forward) -> _Forward:
        t = state.time
        boards, layers = [], []
        for board, layer, shut in zip(state.boards, state.layers, blocked, strict=True):
            layers.append(jax.lax.dynamic_update_index_in_dim(layer, board, t, 0))
            wider = (board & may_stay) | bitboard.dilate(board, shut.moves(t), t >= 0)
            boards.append(wider & ~_at_time(shut.cells, t + 1))
        now, reached = (t + 1).astype(jnp.int16), tuple(boards)
        return _Forward(t + 1, reached, arrive(now, reached, state.arrivals), tuple(layers))

    def is_unfinished(state: _Forward) -> jax.Array:
        waiting = state.arrivals[0] == never
        if patient is not None:
            waiting |= patient & (state.arrivals[1] == never)
        return jnp.any((state.time.astype(jnp.int16) < latest) & waiting)

    boards = tuple(start & ~shut.cells[0] for shut in blocked)
    arrivals = arrive(jnp.int16(0), boards, (jnp.full(B, never),) * len(levels))
    state = _Forward(jnp.int32(0), boards, arrivals, layers)
    state = jax.lax.while_loop(is_unfinished, advance, state)
    arrival = state.arrivals[0]
    if patient is not None:
        arrival = jnp.where(patient & (state.arrivals[1] != never), state.arrivals[1], arrival)
    return Reachable(state.layers, arrival)


class _Backward(NamedTuple):
    cell: jax.Array  # words (R, B), current cell of the path
    sets: jax.Array  # words (R, B), current cells of all earliest paths
    cells: jax.Array  # words (T + 1, R, B), cells of the path so far
    forced: jax.Array  # bool (T + 1, B)


def trace_back(
    goal: jax.Array,
    reachable: Reachable,
    blocked: tuple[Blocked, ...],
    *,
    waits: jax.Array | bool,
    buffer: jax.Array,
    upwards: jax.Array | bool = False,
) -> tuple[TracedPath, jax.Array]:
    """Trace an earliest path back from the goal through the layers.

    With two levels, the path prefers predecessors whose path avoids the obstacles of the second
    level, then steps that avoid them. Ties prefer moves to waits, and steps from above to steps
    from below (reversed with `upwards`). Without an arrival the path stays at the goal.

    Returns:
        The path, and the buffer, words (T + 1, R, B), for the next call.
    """
    times, R, B = reachable.layers[0].shape
    arrival = jnp.where(reachable.arrival == NEVER, jnp.int16(0), reachable.arrival)
    last = jnp.max(arrival).astype(jnp.int32)
    may_stay = _lane_mask(waits, goal)
    number = np.arange(R, dtype=goal.dtype)[:, None]
    rank = jnp.where(upwards, number[::-1], number)
    no_row = np.asarray(R, goal.dtype)
    barrier = jax.lax.optimization_barrier

    def step_back(i: jax.Array, state: _Backward) -> _Backward:
        t = last - 1 - i
        cell, layer = state.cell, _at_time(reachable.layers[0], t)
        origins = blocked[0].moves(t).reversed()
        walking = _lane_mask(t.astype(jnp.int16) < arrival, goal)
        # From most to least preferred: predecessor sets, and whether waiting is equally good.
        moves, waiting = [bitboard.dilate(cell, origins) & layer], [_lane_mask(True, goal)]
        if len(blocked) > 1:
            # `polite`: the step avoids the second level; `clean`: all earlier steps avoid it.
            room = layer & ~_at_time(blocked[1].cells, t)
            polite = bitboard.dilate(cell, blocked[1].moves(t).reversed()) & room
            still = cell & may_stay & room
            clean = _at_time(reachable.layers[1], t)
            moves = [polite & clean, polite, *moves]
            waiting = [
                *(_lane_mask(bitboard.any_cell(stay), goal) for stay in (still & clean, still)),
                *waiting,
            ]
        moves = barrier(moves)
        rows = [jnp.min(jnp.where(move != 0, rank, no_row), axis=0) for move in moves]
        rows = barrier(rows)
        # Start with the least preferred choice, so that better ones replace it. `move & -move` is
        # the lowest bit of a row: the leftmost of its cells.
        predecessor = cell
        for move, row, still in reversed(list(zip(moves, rows, waiting, strict=True))):
            step = jnp.where(rank == row, move & -move, 0)
            predecessor = jnp.where(row != no_row, step, (cell & still) | (predecessor & ~still))
        cell = barrier((predecessor & walking) | (cell & ~walking))
        cells = jax.lax.dynamic_update_index_in_dim(state.cells, cell, t, 0)
        if len(blocked) == 1:
            return state._replace(cell=cell, cells=cells)
        before = (bitboard.dilate(state.sets, origins, t >= 0) | (state.sets & may_stay)) & layer
        sets = barrier((before & walking) | (state.sets & ~walking))
        is_forced = ~bitboard.any_cell(sets & ~cell)
        forced = jax.lax.dynamic_update_index_in_dim(state.forced, is_forced, t, 0)
        return _Backward(cell, sets, cells, forced)

    initial = _Backward(goal, goal, buffer, jnp.ones((times, B), bool))
    final = jax.lax.fori_loop(0, last, step_back, initial)
    at_goal = np.arange(times, dtype=np.int16)[:, None] >= arrival
    path = jnp.where(at_goal, bitboard.only_cell(goal), bitboard.only_cell(final.cells))
    return TracedPath(path, final.forced), final.cells


def path_bits(cells: jax.Array, rows: int) -> PathBits:
    """Split paths, int16 (..., T + 1, B) cells, into rows and bits; NOBODY has no bit."""
    row, bit = bitboard.row_and_bit(cells, rows)
    next_row, next_bit = (
        jnp.concatenate([words[..., 1:, :], words[..., -1:, :]], axis=-2) for words in (row, bit)
    )
    zero = jnp.zeros((), bit.dtype)
    beside, below = (row == next_row) & (bit != next_bit), row != next_row
    return PathBits(
        row=row,
        bit=bit,
        edge_row=jnp.minimum(row, next_row),
        across=jnp.where(beside, jnp.minimum(bit, next_bit), zero),
        along=jnp.where(below, bit, zero),
    )


def block_paths(paths: PathBits, rows: int, include: jax.Array) -> Blocked:
    """Return the cells and moves that agents in `include`, bool (K, B), block for others."""
    cells = bitboard.union_of_cells(paths.row, paths.bit, rows, include)
    across = bitboard.union_of_cells(paths.edge_row, paths.across, rows, include)
    along = bitboard.union_of_cells(paths.edge_row, paths.along, rows, include)
    # An agent that moves along an edge blocks both directions: the opposite move would be a swap.
    return Blocked(cells, across, across, along, along)


def path_actions(path: jax.Array) -> jax.Array:
    """Return the actions, int8 (..., T, B), of paths of cells, int16 (..., T + 1, B)."""
    change = path[..., 1:, :] - path[..., :-1, :]
    actions = jnp.zeros(change.shape, jnp.int8)
    for action in Action:
        actions = jnp.where(change == bitboard.CELL_DELTAS[action], jnp.int8(action), actions)
    return actions


def batch_major_actions(actions: jax.Array) -> jax.Array:
    """Transpose actions int8 (K, T, B) to (B, T, K); CPUs move four actions as one word."""
    K, T, B = actions.shape

    def by_fours(actions: jax.Array) -> jax.Array:
        fours = actions.swapaxes(0, 1).reshape(T * K // 4, 4, B).swapaxes(1, 2)
        words = jax.lax.bitcast_convert_type(fours, jnp.uint32).T
        return jax.lax.bitcast_convert_type(words, jnp.int8).reshape(B, T, K)

    def one_by_one(actions: jax.Array) -> jax.Array:
        return actions.transpose(2, 1, 0)

    if T * K % 4:
        return one_by_one(actions)
    return jax.lax.platform_dependent(actions, cpu=by_fours, default=one_by_one)


def path_arrivals(paths: jax.Array) -> jax.Array:
    """Return when each agent on paths, int16 (..., T + 1, B) cells, reaches its last cell."""
    moving = paths[..., 1:, :] != paths[..., :-1, :]
    after = np.arange(1, paths.shape[-2], dtype=np.int16)[:, None]
    return jnp.max(jnp.where(moving, after, jnp.int16(0)), axis=-2)


def path_makespan(paths: jax.Array) -> jax.Array:
    """Return when the last agent on paths, int16 (K, T + 1, B) cells, reaches its last cell."""
    # XLA would merge two reductions into one, which is 30x slower on CPUs.
    return reduce(jnp.maximum, list(path_arrivals(paths)))


def has_waits(paths: jax.Array) -> jax.Array:
    """Return whether any agent waits before its last arrival, for paths int16 (K, T + 1, B)."""
    still = paths[:, 1:] == paths[:, :-1]
    early = np.arange(paths.shape[1] - 1)[:, None] < path_arrivals(paths)[:, None]
    return jnp.any(still & early, axis=(0, 1))
