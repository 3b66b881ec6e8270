"""Dense joint search for two agents, which finds pair costs and two-agent plans.

L_t is the set of joint cells, one per agent, that both can reach in t steps. An agent retires when
it stays at its goal for good. S_c is the set of cells that the other agent can then reach at total
cost c. design_notes/solver.md derives both sets. Shapes: B lanes, M `Geometry.cells`, W
`Geometry.words`.
"""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.chunks import Limits
from jaxlake.solver.materialize import materialize
from jaxlake.solver.space_time import NEVER

FAR = 1 << 14
"""Stands for a cost, distance or time that is unknown or infinite."""

HALT_PERIOD = 8
"""Number of layers after which a search checks whether its layers still grow."""


class Geometry(NamedTuple):
    """Numbering of the cells of an N x N board: cell (r, c) is r * pitch + c.

    Each row ends with an unused cell, so that horizontal moves cannot wrap around.
    """

    pitch: int  # N + 1
    cells: int  # N * pitch
    words: int  # number of 32-bit words with one bit per cell

    @property
    def deltas(self) -> tuple[int, int, int, int]:
        """Change of the cell number by each action except WAIT."""
        return (-self.pitch, self.pitch, -1, 1)


def geometry(size: int) -> Geometry:
    """Return the geometry of boards padded to `size` x `size`."""
    cells = size * (size + 1)
    return Geometry(size + 1, cells, -(-cells // 32))


def max_joint_boards(board: Geometry, limits: Limits, horizon: int | None) -> int:
    """Return how many boards to search at once, with a history if `horizon` is not None."""
    layers = 8 if horizon is None else 8 + horizon
    return limits.max_items(limits.joint_boards, 4 * board.words * board.cells * layers)


class TwoAgentBoards(NamedTuple):
    """Boards with two agents, one per lane; lanes are the last axis."""

    free: jax.Array  # bool (M, B)
    starts: jax.Array  # int32 (2, B), cells
    goals: jax.Array  # int32 (2, B), cells
    solo_distances: jax.Array  # int32 (2, B), distance of each agent alone, FAR without a path


class TwoAgentLanes(NamedTuple):
    """Two agents per lane. To save memory, a lane has the index of its board, not its cells."""

    board_index: jax.Array  # int32 (B,)
    starts: jax.Array  # int32 (2, B), cells
    goals: jax.Array  # int32 (2, B), cells
    solo_distances: jax.Array  # int32 (2, B), as in `TwoAgentBoards`

    @property
    def connected(self) -> jax.Array:
        """Whether both agents can reach their goals alone, bool (B,)."""
        return jnp.all(self.solo_distances < FAR, axis=0)

    def lay_out(self, free: jax.Array, board: Geometry) -> TwoAgentBoards:
        """Look up the boards in `free`, bool (F, N, N). Unconnected lanes get no free cells."""
        cells = free[self.board_index] & self.connected[:, None, None]
        cells = jnp.pad(cells, [(0, 0), (0, 0), (0, 1)]).reshape(-1, board.cells).T
        return TwoAgentBoards(cells, self.starts, self.goals, self.solo_distances)


class JointHistory(NamedTuple):
    """All sets of a search, from which plans are reconstructed."""

    layers: jax.Array  # uint32 (horizon + 1, W, M, B), L_t
    walks: jax.Array  # uint32 (2 * horizon + 2, W, 2, B), [c, :, i]: S_c of agent i


class JointOptima(NamedTuple):
    """Results of a joint search; undefined for lanes that were not searched."""

    sum_of_costs: jax.Array  # int32 (B,), FAR if not found
    makespan: jax.Array  # int32 (B,), FAR if not found
    stuck: jax.Array  # bool (B,), proved unsolvable
    expansions: jax.Array  # int32 (B,), number of expanded layers


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
    active: jax.Array,
    board: Geometry,
    solo_distances: jax.Array,
) -> TwoAgentLanes:
    """Convert pairs of agents to lanes.

    Args:
        free: bool (F, N, N), cells that can be entered; lane i is on board i % F.
        starts: int8 (B, 2, 2), (row, column) of both agents.
        goals: int8 (B, 2, 2), likewise.
        active: bool (B,), lanes to search. The others become unconnected.
        board: Geometry of the boards.
        solo_distances: int16 (2, B), distances.
    """

    def cell_numbers(positions: jax.Array) -> jax.Array:
        positions = positions.astype(jnp.int32)
        return (positions[..., 0] * board.pitch + positions[..., 1]).T

    return TwoAgentLanes(
        board_index=jnp.arange(len(active), dtype=jnp.int32) % max(len(free), 1),
        starts=cell_numbers(starts),
        goals=cell_numbers(goals),
        solo_distances=jnp.where(
            active & (solo_distances < NEVER), solo_distances.astype(jnp.int32), FAR
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
    may_wait: jax.Array | bool,
) -> tuple[JointOptima, JointHistory | None]:
    """Find the least sum of costs and the least makespan, or prove that a lane has no plan.

    If `may_wait` is False, search instead for plans with the sum of costs `waitless_cost` in which
    no agent waits before its last arrival. `sum_of_costs` is then FAR in lanes without such a plan.
    Only `sum_of_costs`, `expansions` and the history are defined in this case.

    Args:
        boards: Boards laid out in lanes.
        running: bool (B,), lanes to search; their boards must be connected.
        horizon: Last layer to examine (static).
        board: Geometry of the boards.
        history: Buffers to overwrite. None if no plans are needed.
        waitless_cost: int32 (B,), at most 2 * `horizon`.
        may_wait: bool (), whether agents may wait.

    Returns:
        The optima and the history.
    """
    B = running.shape[0]
    layer, allowed_cells = first_layer(boards, board)

    def examine(state: _JointState) -> _JointState:
        t, optima = state.time, state.optima
        even_walks, odd_walks = _retire(state.layer, state.walks, boards, board, may_wait=may_wait)
        even, odd = (_has_arrived(walks, boards.goals) for walks in (even_walks, odd_walks))
        cell, bit = boards.goals
        at_goals = has_cells(state.layer[bit // 32, cell, jnp.arange(B)], bit)
        cost = jnp.where(even, 2 * t, jnp.where(odd, 2 * t + 1, FAR))
        is_found = (even & (waitless_cost == 2 * t)) | (odd & (waitless_cost == 2 * t + 1))
        found_cost = jnp.where(state.running & is_found, waitless_cost, FAR)
        new_cost = jnp.where(may_wait, cost, found_cost)
        is_finished = jnp.where(may_wait, at_goals, is_found | (2 * t + 1 >= waitless_cost))
        history = state.history
        if history is not None:
            history = JointHistory(
                layers=history.layers.at[t].set(state.layer),
                walks=history.walks.at[2 * t].set(even_walks).at[2 * t + 1].set(odd_walks),
            )
        return state._replace(
            walks=odd_walks,
            running=state.running & ~is_finished,
            optima=optima._replace(
                sum_of_costs=jnp.minimum(optima.sum_of_costs, new_cost),
                makespan=jnp.minimum(optima.makespan, jnp.where(at_goals & may_wait, t, FAR)),
            ),
            history=history,
        )

    def advance(state: _JointState) -> _JointState:
        optima = state.optima
        optima = optima._replace(expansions=optima.expansions + state.running)
        layer = expand(state.layer, board, may_wait=may_wait) & allowed_cells
        layer |= _keep_if(may_wait, state.layer)
        is_stuck = jax.lax.cond(
            (state.time % HALT_PERIOD == HALT_PERIOD - 1) & may_wait,
            lambda: jnp.all(jnp.all(layer == state.layer, axis=0), axis=0),
            lambda: jnp.zeros(B, bool),
        )
        optima = optima._replace(stuck=optima.stuck | (state.running & is_stuck))
        running = state.running & ~is_stuck
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
    final_state = jax.lax.while_loop(
        lambda state: (state.time < horizon) & jnp.any(state.running), advance, examine(start)
    )
    return final_state.optima, final_state.history


def first_layer(boards: TwoAgentBoards, board: Geometry) -> tuple[jax.Array, jax.Array]:
    """Return L_0, and the set of all pairs of distinct free cells: uint32 (W, M, B) each."""
    free_0 = jnp.where(boards.free, ~jnp.uint32(0), jnp.uint32(0))
    same_cell_masks = _cell_masks(board, 0)
    allowed_cells = pack_cells(boards.free, board)[:, None] & free_0 & ~same_cell_masks[..., None]
    at_start = np.arange(board.cells)[:, None] == boards.starts[0]
    bits = jnp.asarray(same_cell_masks)[:, boards.starts[1]]
    return jnp.where(at_start, bits[:, None], jnp.uint32(0)) & allowed_cells, allowed_cells


def _keep_if(condition: jax.Array | bool, words: jax.Array) -> jax.Array:
    """Return the words if the condition holds, and zeros otherwise."""
    return words & jnp.where(condition, ~jnp.uint32(0), jnp.uint32(0))


def expand(layer: jax.Array, board: Geometry, *, may_wait: jax.Array | bool) -> jax.Array:
    """Return the joint cells one step away from a layer, without swap conflicts.

    The caller masks holes and vertex conflicts. Agent 0 moves first, then agent 1. If agent 0
    enters the cell of agent 1, agent 1 must leave it, but not for the cell that agent 0 left.
    """
    P, M = board.pitch, board.cells
    padded_layer = jax.lax.optimization_barrier(jnp.pad(layer, [(0, 0), (P, P), (0, 0)]))
    moved_layers = [padded_layer[:, P - delta : P - delta + M] for delta in board.deltas]
    moved_0 = reduce(jnp.bitwise_or, [*moved_layers, _keep_if(may_wait, layer)])
    moved_0 &= jnp.asarray(~_cell_masks(board, 0))[..., None]

    # entered[d]: agent 0 entered the cell of agent 1 by a move of d. Move -d would be a swap.
    entered = {delta: _entered_cells(padded_layer, delta, board) for delta in board.deltas}
    may_leave = [
        reduce(jnp.bitwise_or, (entered[delta] for delta in board.deltas if delta != -move))
        for move in board.deltas
    ]
    # Without the barrier, XLA recomputes all of this for each of the following shifts.
    moved_0, may_leave = jax.lax.optimization_barrier(
        (jnp.pad(moved_0, [(_padding(board),) * 2, (0, 0), (0, 0)]), may_leave)
    )
    moved_both = [_shift_bits(moved_0, delta, board) for delta in board.deltas]
    moved_both.append(_keep_if(may_wait, _shift_bits(moved_0, 0, board)))
    for move, origins in zip(board.deltas, may_leave, strict=True):
        moved_both.append(jnp.asarray(_cell_masks(board, move))[..., None] & origins)
    return reduce(jnp.bitwise_or, moved_both)


def needs_waitless_search(
    solo_distances: jax.Array, is_solved: jax.Array, sum_of_costs: jax.Array
) -> jax.Array:
    """Return whether only a search can decide if the optimal plans need a wait, bool (B,).

    Without excess over `solo_distances`, int32 (2, B), no agent waits. On a grid, which is
    bipartite, an odd excess requires a wait.
    """
    excess = sum_of_costs - jnp.sum(solo_distances, axis=0, dtype=jnp.int32)
    return is_solved & (excess > 0) & (excess % 2 == 0)


def pack_cells(cells: jax.Array, board: Geometry) -> jax.Array:
    """Pack bool (M, B) into bits, uint32 (W, B)."""
    padding = board.words * 32 - board.cells
    words = jnp.pad(cells, [(0, padding), (0, 0)]).reshape(board.words, 32, -1).astype(jnp.uint32)
    # XLA does not vectorise sums on CPUs.
    return reduce(jnp.bitwise_or, (words[:, bit] << bit for bit in range(32)))


def _single_cells(cells: jax.Array, board: Geometry) -> jax.Array:
    """Return sets, uint32 (W, 2, B), with one cell each, int32 (2, B)."""
    bit = jnp.uint32(1) << (cells % 32).astype(jnp.uint32)
    return jnp.where(np.arange(board.words)[:, None, None] == cells // 32, bit, jnp.uint32(0))


def has_cells(words: jax.Array, cells: jax.Array) -> jax.Array:
    """Return whether each cell is in a set, bool, given the word of the set that contains it."""
    return (words >> (cells % 32).astype(jnp.uint32)) & 1 != 0


def partner_cells(layer: jax.Array, goals: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the cells of each agent in a layer while the other agent is at its goal.

    Returns:
        Cells of agent 1 as uint32 (W, B), and cells of agent 0 as bool (M, B).
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
    may_wait: jax.Array | bool,
) -> tuple[jax.Array, jax.Array]:
    """Return S_{2t} and S_{2t+1} from L_t and S_{2t-1}."""
    goals = boards.goals
    # Cells of one agent in layer t while the other agent is at its goal and may retire.
    cells_1, cells_0 = materialize(partner_cells(layer, goals), goals[0, 0] < board.cells)
    cells_0 = pack_cells(cells_0, board)
    # An agent must not pass through the goal where the other agent has retired.
    passable_cells = pack_cells(boards.free, board)[:, None] & ~_single_cells(goals[::-1], board)

    joined_cells = jnp.stack([cells_0, cells_1], axis=1)
    even_walks = (_dilate(walks, board, may_wait=may_wait) & passable_cells) | joined_cells
    odd_walks = _dilate(even_walks, board, may_wait=may_wait) & passable_cells
    return even_walks, odd_walks


def _has_arrived(walks: jax.Array, goals: jax.Array) -> jax.Array:
    """Return whether an agent has reached its goal after the other retired, bool (B,)."""
    words = jnp.take_along_axis(walks, goals[None] // 32, axis=0)[0]
    return jnp.any(has_cells(words, goals), axis=0)


def _dilate(cells: jax.Array, board: Geometry, *, may_wait: jax.Array | bool) -> jax.Array:
    """Return the cells one step from sets of cells, uint32 (W, ..., B), holes included."""
    padded_cells = jnp.pad(cells, [(_padding(board),) * 2] + [(0, 0)] * (cells.ndim - 1))
    moved_cells = [_shift_bits(padded_cells, delta, board) for delta in board.deltas]
    return reduce(jnp.bitwise_or, [*moved_cells, _keep_if(may_wait, cells)])


def _entered_cells(padded_layer: jax.Array, delta: int, board: Geometry) -> jax.Array:
    """Return masks, uint32 (M, B), of the cells of agent 1 that agent 0 enters by `delta`."""
    M, offset = board.cells, board.pitch - delta
    words = [
        padded_layer[w, offset + first : offset + min(first + 32, M)]
        for w, first in enumerate(range(0, M, 32))
    ]
    shift = (np.arange(M) % 32).astype(np.uint32)
    return -((jnp.concatenate(words) >> shift[:, None]) & 1)


def _padding(board: Geometry) -> int:
    """Return the number of empty words that `_shift_bits` needs on both sides."""
    return 1 + board.pitch // 32


def _shift_bits(padded_words: jax.Array, delta: int, board: Geometry) -> jax.Array:
    """Shift bits by `delta` cells. Axis 0 holds the words, with `_padding` words on both sides."""
    word_shift, bit_shift = divmod(abs(delta), 32)
    sign = 1 if delta > 0 else -1

    def shift_words(count: int) -> jax.Array:
        first = _padding(board) - sign * count
        return padded_words[first : first + board.words]

    if bit_shift == 0:
        return shift_words(word_shift)
    near, far = jnp.uint32(bit_shift), jnp.uint32(32 - bit_shift)
    if delta > 0:
        return (shift_words(word_shift) << near) | (shift_words(word_shift + 1) >> far)
    return (shift_words(word_shift) >> near) | (shift_words(word_shift + 1) << far)


def _cell_masks(board: Geometry, delta: int) -> np.ndarray:
    """Return uint32 (W, M): column m is the set with cell m + delta, empty if off the board."""
    cell = np.arange(board.cells)
    moved_cell = cell + delta
    is_inside = (moved_cell >= 0) & (moved_cell < board.cells)
    masks = np.zeros((board.words, board.cells), np.uint32)
    bits = np.uint32(1) << (moved_cell[is_inside] % 32).astype(np.uint32)
    masks[moved_cell[is_inside] // 32, cell[is_inside]] = bits
    return masks
