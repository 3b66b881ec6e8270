"""Earliest arrival of one agent among moving obstacles, for many boards at once.

Sets of cells are bitboards. A level is a search with its own blocked cells and moves. Shapes: B
boards with R rows, K agents, T time steps.
"""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.dynamics import Action
from jaxlake.solver import bitboard

NEVER = 1 << 13
"""Arrival time at an unreachable goal. It exceeds all times, and twice its value fits in int16."""

ABSENT = -1
"""Cell of an absent agent."""


class Blocked(NamedTuple):
    """Cells and moves that an agent cannot use: words (T + 1, ..., R, B) each."""

    cells: jax.Array  # cells at time t
    right: jax.Array  # moves from t to t + 1, as in `MoveSets`
    left: jax.Array
    down: jax.Array
    up: jax.Array

    def moves(self, t: jax.Array) -> bitboard.MoveSets:
        """Return the moves blocked from t to t + 1, words (..., R, B)."""
        return bitboard.MoveSets(*(_index_time(moves, t) for moves in self[1:]))

    def __or__(self, other: "Blocked") -> "Blocked":
        return Blocked(*(x | y for x, y in zip(self, other, strict=True)))


class Reachable(NamedTuple):
    """Reachable cells of one agent."""

    layers: tuple[jax.Array, ...]  # words (T + 1, R, B) per level, cells by time; undefined after
    #   all arrivals
    arrival: jax.Array  # int16 (B,), time from which the agent stays at its goal, or NEVER


class TracedPath(NamedTuple):
    """One path per board."""

    cells: jax.Array  # int16 (T + 1, B), the goal from the arrival on
    forced: jax.Array  # bool (T + 1, B), all earliest paths use this cell; only with two levels


class PathBits(NamedTuple):
    """Rows and bits of paths, words (..., T + 1, B). Edges use those of the upper or left cell."""

    row: jax.Array  # row of the cell at t
    bit: jax.Array  # bit of the cell at t
    edge_row: jax.Array  # row of the edge from t to t + 1
    horizontal: jax.Array  # bit of the edge if it is horizontal, else 0
    vertical: jax.Array  # bit of the edge if it is vertical, else 0


class SearchBuffers(NamedTuple):
    """Memory that the searches write before they read it."""

    layers: tuple[jax.Array, ...]  # words (T + 1, R, B) per level
    cells: jax.Array  # words (T + 1, R, B)


def search_buffers(horizon: int, num_rows: int, num_boards: int, levels: int) -> SearchBuffers:
    """Allocate memory for plans of T = `horizon` steps."""
    buffer = jnp.zeros((horizon + 1, num_rows, num_boards), bitboard.word_type(num_rows))
    return SearchBuffers((buffer,) * levels, buffer)


def _index_time(array: jax.Array, t: jax.Array) -> jax.Array:
    return jax.lax.dynamic_index_in_dim(array, t, keepdims=False)


def _max_over_times(values: jax.Array) -> jax.Array:
    # On CPUs, XLA splits longer reductions in two and does not vectorise the first part.
    parts = [jnp.max(values[t : t + 32], axis=0) for t in range(0, len(values), 32)]
    return reduce(jnp.maximum, parts)


def _lane_mask(condition: jax.Array | bool, like: jax.Array) -> jax.Array:
    """Return words (B,) of the type of `like`: all ones where the condition holds, else 0."""
    ones = ~jnp.zeros(like.shape[-1], like.dtype)
    return jnp.where(condition, ones, jnp.zeros_like(ones))


def compute_solo_distances(free: jax.Array, starts: jax.Array, goals: jax.Array) -> jax.Array:
    """Return the distance of each agent to its goal without the other agents.

    Args:
        free: words (R, B), cells that can be entered.
        starts: int16 (K, B), cells; ABSENT for absent agents.
        goals: int16 (K, B), cells, likewise.

    Returns:
        int16 (K, B). NEVER without a path, and 0 for absent agents.
    """
    R = free.shape[0]
    State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

    def advance(state: State) -> State:
        t, boards, steps, _ = state
        at_goal = bitboard.is_nonempty(boards & goal_boards)
        steps = jnp.where(at_goal, jnp.minimum(steps, t), steps)
        wider = boards | (bitboard.dilate(boards) & free)
        return t + 1, wider, steps, jnp.any(bitboard.is_nonempty(wider ^ boards) & (steps == NEVER))

    boards, goal_boards = (
        jnp.stack([bitboard.cell_bitboard(cell, R) for cell in cells]) for cells in (starts, goals)
    )
    steps = jnp.where(starts == ABSENT, jnp.int16(0), jnp.int16(NEVER))
    state = (jnp.int16(0), boards, steps, jnp.bool_(True))
    return jax.lax.while_loop(lambda state: state[3], advance, state)[2]


class _ForwardState(NamedTuple):
    time: jax.Array  # int32 ()
    boards: tuple[jax.Array, ...]  # words (R, B) per level, cells that the agent can be in now
    arrivals: tuple[jax.Array, ...]  # int16 (B,) per requested level
    layers: tuple[jax.Array, ...]


def reach_goal(
    start: jax.Array,
    goal: jax.Array,
    blocked: tuple[Blocked, ...],
    *,
    may_wait: jax.Array | bool,
    earliest: jax.Array | int,
    latest: jax.Array,
    layers: tuple[jax.Array, ...],
    patient: jax.Array | None = None,
) -> Reachable:
    """Search forward until every agent can stay at its goal or cannot reach it.

    The first level determines the arrival. `patient` agents use the arrival of the second level if
    it has one.

    Args:
        start: words (R, B), one cell each.
        goal: words (R, B), one cell each.
        blocked: Blocked cells, including holes, and moves of one or two levels.
        may_wait: bool (B,), whether the agent may wait before it has arrived.
        earliest: int16 (B,), earliest arrival.
        latest: int16 (B,), latest arrival, at most T; negative for idle lanes.
        layers: Buffers for the layers of the result.
        patient: bool (B,), agents that prefer the arrival of the second level.
    """
    times, _, B = layers[0].shape
    never = jnp.int16(NEVER)
    wait_mask = _lane_mask(may_wait, start)
    next_time = np.arange(1, times + 1, dtype=np.int16)[:, None]

    def earliest_arrival(level: Blocked) -> jax.Array:
        """Return the time after the last one at which the goal is blocked, at least `earliest`."""
        is_blocked = bitboard.is_nonempty(level.cells & goal)
        first_time = _max_over_times(jnp.where(is_blocked, next_time, jnp.int16(0)))
        return jnp.maximum(first_time, earliest)

    levels = blocked[: 1 if patient is None else 2]
    earliest_by_level = [earliest_arrival(level) for level in levels]

    def update_arrivals(
        t: jax.Array, boards: tuple[jax.Array, ...], arrivals: tuple[jax.Array, ...]
    ) -> tuple[jax.Array, ...]:
        new_arrivals = []
        for board, arrival, first_time in zip(boards, arrivals, earliest_by_level, strict=False):
            at_goal = bitboard.is_nonempty(board & goal) & (t >= first_time) & (t <= latest)
            new_arrivals.append(jnp.where(at_goal, jnp.minimum(arrival, t), arrival))
        return tuple(new_arrivals)

    def advance(state: _ForwardState) -> _ForwardState:
        t = state.time
        boards, layers = [], []
        for board, layer, level in zip(state.boards, state.layers, blocked, strict=True):
            layers.append(jax.lax.dynamic_update_index_in_dim(layer, board, t, 0))
            cells = (board & wait_mask) | bitboard.dilate(board, level.moves(t), t >= 0)
            boards.append(cells & ~_index_time(level.cells, t + 1))
        next_t, next_boards = (t + 1).astype(jnp.int16), tuple(boards)
        arrivals = update_arrivals(next_t, next_boards, state.arrivals)
        return _ForwardState(t + 1, next_boards, arrivals, tuple(layers))

    def is_unfinished(state: _ForwardState) -> jax.Array:
        is_waiting = state.arrivals[0] == never
        if patient is not None:
            is_waiting |= patient & (state.arrivals[1] == never)
        return jnp.any((state.time.astype(jnp.int16) < latest) & is_waiting)

    boards = tuple(start & ~level.cells[0] for level in blocked)
    arrivals = update_arrivals(jnp.int16(0), boards, (jnp.full(B, never),) * len(levels))
    state = _ForwardState(jnp.int32(0), boards, arrivals, layers)
    state = jax.lax.while_loop(is_unfinished, advance, state)
    arrival = state.arrivals[0]
    if patient is not None:
        arrival = jnp.where(patient & (state.arrivals[1] != never), state.arrivals[1], arrival)
    return Reachable(state.layers, arrival)


class _BackwardState(NamedTuple):
    cell: jax.Array  # words (R, B), current cell of the path
    sets: jax.Array  # words (R, B), current cells of all earliest paths
    cells: jax.Array  # words (T + 1, R, B), cells of the path so far
    forced: jax.Array  # bool (T + 1, B)


def trace_back(
    goal: jax.Array,
    reachable: Reachable,
    blocked: tuple[Blocked, ...],
    *,
    may_wait: jax.Array | bool,
    buffer: jax.Array,
    upwards: jax.Array | bool = False,
) -> tuple[TracedPath, jax.Array]:
    """Trace an earliest path back from the goal through the layers.

    Ties prefer moves to waits, and steps from above to steps from below. With two levels, the path
    prefers cells that the second level also reaches, then steps that its obstacles do not block.

    Args:
        goal: words (R, B), one cell each.
        reachable: Result of `reach_goal`. Without an arrival, the path stays at the goal.
        blocked: The levels of `reachable`.
        may_wait: bool (B,), whether the agent may wait before it has arrived.
        buffer: Memory, words (T + 1, R, B).
        upwards: bool (), prefer steps from below to steps from above.

    Returns:
        The path, and the buffer, words (T + 1, R, B), for the next call.
    """
    times, R, B = reachable.layers[0].shape
    arrival = jnp.where(reachable.arrival == NEVER, jnp.int16(0), reachable.arrival)
    last_time = jnp.max(arrival).astype(jnp.int32)
    wait_mask = _lane_mask(may_wait, goal)
    row_index = np.arange(R, dtype=goal.dtype)[:, None]
    rank = jnp.where(upwards, row_index[::-1], row_index)
    no_row = np.asarray(R, goal.dtype)
    barrier = jax.lax.optimization_barrier

    def step_back(i: jax.Array, state: _BackwardState) -> _BackwardState:
        t = last_time - 1 - i
        cell, layer = state.cell, _index_time(reachable.layers[0], t)
        origins = blocked[0].moves(t).reverse()
        walk_mask = _lane_mask(t.astype(jnp.int16) < arrival, goal)
        # Sets of predecessors in order of preference, and whether a wait is as good as these moves.
        moves, may_stay = [bitboard.dilate(cell, origins) & layer], [_lane_mask(True, goal)]
        if len(blocked) > 1:
            unblocked_cells = layer & ~_index_time(blocked[1].cells, t)
            moved_cells = bitboard.dilate(cell, blocked[1].moves(t).reverse()) & unblocked_cells
            waiting_cells = cell & wait_mask & unblocked_cells
            second_layer = _index_time(reachable.layers[1], t)
            moves = [moved_cells & second_layer, moved_cells, *moves]
            may_stay = [
                *(
                    _lane_mask(bitboard.is_nonempty(x), goal)
                    for x in (waiting_cells & second_layer, waiting_cells)
                ),
                *may_stay,
            ]
        moves = barrier(moves)
        rows = [jnp.min(jnp.where(move != 0, rank, no_row), axis=0) for move in moves]
        rows = barrier(rows)
        # Preferred choices come last and replace the others. `move & -move` is the leftmost cell.
        predecessor = cell
        for move, row, stay in reversed(list(zip(moves, rows, may_stay, strict=True))):
            step = jnp.where(rank == row, move & -move, 0)
            predecessor = jnp.where(row != no_row, step, (cell & stay) | (predecessor & ~stay))
        cell = barrier((predecessor & walk_mask) | (cell & ~walk_mask))
        cells = jax.lax.dynamic_update_index_in_dim(state.cells, cell, t, 0)
        if len(blocked) == 1:
            return state._replace(cell=cell, cells=cells)
        previous_sets = bitboard.dilate(state.sets, origins, t >= 0) | (state.sets & wait_mask)
        previous_sets &= layer
        sets = barrier((previous_sets & walk_mask) | (state.sets & ~walk_mask))
        is_forced = ~bitboard.is_nonempty(sets & ~cell)
        forced = jax.lax.dynamic_update_index_in_dim(state.forced, is_forced, t, 0)
        return _BackwardState(cell, sets, cells, forced)

    initial_state = _BackwardState(goal, goal, buffer, jnp.ones((times, B), bool))
    final_state = jax.lax.fori_loop(0, last_time, step_back, initial_state)
    at_goal = np.arange(times, dtype=np.int16)[:, None] >= arrival
    path = jnp.where(
        at_goal, bitboard.find_only_cell(goal), bitboard.find_only_cell(final_state.cells)
    )
    return TracedPath(path, final_state.forced), final_state.cells


def path_bits(cells: jax.Array, num_rows: int) -> PathBits:
    """Return the rows and bits of paths of cells, int16 (..., T + 1, B). ABSENT has no bit."""
    row, bit = bitboard.row_and_bit(cells, num_rows)
    next_row, next_bit = (
        jnp.concatenate([words[..., 1:, :], words[..., -1:, :]], axis=-2) for words in (row, bit)
    )
    zero = jnp.zeros((), bit.dtype)
    is_horizontal, is_vertical = (row == next_row) & (bit != next_bit), row != next_row
    return PathBits(
        row=row,
        bit=bit,
        edge_row=jnp.minimum(row, next_row),
        horizontal=jnp.where(is_horizontal, jnp.minimum(bit, next_bit), zero),
        vertical=jnp.where(is_vertical, bit, zero),
    )


def block_paths(paths: PathBits, num_rows: int, include: jax.Array) -> Blocked:
    """Return the cells and moves that the agents in `include`, bool (K, B), block for others."""
    cells = bitboard.unite_cells(paths.row, paths.bit, num_rows, include)
    horizontal = bitboard.unite_cells(paths.edge_row, paths.horizontal, num_rows, include)
    vertical = bitboard.unite_cells(paths.edge_row, paths.vertical, num_rows, include)
    # A used edge is blocked in both directions, because the opposite move would be a swap.
    return Blocked(cells, horizontal, horizontal, vertical, vertical)


def path_actions(path: jax.Array) -> jax.Array:
    """Return the actions, int8 (..., T, B), of paths of cells, int16 (..., T + 1, B)."""
    change = path[..., 1:, :] - path[..., :-1, :]
    actions = jnp.zeros(change.shape, jnp.int8)
    for action in Action:
        actions = jnp.where(change == bitboard.CELL_DELTAS[action], jnp.int8(action), actions)
    return actions


def batch_major_actions(actions: jax.Array) -> jax.Array:
    """Transpose actions int8 (K, T, B) to (B, T, K). CPUs move four actions as one word."""
    K, T, B = actions.shape

    def transpose_fours(actions: jax.Array) -> jax.Array:
        fours = actions.swapaxes(0, 1).reshape(T * K // 4, 4, B).swapaxes(1, 2)
        words = jax.lax.bitcast_convert_type(fours, jnp.uint32).T
        return jax.lax.bitcast_convert_type(words, jnp.int8).reshape(B, T, K)

    def transpose_singly(actions: jax.Array) -> jax.Array:
        return actions.transpose(2, 1, 0)

    if T * K % 4:
        return transpose_singly(actions)
    return jax.lax.platform_dependent(actions, cpu=transpose_fours, default=transpose_singly)


def path_arrivals(paths: jax.Array) -> jax.Array:
    """Return the time from which each agent stays at its last cell, for paths (..., T + 1, B)."""
    is_moving = paths[..., 1:, :] != paths[..., :-1, :]
    next_times = np.arange(1, paths.shape[-2], dtype=np.int16)[:, None]
    return jnp.max(jnp.where(is_moving, next_times, jnp.int16(0)), axis=-2)


def path_makespan(paths: jax.Array) -> jax.Array:
    """Return the time from which all agents stay at their last cells, for paths (K, T + 1, B)."""
    # On CPUs, a nested reduction would be 30x slower, because XLA merges both into one.
    return reduce(jnp.maximum, list(path_arrivals(paths)))


def has_waits(paths: jax.Array) -> jax.Array:
    """Return whether any agent waits before its last arrival, for paths (K, T + 1, B)."""
    is_wait = paths[:, 1:] == paths[:, :-1]
    is_early = np.arange(paths.shape[1] - 1)[:, None] < path_arrivals(paths)[:, None]
    return jnp.any(is_wait & is_early, axis=(0, 1))
