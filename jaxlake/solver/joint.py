"""Dense joint search for two agents: what both the pair costs and the two-agent plans rest on.

Let L_t be the set of joint cells (p0, p1) that two agents can occupy after exactly t steps. Waiting
is always legal, so L_t only grows, and once it stops growing without the joint goal the board is
unsolvable. The makespan is the least t for which the joint goal is in L_t.

In any plan some agent is the first to arrive at its goal for good; from then on the other walks
alone around it. A step costs 2 until then and 1 from then on, so let S_c be the set of cells where
the other can stand when c has been paid and the first has retired:

    S_c = one step from S_{c-1}  |  { p1 : (g0, p1) in L_{c/2} }, the latter for even c

(and the same with the agents exchanged). The sum of costs is the least c for which the other's goal
is in S_c; it is never found later than the makespan, where the joint goal itself retires an agent.

L_t is a bit for every pair of cells: for every cell of agent 0 a bit mask of agent 1's cells,
dilated by shift-and-or. A guard column ends every row so that no shift wraps. Boards lie last in
memory, so that one vector instruction serves several of them.
"""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

FAR = 1 << 14
"""A cost, distance or time that is not known or does not exist."""

_HALT_PERIOD = 8
"""Layers between two looks at whether a search still grows."""


class Geometry(NamedTuple):
    """Cells of an N x N board as bits: cell (r, c) is bit r * pitch + c."""

    size: int
    pitch: int
    cells: int
    words: int

    @property
    def deltas(self) -> tuple[int, int, int, int]:
        """What a move adds to a cell."""
        return (-self.pitch, self.pitch, -1, 1)


def geometry(size: int) -> Geometry:
    """The geometry of boards padded to `size` x `size`."""
    pitch = size + 1
    cells = size * pitch
    return Geometry(size, pitch, cells, -(-cells // 32))


def lanes_at_once(board: Geometry, horizon: int | None = None) -> int:
    """Boards in one loop: few enough for a CPU's cache, many enough to fill an accelerator.

    With a `horizon`, the history of a search of that length is counted as well.
    """
    on_cpu = jax.default_backend() == "cpu"
    most, megabytes = (32, 64) if on_cpu else (2048, 4096)
    layers = 8 if horizon is None else 8 + horizon
    fitting = (megabytes << 20) // (4 * board.words * board.cells * layers)
    return max(1, min(most, fitting))


class Lanes(NamedTuple):
    """Two-agent boards in the form that the search works on, boards last."""

    free: jax.Array  # bool (M, B)
    starts: jax.Array  # int32 (2, B), cells of the agents
    goals: jax.Array  # int32 (2, B)
    alone: jax.Array  # int32 (2, B), distance of each start to its goal without the other agent

    @property
    def connected(self) -> jax.Array:
        """bool (B,): each agent alone can reach its goal."""
        return jnp.all(self.alone < FAR, axis=0)


class History(NamedTuple):
    """Every set of a search, for going back through it."""

    layers: jax.Array  # uint32 (horizon + 1, W, M, B), L_t
    walks: jax.Array  # uint32 (2 * horizon + 2, W, 2, B), S_c; [:, :, i] are cells of agent i


class Search(NamedTuple):
    """A joint search that has ended. Lanes that it was not asked for say nothing."""

    sum_of_costs: jax.Array  # int32 (B,), FAR if not found
    makespan: jax.Array  # int32 (B,), FAR if not found
    stuck: jax.Array  # bool (B,), proved unsolvable
    expansions: jax.Array  # int32 (B,), layers expanded for the lane
    history: History | None  # what was handed in, filled in as far as the search went


class _State(NamedTuple):
    time: jax.Array  # int32 ()
    layer: jax.Array  # uint32 (W, M, B), L_time
    walks: jax.Array  # uint32 (W, 2, B), S_c for the last c looked at
    running: jax.Array  # bool (B,)
    result: Search


def prepare(
    free: jax.Array, starts: jax.Array, goals: jax.Array, playing: jax.Array, board: Geometry
) -> Lanes:
    """Lay out boards for the search.

    Args:
        free: bool (B, N, N), cells that can be entered.
        starts: int8 (B, 2, 2), (row, column) of both agents.
        goals: int8 (B, 2, 2).
        playing: bool (B,); lanes where it is False have no free cell, so they are never connected.
        board: the geometry of N.

    Returns:
        The lanes, in the order of the batch.
    """

    def cell(places: jax.Array) -> jax.Array:
        wide = places.astype(jnp.int32)
        return (wide[..., 0] * board.pitch + wide[..., 1]).T

    padded = jnp.pad(free & playing[:, None, None], [(0, 0), (0, 0), (0, 1)])
    flat = padded.reshape(-1, board.cells).T
    from_cells, to_cells = cell(starts), cell(goals)
    return Lanes(flat, from_cells, to_cells, _distances(flat, from_cells, to_cells, board))


def search(
    lanes: Lanes, running: jax.Array, horizon: int, board: Geometry, history: History | None = None
) -> Search:
    """Search until every lane has its sum of costs and its makespan, or is stuck.

    Whether a search still grows is looked at in every eighth layer only, so a lane is found stuck
    up to seven layers late.

    Args:
        lanes: the boards.
        running: bool (B,), which of them to search; each must be connected.
        horizon: last layer to look at (static).
        board: their geometry.
        history: buffers to record the search in; what they hold is overwritten.
    """
    B = running.shape[0]
    allowed = _allowed(lanes, board)

    def examine(state: _State) -> _State:
        t = state.time
        walks, halves = _retire(state.layer, state.walks, lanes, board, waiting=True)
        even, odd = (_arrived(half, lanes) for half in halves)
        cost = jnp.where(even, 2 * t, jnp.where(odd, 2 * t + 1, FAR))
        reached = _at_joint_goal(state.layer, lanes)
        return state._replace(
            walks=walks,
            running=state.running & ~reached,
            result=state.result._replace(
                sum_of_costs=jnp.minimum(state.result.sum_of_costs, cost),
                makespan=jnp.minimum(state.result.makespan, jnp.where(reached, t, FAR)),
                history=_record(state.result.history, t, state.layer, halves),
            ),
        )

    def advance(state: _State) -> _State:
        following = (_expand(state.layer, board, waiting=True) & allowed) | state.layer
        halted = jax.lax.cond(
            state.time % _HALT_PERIOD == _HALT_PERIOD - 1,
            lambda: jnp.all(jnp.all(following == state.layer, axis=0), axis=0),
            lambda: jnp.zeros(B, bool),
        )
        return examine(
            state._replace(
                time=state.time + 1,
                layer=following,
                running=state.running & ~halted,
                result=state.result._replace(
                    stuck=state.result.stuck | (state.running & halted),
                    expansions=state.result.expansions + state.running,
                ),
            )
        )

    state = jax.lax.while_loop(
        lambda state: (state.time < horizon) & jnp.any(state.running),
        advance,
        examine(_beginning(lanes, allowed, running, history, board)),
    )
    return state.result


def search_without_waits(
    lanes: Lanes,
    sum_of_costs: jax.Array,
    wanted: jax.Array,
    horizon: int,
    board: Geometry,
    history: History | None = None,
) -> tuple[jax.Array, Search]:
    """Look for plans of optimal sum of costs in which nobody waits before its last arrival.

    Args:
        lanes: the boards.
        sum_of_costs: int32 (B,), the optimum where `wanted`; at most 2 * horizon.
        wanted: bool (B,), which lanes to search.
        horizon: see `search`.
        board: see `search`.
        history: see `search`.

    Returns:
        bool (B,), wanted and found; and the search, of which only `expansions` and `history` count.
    """
    allowed = _allowed(lanes, board)

    def examine(state: _State) -> _State:
        t = state.time
        walks, halves = _retire(state.layer, state.walks, lanes, board, waiting=False)
        even, odd = (_arrived(half, lanes) for half in halves)
        hit = (even & (sum_of_costs == 2 * t)) | (odd & (sum_of_costs == 2 * t + 1))
        found = state.running & hit
        return state._replace(
            walks=walks,
            running=state.running & ~hit & (2 * t + 1 < sum_of_costs),
            result=state.result._replace(
                sum_of_costs=jnp.where(found, sum_of_costs, state.result.sum_of_costs),
                history=_record(state.result.history, t, state.layer, halves),
            ),
        )

    def advance(state: _State) -> _State:
        return examine(
            state._replace(
                time=state.time + 1,
                layer=_expand(state.layer, board, waiting=False) & allowed,
                result=state.result._replace(expansions=state.result.expansions + state.running),
            )
        )

    state = jax.lax.while_loop(
        lambda state: (state.time < horizon) & jnp.any(state.running),
        advance,
        examine(_beginning(lanes, allowed, wanted, history, board)),
    )
    return state.result.sum_of_costs < FAR, state.result


def _beginning(
    lanes: Lanes, allowed: jax.Array, running: jax.Array, history: History | None, board: Geometry
) -> _State:
    B = running.shape[0]
    starts = lanes.starts
    at_start = np.arange(board.cells)[:, None] == starts[0]
    bits = jnp.asarray(_bits(board, 0))[:, starts[1]]
    far = jnp.full(B, FAR, jnp.int32)
    return _State(
        time=jnp.int32(0),
        layer=jnp.where(at_start, bits[:, None], jnp.uint32(0)) & allowed,
        walks=jnp.zeros((board.words, 2, B), jnp.uint32),
        running=running,
        result=Search(far, far, jnp.zeros(B, bool), jnp.zeros(B, jnp.int32), history),
    )


def _allowed(lanes: Lanes, board: Geometry) -> jax.Array:
    """uint32 (W, M, B): joint cells of two different free cells."""
    everywhere = jnp.where(lanes.free, ~jnp.uint32(0), jnp.uint32(0))
    return _pack(lanes.free, board)[:, None] & everywhere & ~_bits(board, 0)[..., None]


def _pack(cells: jax.Array, board: Geometry) -> jax.Array:
    """bool (M, B) to bits, uint32 (W, B)."""
    spare = board.words * 32 - board.cells
    padded = jnp.pad(cells, [(0, spare), (0, 0)]).reshape(board.words, 32, -1)
    weights = jnp.uint32(1) << jnp.arange(32, dtype=jnp.uint32)
    return jnp.sum(jnp.where(padded, weights[:, None], jnp.uint32(0)), axis=1, dtype=jnp.uint32)


def _single(cells: jax.Array, board: Geometry) -> jax.Array:
    """int32 (2, B) cells to uint32 (W, 2, B) with their bit alone."""
    bit = jnp.uint32(1) << (cells % 32).astype(jnp.uint32)
    return jnp.where(np.arange(board.words)[:, None, None] == cells // 32, bit, jnp.uint32(0))


def _has(words: jax.Array, cells: jax.Array) -> jax.Array:
    """bool: the bit that each cell has in its word."""
    return (words >> (cells % 32).astype(jnp.uint32)) & 1 != 0


def _at_joint_goal(layer: jax.Array, lanes: Lanes) -> jax.Array:
    cell, bit = lanes.goals
    return _has(layer[bit // 32, cell, jnp.arange(cell.shape[0])], bit)


def _record(
    history: History | None, time: jax.Array, layer: jax.Array, halves: tuple[jax.Array, jax.Array]
) -> History | None:
    if history is None:
        return None
    even, odd = halves
    return History(
        layers=history.layers.at[time].set(layer),
        walks=history.walks.at[2 * time].set(even).at[2 * time + 1].set(odd),
    )


def _retire(
    layer: jax.Array, walks: jax.Array, lanes: Lanes, board: Geometry, *, waiting: bool
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """S_{2t-1} to (S_{2t}, S_{2t+1}); the latter is also the first value returned."""
    goals = lanes.goals
    beside_0 = jnp.take_along_axis(layer, goals[0][None, None], axis=1)[:, 0]
    column = reduce(
        jnp.bitwise_or,
        (jnp.where(goals[1] // 32 == w, layer[w], jnp.uint32(0)) for w in range(board.words)),
    )
    beside_1 = _pack(_has(column, goals[1]), board)
    clear = _pack(lanes.free, board)[:, None] & ~_single(goals[::-1], board)

    joining = jnp.stack([beside_1, beside_0], axis=1)
    even = (_dilate(walks, board, waiting=waiting) & clear) | joining
    odd = _dilate(even, board, waiting=waiting) & clear
    return odd, (even, odd)


def _arrived(walks: jax.Array, lanes: Lanes) -> jax.Array:
    """bool (B,): an agent has come to its goal, with the other retired."""
    return jnp.any(_at_goals(walks, lanes.goals), axis=0)


def _at_goals(cells: jax.Array, goals: jax.Array) -> jax.Array:
    """bool (2, B): whether sets of cells, uint32 (W, 2, B), contain the agents' goals."""
    return _has(jnp.take_along_axis(cells, goals[None] // 32, axis=0)[0], goals)


def _distances(free: jax.Array, starts: jax.Array, goals: jax.Array, board: Geometry) -> jax.Array:
    """int32 (2, B): steps that each agent alone needs, FAR if its goal can't be reached."""
    clear = _pack(free, board)[:, None]

    def relax(
        state: tuple[jax.Array, jax.Array, jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        time, reached, steps, _ = state
        steps = jnp.where(_at_goals(reached, goals), jnp.minimum(steps, time), steps)
        following = _dilate(reached, board, waiting=True) & clear
        return time + 1, following, steps, jnp.any((following != reached) & (steps == FAR))

    first = _single(starts, board) & clear
    unknown = jnp.full(starts.shape, FAR, jnp.int32)
    return jax.lax.while_loop(
        lambda state: state[3], relax, (jnp.int32(0), first, unknown, jnp.any(first != 0))
    )[2]


def _dilate(cells: jax.Array, board: Geometry, *, waiting: bool) -> jax.Array:
    """Cells one step from sets of cells, uint32 (W, ..., B), blocked ones included."""
    ends = jnp.pad(cells, [(_spare(board), _spare(board))] + [(0, 0)] * (cells.ndim - 1))
    deltas = (*board.deltas, 0) if waiting else board.deltas
    return reduce(jnp.bitwise_or, (_shift_bits(ends, delta, board) for delta in deltas))


def _expand(layer: jax.Array, board: Geometry, *, waiting: bool) -> jax.Array:
    """All joint cells one simultaneous step away, swapping conflicts left out.

    Cells that are blocked, and vertex conflicts, are for the caller to mask.

    Agent 0 moves first, then agent 1: any agent 0 may step onto agent 1's cell v only if agent 1
    leaves v for another cell than the one that agent 0 came from. Those steps concern one bit of
    every row and are put together apart from the rest.
    """
    P, M = board.pitch, board.cells
    rim = jax.lax.optimization_barrier(jnp.pad(layer, [(0, 0), (P, P), (0, 0)]))
    moved = [rim[:, P - delta : P - delta + M] for delta in board.deltas]
    beside = reduce(jnp.bitwise_or, [*moved, layer] if waiting else moved)
    beside &= jnp.asarray(~_bits(board, 0))[..., None]

    onto = {delta: _onto_the_other(rim, delta, board) for delta in board.deltas}
    leaving = [
        reduce(jnp.bitwise_or, (onto[delta] for delta in board.deltas if delta != -away))
        for away in board.deltas
    ]
    # Without the barrier the compiler works all of this out anew for every shift that follows.
    ends, leaving = jax.lax.optimization_barrier(
        (jnp.pad(beside, [(_spare(board), _spare(board)), (0, 0), (0, 0)]), leaving)
    )
    deltas = (*board.deltas, 0) if waiting else board.deltas
    stepped = [_shift_bits(ends, delta, board) for delta in deltas]
    for away, may_leave in zip(board.deltas, leaving, strict=True):
        stepped.append(jnp.asarray(_bits(board, away))[..., None] & may_leave)
    return reduce(jnp.bitwise_or, stepped)


def _onto_the_other(rim: jax.Array, delta: int, board: Geometry) -> jax.Array:
    """uint32 (M, B): all ones for cells v that agent 0 moves onto by `delta` and agent 1 stands in.

    `rim` is a layer with `pitch` empty cells of agent 0 on both sides.
    """
    M = board.cells
    words = [
        rim[word, board.pitch - delta + first : board.pitch - delta + min(first + 32, M)]
        for word, first in enumerate(range(0, M, 32))
    ]
    shift = (np.arange(M) % 32).astype(np.uint32)
    return -((jnp.concatenate(words) >> shift[:, None]) & 1)


def _spare(board: Geometry) -> int:
    """Empty words that `_shift_bits` needs on both sides."""
    return 1 + board.pitch // 32


def _shift_bits(ends: jax.Array, delta: int, board: Geometry) -> jax.Array:
    """Move bits by `delta` cells: axis 0 holds the words, with `_spare` ones at both ends."""
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
    """uint32 (W, M): column m is the bit mask of cell m + delta, empty if that is off the board."""
    cell = np.arange(board.cells)
    moved = cell + delta
    inside = (moved >= 0) & (moved < board.cells)
    bits = np.zeros((board.words, board.cells), np.uint32)
    ones = np.uint32(1) << (moved[inside] % 32).astype(np.uint32)
    bits[moved[inside] // 32, cell[inside]] = ones
    return bits
