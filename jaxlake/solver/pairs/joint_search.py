"""Dense joint search for two agents, the basis of pair costs and of two-agent plans.

L_t is the set of joint cells after t steps. S_c is the set of cells of one agent when the other has
retired and cost c has been paid (design_notes/solver.md).
"""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.chunks import Widths
from jaxlake.solver.materialize import materialize
from jaxlake.solver.space_time import NEVER

FAR = 1 << 14
"""Cost, distance or time that is unknown or does not exist."""

HALT_PERIOD = 8
"""Number of layers between two checks of whether a search still grows."""


class Geometry(NamedTuple):
    """Cells of an N x N board as bits: cell (r, c) is bit r * pitch + c. A guard ends each row."""

    pitch: int
    cells: int
    words: int

    @property
    def deltas(self) -> tuple[int, int, int, int]:
        """Change of the cell number by each action but WAIT."""
        return (-self.pitch, self.pitch, -1, 1)


def geometry(size: int) -> Geometry:
    """Return the geometry of boards padded to `size` x `size`."""
    cells = size * (size + 1)
    return Geometry(size + 1, cells, -(-cells // 32))


def max_joint_boards(board: Geometry, widths: Widths, horizon: int | None = None) -> int:
    """Return how many boards one search holds, with its history if `horizon` is given."""
    layers = 8 if horizon is None else 8 + horizon
    return widths.fitting(widths.joint_boards, 4 * board.words * board.cells * layers)


class TwoAgentBoards(NamedTuple):
    """Two-agent boards in the layout of the search, boards last."""

    free: jax.Array  # bool (M, B)
    starts: jax.Array  # int32 (2, B), cells of the agents
    goals: jax.Array  # int32 (2, B)
    solo_distances: (
        jax.Array
    )  # int32 (2, B), distance of each start to its goal without the other agent


class TwoAgentLanes(NamedTuple):
    """Two agents per lane, each lane on one of some boards; laid out only where searched."""

    board: jax.Array  # int32 (B,), index of the board
    starts: jax.Array  # int32 (2, B), cells of the agents
    goals: jax.Array  # int32 (2, B)
    solo_distances: (
        jax.Array
    )  # int32 (2, B), distance of each start to its goal without the other agent

    @property
    def connected(self) -> jax.Array:
        """Whether each agent alone can reach its goal, bool (B,)."""
        return jnp.all(self.solo_distances < FAR, axis=0)

    def lay_out(self, free: jax.Array, board: Geometry) -> TwoAgentBoards:
        """Return the boards of all lanes, with free cells bool (F, N, N); empty if unconnected."""
        cells = free[self.board] & self.connected[:, None, None]
        padded = jnp.pad(cells, [(0, 0), (0, 0), (0, 1)])
        laid_out = padded.reshape(-1, board.cells).T
        return TwoAgentBoards(laid_out, self.starts, self.goals, self.solo_distances)


class JointHistory(NamedTuple):
    """Every set of a search, for reconstructing plans."""

    layers: jax.Array  # uint32 (horizon + 1, W, M, B), L_t
    walks: jax.Array  # uint32 (2 * horizon + 2, W, 2, B), S_c; [:, :, i] are cells of agent i


class JointOptima(NamedTuple):
    """Results of a joint search; undefined for lanes that were not searched."""

    sum_of_costs: jax.Array  # int32 (B,), FAR if not found
    makespan: jax.Array  # int32 (B,), FAR if not found
    stuck: jax.Array  # bool (B,), proved unsolvable
    expansions: jax.Array  # int32 (B,), layers expanded for the lane


class PairPlans(NamedTuple):
    """Results of a search with plans; undefined for lanes that were not searched."""

    optima: JointOptima
    length: jax.Array  # int32 (B,), steps of `plan`
    plan: jax.Array  # int8 (horizon, 2, B), attains the sum of costs
    makespan_plan: jax.Array  # int8 (horizon, 2, B)


class _JointState(NamedTuple):
    time: jax.Array  # int32 ()
    layer: jax.Array  # uint32 (W, M, B), L_time
    walks: jax.Array  # uint32 (W, 2, B), S_c for the last c examined
    running: jax.Array  # bool (B,)
    optima: JointOptima
    history: JointHistory | None


def two_agent_lanes(
    free: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    playing: jax.Array,
    board: Geometry,
    solo_distances: jax.Array,
) -> TwoAgentLanes:
    """Return pairs of agents in the layout that a search starts from.

    Args:
        free: bool (F, N, N), cells that can be entered; lane i is on board i % F.
        starts: int8 (B, 2, 2), (row, column) of both agents.
        goals: int8 (B, 2, 2), likewise.
        playing: bool (B,). Other lanes are never connected.
        board: Geometry of the boards.
        solo_distances: int16 (2, B), distances.
    """

    def flat_cells(places: jax.Array) -> jax.Array:
        wide = places.astype(jnp.int32)
        return (wide[..., 0] * board.pitch + wide[..., 1]).T

    number = jnp.arange(len(playing), dtype=jnp.int32) % max(len(free), 1)
    return TwoAgentLanes(
        board=number,
        starts=flat_cells(starts),
        goals=flat_cells(goals),
        solo_distances=jnp.where(
            playing & (solo_distances < NEVER), solo_distances.astype(jnp.int32), FAR
        ),
    )


def joint_search(
    boards: TwoAgentBoards,
    running: jax.Array,
    horizon: int,
    board: Geometry,
    history: JointHistory | None = None,
    *,
    waitless_cost: jax.Array,
    waiting: jax.Array | bool,
) -> tuple[JointOptima, JointHistory | None]:
    """Search until every lane has its sum of costs and its makespan, or is stuck.

    With `waiting` False, look instead for plans with the sum of costs `waitless_cost` in which no
    agent waits before its last arrival. `sum_of_costs` then marks the lanes with such a plan, and
    apart from it only `expansions` and the history are defined.

    Args:
        boards: Boards laid out in lanes.
        running: bool (B,), lanes to search; their boards must be connected.
        horizon: Last layer to examine (static).
        board: Geometry of the boards.
        history: Buffers that are overwritten and returned; None to search without plans.
        waitless_cost: int32 (B,), at most 2 * `horizon`.
        waiting: bool (), whether agents may wait.

    Returns:
        The optima and the history. Stuck lanes are detected up to `HALT_PERIOD` - 1 layers late.
    """
    B = running.shape[0]
    layer, allowed = first_layer(boards, board)

    def examine(state: _JointState) -> _JointState:
        t, optima = state.time, state.optima
        walks, halves = _retire(state.layer, state.walks, boards, board, waiting=waiting)
        even, odd = (_has_arrived(half, boards.goals) for half in halves)
        cell, bit = boards.goals
        at_goals = has_cells(state.layer[bit // 32, cell, jnp.arange(B)], bit)
        cost = jnp.where(even, 2 * t, jnp.where(odd, 2 * t + 1, FAR))
        hit = (even & (waitless_cost == 2 * t)) | (odd & (waitless_cost == 2 * t + 1))
        new_cost = jnp.where(waiting, cost, jnp.where(state.running & hit, waitless_cost, FAR))
        finished = jnp.where(waiting, at_goals, hit | (2 * t + 1 >= waitless_cost))
        history = state.history
        if history is not None:
            history = JointHistory(
                layers=history.layers.at[t].set(state.layer),
                walks=history.walks.at[2 * t].set(halves[0]).at[2 * t + 1].set(halves[1]),
            )
        return state._replace(
            walks=walks,
            running=state.running & ~finished,
            optima=optima._replace(
                sum_of_costs=jnp.minimum(optima.sum_of_costs, new_cost),
                makespan=jnp.minimum(optima.makespan, jnp.where(at_goals & waiting, t, FAR)),
            ),
            history=history,
        )

    def advance(state: _JointState) -> _JointState:
        optima = state.optima
        optima = optima._replace(expansions=optima.expansions + state.running)
        layer = expand(state.layer, board, waiting=waiting) & allowed
        layer |= _if_waiting(state.layer, waiting)
        halted = jax.lax.cond(
            (state.time % HALT_PERIOD == HALT_PERIOD - 1) & waiting,
            lambda: jnp.all(jnp.all(layer == state.layer, axis=0), axis=0),
            lambda: jnp.zeros(B, bool),
        )
        optima = optima._replace(stuck=optima.stuck | (state.running & halted))
        running = state.running & ~halted
        return examine(
            state._replace(time=state.time + 1, layer=layer, running=running, optima=optima)
        )

    far = jnp.full(B, FAR, jnp.int32)
    start = _JointState(
        time=jnp.int32(0),
        layer=layer,
        walks=jnp.zeros((board.words, 2, B), jnp.uint32),
        running=running,
        optima=JointOptima(far, far, jnp.zeros(B, bool), jnp.zeros(B, jnp.int32)),
        history=history,
    )
    final = jax.lax.while_loop(
        lambda state: (state.time < horizon) & jnp.any(state.running), advance, examine(start)
    )
    return final.optima, final.history


def first_layer(boards: TwoAgentBoards, board: Geometry) -> tuple[jax.Array, jax.Array]:
    """Return L_0, and all joint cells of two different free cells: uint32 (W, M, B) each."""
    everywhere = jnp.where(boards.free, ~jnp.uint32(0), jnp.uint32(0))
    single = _bits(board, 0)
    allowed = pack_cells(boards.free, board)[:, None] & everywhere & ~single[..., None]
    at_start = np.arange(board.cells)[:, None] == boards.starts[0]
    bits = jnp.asarray(single)[:, boards.starts[1]]
    return jnp.where(at_start, bits[:, None], jnp.uint32(0)) & allowed, allowed


def _if_waiting(words: jax.Array, waiting: jax.Array | bool) -> jax.Array:
    """Return the words where agents may wait, and empty words elsewhere."""
    return words & jnp.where(waiting, ~jnp.uint32(0), jnp.uint32(0))


def expand(layer: jax.Array, board: Geometry, *, waiting: jax.Array | bool) -> jax.Array:
    """Return all joint cells one simultaneous step away, without swapping conflicts.

    The caller masks holes and vertex conflicts. Agent 0 moves first, then agent 1. Agent 0 may step
    onto agent 1's cell v only if agent 1 then leaves v for a cell other than agent 0's origin.
    """
    P, M = board.pitch, board.cells
    rim = jax.lax.optimization_barrier(jnp.pad(layer, [(0, 0), (P, P), (0, 0)]))
    moved = [rim[:, P - delta : P - delta + M] for delta in board.deltas]
    beside = reduce(jnp.bitwise_or, [*moved, _if_waiting(layer, waiting)])
    beside &= jnp.asarray(~_bits(board, 0))[..., None]

    # onto[d]: agent 0 entered agent 1's cell by a move of d. Agent 1 leaves by any move but -d.
    onto = {delta: _entered_cells(rim, delta, board) for delta in board.deltas}
    leaving = [
        reduce(jnp.bitwise_or, (onto[delta] for delta in board.deltas if delta != -move))
        for move in board.deltas
    ]
    # Without the barrier the compiler recomputes all of this for every shift that follows.
    ends, leaving = jax.lax.optimization_barrier(
        (jnp.pad(beside, [(_spare(board), _spare(board)), (0, 0), (0, 0)]), leaving)
    )
    stepped = [_shift_bits(ends, delta, board) for delta in board.deltas]
    stepped.append(_if_waiting(_shift_bits(ends, 0, board), waiting))
    for move, may_leave in zip(board.deltas, leaving, strict=True):
        stepped.append(jnp.asarray(_bits(board, move))[..., None] & may_leave)
    return reduce(jnp.bitwise_or, stepped)


def needs_waitless_search(
    solo_distances: jax.Array, solved: jax.Array, sum_of_costs: jax.Array
) -> jax.Array:
    """Return where only a search can decide whether an optimal plan needs a wait, as bool (B,).

    On a bipartite grid an odd excess over `solo_distances`, int32 (2, B), requires a wait.
    """
    excess = sum_of_costs - jnp.sum(solo_distances, axis=0, dtype=jnp.int32)
    return solved & (excess > 0) & (excess % 2 == 0)


def pack_cells(cells: jax.Array, board: Geometry) -> jax.Array:
    """Pack bool (M, B) into bits, uint32 (W, B)."""
    spare = board.words * 32 - board.cells
    words = jnp.pad(cells, [(0, spare), (0, 0)]).reshape(board.words, 32, -1).astype(jnp.uint32)
    # XLA does not vectorise sums on CPUs.
    return reduce(jnp.bitwise_or, (words[:, bit] << bit for bit in range(32)))


def _single(cells: jax.Array, board: Geometry) -> jax.Array:
    """Return cells, int32 (2, B), as uint32 (W, 2, B) with one bit each."""
    bit = jnp.uint32(1) << (cells % 32).astype(jnp.uint32)
    return jnp.where(np.arange(board.words)[:, None, None] == cells // 32, bit, jnp.uint32(0))


def has_cells(words: jax.Array, cells: jax.Array) -> jax.Array:
    """Return whether each cell's bit is set in its word, as bool."""
    return (words >> (cells % 32).astype(jnp.uint32)) & 1 != 0


def partner_cells(layer: jax.Array, goals: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the cells of one agent while the other stands at its goal.

    Agent 1 with agent 0 at its goal as words uint32 (W, B), agent 0 with agent 1 at its goal as
    bool (M, B).
    """
    row = jnp.take_along_axis(layer, goals[0][None, None], axis=1)[:, 0]
    column = reduce(
        jnp.bitwise_or,
        (words & -(goals[1] // 32 == w).astype(jnp.uint32) for w, words in enumerate(layer)),
    )
    return row, has_cells(column, goals[1])


def _retire(
    layer: jax.Array,
    walks: jax.Array,
    boards: TwoAgentBoards,
    board: Geometry,
    *,
    waiting: jax.Array | bool,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Return S_{2t+1}, and the pair S_{2t} and S_{2t+1}, from S_{2t-1}."""
    goals = boards.goals
    # Cells of one agent in layer t while the other stands at its goal and may retire.
    beside_0, column = materialize(partner_cells(layer, goals), goals[0, 0] < board.cells)
    beside_1 = pack_cells(column, board)
    clear = pack_cells(boards.free, board)[:, None] & ~_single(goals[::-1], board)

    joining = jnp.stack([beside_1, beside_0], axis=1)
    even = (_dilate(walks, board, waiting=waiting) & clear) | joining
    odd = _dilate(even, board, waiting=waiting) & clear
    return odd, (even, odd)


def _has_arrived(walks: jax.Array, goals: jax.Array) -> jax.Array:
    """Return whether an agent has reached its goal with the other retired, as bool (B,)."""
    words = jnp.take_along_axis(walks, goals[None] // 32, axis=0)[0]
    return jnp.any(has_cells(words, goals), axis=0)


def _dilate(cells: jax.Array, board: Geometry, *, waiting: jax.Array | bool) -> jax.Array:
    """Return the cells one step from sets of cells, uint32 (W, ..., B), holes included."""
    ends = jnp.pad(cells, [(_spare(board), _spare(board))] + [(0, 0)] * (cells.ndim - 1))
    moved = [_shift_bits(ends, delta, board) for delta in board.deltas]
    return reduce(jnp.bitwise_or, [*moved, _if_waiting(cells, waiting)])


def _entered_cells(rim: jax.Array, delta: int, board: Geometry) -> jax.Array:
    """Return uint32 (M, B), all ones for cells of agent 1 that agent 0 enters by `delta`."""
    M = board.cells
    words = [
        rim[word, board.pitch - delta + first : board.pitch - delta + min(first + 32, M)]
        for word, first in enumerate(range(0, M, 32))
    ]
    shift = (np.arange(M) % 32).astype(np.uint32)
    return -((jnp.concatenate(words) >> shift[:, None]) & 1)


def _spare(board: Geometry) -> int:
    """Return the number of empty words that `_shift_bits` needs on both sides."""
    return 1 + board.pitch // 32


def _shift_bits(ends: jax.Array, delta: int, board: Geometry) -> jax.Array:
    """Shift bits by `delta` cells; axis 0 holds words, with `_spare` extra ones at both ends."""
    words, bits = divmod(abs(delta), 32)
    sign = 1 if delta > 0 else -1

    def whole(count: int) -> jax.Array:
        first = _spare(board) - sign * count
        return ends[first : first + board.words]

    if bits == 0:
        return whole(words)
    near, far = jnp.uint32(bits), jnp.uint32(32 - bits)
    if delta > 0:
        return (whole(words) << near) | (whole(words + 1) >> far)
    return (whole(words) >> near) | (whole(words + 1) << far)


def _bits(board: Geometry, delta: int) -> np.ndarray:
    """Return uint32 (W, M): column m is the bit mask of cell m + delta, empty if off the board."""
    cell = np.arange(board.cells)
    moved = cell + delta
    inside = (moved >= 0) & (moved < board.cells)
    bits = np.zeros((board.words, board.cells), np.uint32)
    ones = np.uint32(1) << (moved[inside] % 32).astype(np.uint32)
    bits[moved[inside] // 32, cell[inside]] = ones
    return bits
