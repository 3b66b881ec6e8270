"""Three to five agents on few cells: every joint state as one bit of a set.

Let D_c be the set of joint states that can be reached at a cost of at most c. A joint state gives
each agent a cell of its own component of free cells, or says that it has retired: it has arrived at
its goal for good, and blocks it. A step costs as much as there are agents that have not retired, so

    D_c = D_{c-1}  |  one step from the states of D_{c-a} with a agents that have not retired,

and the sum of costs is the least c for which D_c holds the state in which all have retired. For the
makespan a step costs 1 and nobody retires; where that set stops to grow without the joint goal, the
board is unsolvable. To find a plan without waits, waits are left out and D_{c-1} too.

How a step is taken: every agent goes to the middle of an edge beside its cell, and from there to
either end of it. No two may be in the middle of one edge, and no two in one cell. This is exact:

- A swap needs one edge for two agents, so there is none. Whoever goes back has waited, which is
  legal as long as no other agent comes to its cell, which the second rule sees to.
- Every legal step can be taken so. Agents that move need the edges that they move along, no two of
  them the same. An agent that waits needs any edge beside its cell; one that moves uses none of
  these, since it would come from or go to an occupied cell. There is an edge for each of those that
  wait: a set of cells of a component that are not all of its cells has at least as many edges
  beside it as cells, so by Hall's theorem they can be chosen all different. Agents never fill a
  component, since their starts and goals are different cells.

So a step is 2 K substeps with one agent each. To be without waits, every agent must change the
colour of its cell as on a chessboard. The joint states in which all agents that have not retired
are on cells of the colour of their starts, and those in which all are on cells of the other colour,
are stepped from apart; nothing else can be reached without waits.

A set is an array of words: one axis for each agent but the last, whose cells are the bits. On an
axis and in a word 0 stands for having retired, as agents that do not exist have from the beginning.
Cells and edges of the component are numbered from 1 on, row by row. Moving an agent of an axis is
to take slices of the array. For the last agent it is to shift bits: cells in a row differ by 1, and
how much those in a column differ is at most the size of the board.
"""

from functools import partial, reduce
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.distance_fields import UNREACHABLE, flood
from jaxlake.dynamics import ACTION_DELTAS
from jaxlake.solver import bitboard
from jaxlake.solver.certificates import PreparedBoards
from jaxlake.solver.chunks import Widths, in_chunks
from jaxlake.solver.materialize import computed_apart

MAX_COST = 254
"""The largest cost that is looked at: costs are kept in 8 bits, and 0 says that there is none."""

_PLANES = 8


class DenseBoards(NamedTuple):
    """Boards to search, boards last."""

    free: jax.Array  # bool (N, N, B)
    starts: jax.Array  # int32 (K, 2, B), (row, column)
    goals: jax.Array  # int32 (K, 2, B)
    mask: jax.Array  # bool (K, B), whether an agent exists
    timed: jax.Array  # bool (B,), the least makespan is known, and so not asked for


class DenseAnswers(NamedTuple):
    """What is known of each board, boards last."""

    optimal: jax.Array  # bool (B,), what follows is exact; both plans fit into the horizon
    unsolvable: jax.Array  # bool (B,), proved
    sum_of_costs: jax.Array  # int16 (B,)
    makespan: jax.Array  # int16 (B,), where it was asked for
    needs_wait: jax.Array  # bool (B,)
    plan: jax.Array  # int8 (T, K, B)
    makespan_plan: jax.Array  # int8 (T, K, B), likewise
    layers: jax.Array  # int32 (B,), sets D_c that were computed


class _Components(NamedTuple):
    """For each agent its component, by numbers; `radix` - 1 is the number of nothing."""

    place: jax.Array  # int32 (K, radix), row * N + column by cell; 0: the goal; -1: nothing
    start: jax.Array  # int32 (K,), number of the start, 0 for agents that do not exist
    goal: jax.Array  # int32 (K,), number of the goal, likewise
    edge: jax.Array  # int32 (K, radix), a number of the edge on the board; -1: nothing, retired
    ends: jax.Array  # int32 (K, 2, radix), cells by edge
    edges_at: jax.Array  # int32 (K, 5, radix), edges by cell; 0: none for the makespan
    colour: jax.Array  # int32 (K, radix), 1 where the colour is not that of the start
    fits: jax.Array  # bool (), all cells and edges have a number


def component_sizes(boards: PreparedBoards, wanted: jax.Array, widths: Widths) -> jax.Array:
    """Return the most cells or edges that a component of an agent has, int32 (B,).

    Nothing is said of boards that are not wanted, bool (B,).
    """
    R, B = boards.free.shape
    Spreading = tuple[jax.Array, jax.Array, jax.Array]

    def spread(state: Spreading) -> Spreading:
        free, cells, _ = state
        wider = cells | (bitboard.dilate(cells) & free)
        return free, wider, jnp.any(wider != cells)

    def measure(chunk: tuple[jax.Array, jax.Array], _: None) -> tuple[jax.Array, None]:
        free, starts = chunk
        cells = jnp.stack([bitboard.bitboard_of(start, R) for start in starts])
        begun = (free, cells, jnp.bool_(True))
        cells = jax.lax.while_loop(lambda state: state[2], spread, begun)[1]
        lines = [cells, cells & (cells >> 1), cells[:, 1:] & cells[:, :-1]]
        count = [jnp.sum(jax.lax.population_count(x).astype(jnp.int32), axis=1) for x in lines]
        return jnp.max(jnp.maximum(count[0], count[1] + count[2]), axis=0), None

    blank = jnp.zeros(B, jnp.int32)
    chunk = (boards.free, boards.starts)
    length = jnp.max(boards.alone, axis=0)
    return in_chunks(measure, chunk, wanted, length, blank, min(B, widths.planned_boards), None)[0]


def words_of(radix: int) -> int:
    """Return how many words hold a bit for each number below `radix`."""
    return -(-radix // 32)


def bytes_per_board(agents: int, radix: int) -> int:
    """Return about how much memory the sets of one board take."""
    sets = _PLANES + agents + 5
    return 4 * sets * words_of(radix) * int(radix ** (agents - 1))


def solve_dense(
    boards: DenseBoards, wanted: jax.Array, horizon: int, radix: int, widths: Widths
) -> DenseAnswers:
    """Solve the wanted boards whose components have at most `radix` - 2 cells and as many edges.

    Boards that are larger, and those whose plans are longer than `horizon` steps (static), are
    neither optimal nor unsolvable. Time is spent on the wanted boards, bool (B,), only.
    """
    K, _, B = boards.starts.shape
    # Sets of so many states are work enough for a core, where more would leave its cache.
    most = max(1, widths.joint_boards // 32)
    width = min(B, widths.fitting(most, bytes_per_board(K, radix)))

    def solve_one(board: DenseBoards) -> DenseAnswers:
        return _solve_board(board, horizon, radix)

    def solve_chunk(chunk: DenseBoards, _: None) -> tuple[DenseAnswers, None]:
        if width == 1:
            answer = solve_one(jax.tree.map(lambda leaf: leaf[..., 0], chunk))
            return jax.tree.map(lambda leaf: leaf[..., None], answer), None
        return jax.vmap(solve_one, in_axes=-1, out_axes=-1)(chunk), None

    no, none = jnp.zeros(B, bool), jnp.zeros(B, jnp.int16)
    plan = jnp.zeros((horizon, K, B), jnp.int8)
    blank = DenseAnswers(no, no, none, none, no, plan, plan, jnp.zeros(B, jnp.int32))
    length = jnp.sum(boards.free, axis=(0, 1), dtype=jnp.int32)

    def solve_all() -> DenseAnswers:
        answers, _ = in_chunks(solve_chunk, boards, wanted, length, blank, width, None)
        # A chunk may have been filled up with other boards.
        return jax.tree.map(lambda leaf, none: jnp.where(wanted, leaf, none), answers, blank)

    # The sets are not even allocated where no board is wanted.
    return jax.lax.cond(jnp.any(wanted), solve_all, lambda: blank)


def _solve_board(board: DenseBoards, horizon: int, radix: int) -> DenseAnswers:
    components = _components(board, radix)
    distances = _distances(board)

    def ask(
        before: tuple[jax.Array, jax.Array, jax.Array, jax.Array], question: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array, jax.Array, jax.Array], tuple[jax.Array, ...]]:
        makespan, cost, stuck, _ = before
        total, waits = question > 0, question < 2
        excess = cost - distances
        even = (cost > 0) & (excess > 0) & (excess % 2 == 0)
        timed = board.timed | (makespan > 0)
        asked = jnp.where(question == 0, ~board.timed, jnp.where(waits, timed, even))
        asked &= components.fits
        last = jnp.where(total, MAX_COST, min(horizon, MAX_COST))
        last = jnp.where(asked, jnp.where(waits, last, cost), 0)
        state = _search(components, board.free.shape[0], total, waits, last)
        found = jnp.where(state.found, state.cost, 0)
        plan, length = _plan(
            components, state.planes, board.free.shape[0], total, found * waits, horizon
        )
        return (
            jnp.where(question == 0, found, makespan),
            jnp.where(question == 1, found, cost),
            jnp.where(question == 0, asked & state.stuck, stuck),
            (question == 2) & state.found & (state.cost == cost),
        ), (plan, length, jnp.where(asked, state.cost, 0))

    zero, no = jnp.int32(0), jnp.bool_(False)
    (makespan, cost, stuck, waitless), (plans, lengths, layers) = jax.lax.scan(
        ask, (zero, zero, no, no), jnp.arange(3)
    )
    optimal = (board.timed | (makespan > 0)) & (cost > 0) & (lengths[1] <= horizon)
    return DenseAnswers(
        optimal=optimal,
        unsolvable=stuck,
        sum_of_costs=cost.astype(jnp.int16),
        makespan=makespan.astype(jnp.int16),
        needs_wait=optimal & (cost > distances) & ~waitless,
        plan=plans[1],
        makespan_plan=plans[0],
        layers=jnp.sum(layers),
    )


def _distances(board: DenseBoards) -> jax.Array:
    """Return the sum of the distances of the agents, int32 ()."""
    K = board.starts.shape[0]
    N = board.free.shape[0]
    grid = np.indices((N, N))[..., None]
    at_start = jnp.all(grid == board.starts.T[:, None, None], axis=0)
    steps = flood(jnp.broadcast_to(board.free[..., None], (N, N, K)), at_start)
    alone = steps[board.goals[:, 0], board.goals[:, 1], np.arange(K)].astype(jnp.int32)
    return jnp.sum(jnp.where(board.mask, alone, 0))


def _components(board: DenseBoards, radix: int) -> _Components:
    """Number the cells and edges of each agent's component."""
    N, K = board.free.shape[0], board.starts.shape[0]
    nothing = radix - 1
    grid = np.indices((N, N))[..., None]
    at_start = jnp.all(grid == board.starts.T[:, None, None], axis=0)
    reach = flood(jnp.broadcast_to(board.free[..., None], (N, N, K)), at_start) < UNREACHABLE
    reach &= board.mask
    cells = jnp.moveaxis(reach, -1, 0)  # (K, N, N)
    across = cells & jnp.pad(cells[:, :, 1:], [(0, 0), (0, 0), (0, 1)])
    along = cells & jnp.pad(cells[:, 1:], [(0, 0), (0, 1), (0, 0)])
    lines = jnp.stack([across, along], axis=1)  # (K, 2, N, N), by the left or upper cell

    def numbered(members: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return the number of each member, the member of each number, and how many there are."""
        flat = members.reshape(K, -1)
        count = jnp.cumsum(flat, axis=1, dtype=jnp.int32)
        number = jnp.where(flat & (count < nothing), count, nothing)
        member = jnp.full((K, radix), -1, jnp.int32)
        k = np.arange(K)[:, None]
        member = member.at[k, number].set(jnp.arange(flat.shape[1], dtype=jnp.int32))
        return number, member.at[:, nothing].set(-1), count[:, -1]

    cell_number, place, cell_count = numbered(cells)
    edge_number, edge, edge_count = numbered(lines)

    def number_at(places: jax.Array) -> jax.Array:
        number = cell_number[np.arange(K), places[:, 0] * N + places[:, 1]]
        return jnp.where(board.mask, number, 0)

    start, goal = number_at(board.starts), number_at(board.goals)

    # The ends of an edge: its own cell, and the one to the right or below.
    first = edge % (N * N)
    second = jnp.minimum(first + jnp.where(edge < N * N, 1, N), N * N - 1)
    ends = jnp.stack([first, second], axis=1)
    ends = jnp.take_along_axis(cell_number[:, None], jnp.maximum(ends, 0), axis=2)
    ends = jnp.where((edge < 0)[:, None], nothing, ends).at[:, :, 0].set(0)

    # The edges at a cell: to the right, to the left, down and up.
    rim = jnp.full((K, 2, N, 1), nothing, jnp.int32)
    by_cell = edge_number.reshape(K, 2, N, N)
    right, down = by_cell[:, 0], by_cell[:, 1]
    left = jnp.concatenate([rim[:, 0], right[:, :, :-1]], axis=2)
    up = jnp.concatenate([rim[:, 0].reshape(K, 1, N), down[:, :-1]], axis=1)
    around = jnp.stack([right, left, down, up], axis=1).reshape(K, 4, N * N)
    edges_at = jnp.take_along_axis(around, jnp.maximum(place, 0)[:, None], axis=2)
    edges_at = jnp.where((place < 0)[:, None], nothing, edges_at)
    at_goal = jnp.take_along_axis(edges_at, goal[:, None, None], axis=2)[:, :, 0]
    edges_at = edges_at.at[:, :, 0].set(at_goal)
    fifth = jnp.full((K, 1, radix), nothing, jnp.int32).at[:, :, 0].set(0)

    goal_place = jnp.where(board.mask, board.goals[:, 0] * N + board.goals[:, 1], -1)
    parity = (place // N + place % N + jnp.sum(board.starts, axis=1)[:, None]) % 2
    return _Components(
        place=place.at[:, 0].set(goal_place),
        start=start,
        goal=goal,
        edge=edge.at[:, 0].set(-1),
        ends=ends,
        edges_at=jnp.concatenate([edges_at, fifth], axis=1),
        colour=parity,
        fits=jnp.all(cell_count < nothing) & jnp.all(edge_count < nothing),
    )


class _Search(NamedTuple):
    cost: jax.Array  # int32 (), c of the last set
    half: jax.Array  # bool (), the next set is half done: without waits one colour is
    recent: jax.Array  # uint32 (K + 1, radix, ..., W), D_c at c % (K + 1)
    planes: jax.Array  # uint32 (8, radix, ..., W), 1 + the least cost of each state, bit by bit
    found: jax.Array  # bool ()
    stuck: jax.Array  # bool (), stopped growing


def _along(values: jax.Array, axis: int, K: int) -> jax.Array:
    """Lay values (radix, ...) of the agent of one axis along it, for arrays (radix, ..., W)."""
    shape = [1] * (K - 1) + list(values.shape[1:])
    shape[axis] = values.shape[0]
    return values.reshape(shape if values.ndim > 1 else [*shape, 1])


def _bit_masks(members: jax.Array) -> jax.Array:
    """Pack bool (..., radix) into words, uint32 (..., W)."""
    spare = words_of(members.shape[-1]) * 32 - members.shape[-1]
    padded = jnp.pad(members, [(0, 0)] * (members.ndim - 1) + [(0, spare)])
    padded = padded.reshape(*members.shape[:-1], -1, 32)
    return jnp.sum(
        jnp.where(padded, np.uint32(1) << np.arange(32, dtype=np.uint32), np.uint32(0)),
        axis=-1,
        dtype=jnp.uint32,
    )


def _down(words: list[jax.Array], by: int) -> list[jax.Array]:
    """Shift bits to lower numbers; the words are arrays of their own."""
    whole, bits = divmod(by, 32)
    padded = [*words, *[jnp.zeros_like(words[0])] * (whole + 1)][whole:]
    if bits == 0:
        return padded[: len(words)]
    return [(padded[w] >> bits) | (padded[w + 1] << (32 - bits)) for w in range(len(words))]


def _up(words: list[jax.Array], by: int) -> list[jax.Array]:
    """Shift bits to higher numbers; the words are arrays of their own."""
    whole, bits = divmod(by, 32)
    padded = [*[jnp.zeros_like(words[0])] * (whole + 1), *words]
    if bits == 0:
        return padded[1 : 1 + len(words)]
    return [(padded[w + 1] << bits) | (padded[w] >> (32 - bits)) for w in range(len(words))]


class _LastAgent(NamedTuple):
    """What moves the agent whose cells are bits; edges are bits as well, by their first cell."""

    right: jax.Array  # uint32 (W,), cells with a neighbour to the right
    down: jax.Array  # uint32 (N, W), those whose neighbour below has a number larger by i + 1
    cells: jax.Array  # uint32 (W,), all cells, and 0
    colours: jax.Array  # uint32 (2, W), cells by their colour, and 0
    home: jax.Array  # uint32 (W,), the goal
    blocked_across: jax.Array  # uint32 (K - 1, radix, W), the edge by the edge of another agent
    blocked_along: jax.Array  # uint32 (K - 1, radix, W)
    blocked_cells: jax.Array  # uint32 (K - 1, radix, W), the cell by the cell of another agent


def _last_agent(components: _Components, N: int) -> _LastAgent:
    place, colour = components.place[-1], components.colour[-1]
    radix = place.shape[0]
    number = np.arange(radix)
    real = (place >= 0) & (number > 0)
    nothing = radix - 1
    number_of = jnp.full(N * N, nothing, jnp.int32)
    number_of = number_of.at[jnp.where(real, place, N * N)].set(number, mode="drop")

    def neighbour(by: int, inside: jax.Array) -> jax.Array:
        there = number_of[jnp.minimum(place + by, N * N - 1)]
        return jnp.where(real & inside, there, nothing)

    beside = neighbour(1, place % N < N - 1)
    below = neighbour(N, place < N * (N - 1))
    step = jnp.where(below < nothing, below - number, 0)
    steps = np.arange(1, N + 1)[:, None]
    others = components.edge[:-1]

    def same(theirs: jax.Array, ours: jax.Array) -> jax.Array:
        return (theirs[..., None] == ours) & (theirs >= 0)[..., None] & real

    home = jnp.where(number == 0, True, real)
    cells_met = (components.place[:-1, :, None] == place) & (components.place[:-1] >= 0)[..., None]
    return _LastAgent(
        right=_bit_masks(beside < nothing),
        down=_bit_masks(step == steps),
        cells=_bit_masks(home),
        colours=_bit_masks((real & (colour == np.arange(2)[:, None])) | (number == 0)),
        home=_bit_masks(number == components.goal[-1]),
        blocked_across=_bit_masks(same(others, place)),
        blocked_along=_bit_masks(same(others - N * N, place)),
        blocked_cells=_bit_masks(cells_met & home),
    )


def _step(
    states: jax.Array, components: _Components, last: _LastAgent, total: jax.Array
) -> jax.Array:
    """Return the joint states one step away from some, uint32 (radix, ..., W).

    The agent of the innermost axis moves with its axis in front, where whole blocks are copied.
    """
    K = components.place.shape[0]
    ends, edges_at = components.ends, components.edges_at
    nothing = states.shape[0] - 1
    # Who comes to its goal may retire, if the sum of costs is asked for.
    edges_at = edges_at.at[:, :4, 0].set(jnp.where(total, edges_at[:, :4, 0], nothing))
    true = components.fits  # nothing else is searched
    inner = K - 2
    for i in range(inner):
        states = computed_apart(partial(_slices, axis=i), true, states, ends[i])
    states = computed_apart(lambda x: jnp.moveaxis(x, inner, 0), true, states)
    states = computed_apart(partial(_slices, axis=0), true, states, ends[inner])
    states = _move_last(states, components, last, total)
    states = computed_apart(partial(_slices, axis=0), true, states, edges_at[inner])
    states = computed_apart(lambda x: jnp.moveaxis(x, 0, inner), true, states)
    for i in range(inner):
        states = computed_apart(partial(_slices, axis=i), true, states, edges_at[i])
    blocked = _any_of(last.blocked_cells, K)
    apart = _all_apart(components.place[:-1])
    return jnp.where(apart, states & last.cells & ~blocked, jnp.uint32(0))


def _slices(states: jax.Array, sources: jax.Array, *, axis: int) -> jax.Array:
    """Put at each number of an axis what stands at its sources, int32 (S, radix), together."""
    return reduce(
        jnp.bitwise_or, (jnp.take(states, source, axis=axis, mode="clip") for source in sources)
    )


def _any_of(masks: jax.Array, K: int) -> jax.Array:
    """Unite masks (K - 1, radix, W) of the agents on the axes."""
    return reduce(jnp.bitwise_or, (_along(mask, i, K) for i, mask in enumerate(masks)))


def _all_apart(places: jax.Array) -> jax.Array:
    """Tell where no two agents on axes are at one place >= 0, int32 (K - 1, radix)."""
    K = places.shape[0] + 1
    apart = jnp.ones((1,) * K, bool)
    for i in range(K - 1):
        for j in range(i):
            one, other = _along(places[i], i, K), _along(places[j], j, K)
            apart &= (one != other) | (one < 0)
    return apart


def _move_last(
    states: jax.Array, components: _Components, last: _LastAgent, total: jax.Array
) -> jax.Array:
    """Move the last agent while the others, with edges for cells, are halfway.

    The agent before the last one has the first axis here, the others the axes after it.
    """
    K = components.place.shape[0]
    N, W = last.down.shape
    order = np.roll(np.arange(K - 1), 1)
    true = components.fits
    apart = _all_apart(components.edge[order])[..., 0]
    blocked_across = _any_of(last.blocked_across[order], K)
    blocked_along = _any_of(last.blocked_along[order], K)

    def to_edges(states: jax.Array) -> tuple[list[jax.Array], list[jax.Array]]:
        words = [states[..., w] for w in range(W)]
        beside, below = _down(words, 1), [jnp.zeros_like(word) for word in words]
        for i in range(N):
            shifted = _down(words, i + 1)
            below = [
                b | ((word | s) & last.down[i, w])
                for w, (b, word, s) in enumerate(zip(below, words, shifted, strict=True))
            ]
        free_across, free_along = (
            [jnp.where(apart, ~blocked[..., w], jnp.uint32(0)) for w in range(W)]
            for blocked in (blocked_across, blocked_along)
        )
        across = [(words[w] | beside[w]) & last.right[w] & free_across[w] for w in range(W)]
        return across, [below[w] & free_along[w] for w in range(W)]

    def to_cells(edges: tuple[list[jax.Array], list[jax.Array]], before: jax.Array) -> jax.Array:
        across, along = edges
        moved = [across[w] | shifted | along[w] for w, shifted in enumerate(_up(across, 1))]
        for i in range(N):
            shifted = _up([along[w] & last.down[i, w] for w in range(W)], i + 1)
            moved = [word | s for word, s in zip(moved, shifted, strict=True)]
        home = reduce(jnp.bitwise_or, (moved[w] & last.home[w] for w in range(W)))
        moved[0] |= jnp.where(apart, before[..., 0] & 1, jnp.uint32(0))
        moved[0] |= ((home != 0) & total).astype(jnp.uint32)
        return jnp.stack(moved, axis=-1)

    return computed_apart(to_cells, true, computed_apart(to_edges, true, states), states)


def _origins(recent: jax.Array, c: jax.Array, true: jax.Array) -> jax.Array:
    """Return the states from which a step brings the cost to c: a less for a that have not retired.

    In nearly all states no agent has retired. Those of the others are put in their places, one face
    of the array after another.
    """
    K = recent.shape[0] - 1
    first = jnp.where(np.arange(recent.shape[-1]) == 0, jnp.uint32(1), jnp.uint32(0))

    def of_active(recent: jax.Array, on_axes: int, face: tuple[slice, ...] = ()) -> jax.Array:
        """Look at a face on which so many agents on axes have not retired."""
        states = recent[((c - on_axes - 1) % (K + 1), *face)] & ~first
        if on_axes > 0:
            states |= recent[((c - on_axes) % (K + 1), *face)] & first
        return states

    origins = computed_apart(partial(of_active, on_axes=K - 1), true, recent)
    for retired in range(1, K):
        for axes in combinations(range(K - 1), retired):
            face = tuple(slice(0, 1) if i in axes else slice(None) for i in range(K - 1))
            states = of_active(recent, K - 1 - retired, face)
            origins = jax.lax.dynamic_update_slice(origins, states, (0,) * K)
    return origins


def _search(
    components: _Components, N: int, total: jax.Array, waits: jax.Array, most: jax.Array
) -> _Search:
    """Compute set after set until the goal is in one, none grows any more, or c is `most`."""
    K, radix = components.place.shape
    last = _last_agent(components, N)
    sets = (radix,) * (K - 1) + (words_of(radix),)

    def single(numbers: jax.Array) -> jax.Array:
        here = [_along(jnp.arange(radix) == numbers[i], i, K) for i in range(K - 1)]
        bit = _bit_masks(np.arange(radix) == numbers[-1])
        return jnp.where(reduce(jnp.logical_and, here), bit, jnp.uint32(0))

    begin = single(components.start)
    end = jnp.where(total, jnp.zeros(K, jnp.int32), components.goal)
    end_bit = _bit_masks(np.arange(radix) == end[-1])

    def of_colour(colour: jax.Array) -> jax.Array:
        """Return all joint states without waits of one colour."""
        agrees = [
            _along((components.colour[i] == colour) | (np.arange(radix) == 0), i, K)
            for i in range(K - 1)
        ]
        return jnp.where(reduce(jnp.logical_and, agrees), last.colours[colour], jnp.uint32(0))

    def advance(state: _Search) -> _Search:
        # With waits, colours do not matter and one step does all; else it takes two.
        c, colour = state.cost + 1, state.half.astype(jnp.int32)
        complete = waits | state.half
        origins = jax.lax.cond(
            total,
            lambda recent: _origins(recent, c, components.fits),
            lambda recent: recent[(c - 1) % (K + 1)],
            state.recent,
        )
        origins = jax.lax.cond(waits, lambda x: x, lambda x: x & of_colour(colour), origins)
        reached = _step(origins, components, last, total)

        def unite(reached: jax.Array, recent: jax.Array) -> tuple[jax.Array, jax.Array]:
            before = recent[(c - 1) % (K + 1)]
            half_done = jnp.where(state.half, recent[c % (K + 1)], jnp.uint32(0))
            so_far = jnp.where(waits, before, half_done)
            states = so_far | (reached & jnp.where(waits, ~jnp.uint32(0), of_colour(1 - colour)))
            return states, states & ~before

        # Together, so that `recent` is not read any more when it is changed.
        states, new = computed_apart(unite, components.fits, reached, state.recent)

        def note(rest_and_planes: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            rest, planes = rest_and_planes
            lowest = rest & -rest
            plane = jax.lax.population_count(lowest - 1)
            return rest ^ lowest, planes.at[plane].set(planes[plane] | new)

        # One plane for each bit of c + 1.
        noted = jnp.where(waits, c + 1, 0)
        _, planes = jax.lax.while_loop(lambda left: left[0] > 0, note, (noted, state.planes))
        return _Search(
            cost=jnp.where(complete, c, state.cost),
            half=~complete,
            recent=state.recent.at[c % (K + 1)].set(states),
            planes=planes,
            found=complete & jnp.any(states[tuple(end[:-1])] & end_bit != 0),
            stuck=~total & waits & ~jnp.any(new != 0),
        )

    planes = jnp.zeros((_PLANES, *sets), jnp.uint32).at[0].set(begin)
    recent = jnp.zeros((K + 1, *sets), jnp.uint32).at[0].set(begin)
    no = jnp.bool_(False)
    start = _Search(jnp.int32(0), no, recent, planes, no, no)
    return jax.lax.while_loop(
        lambda state: (state.cost < most) & ~state.found & ~state.stuck, advance, start
    )


def _plan(
    components: _Components,
    planes: jax.Array,
    N: int,
    total: jax.Array,
    cost: jax.Array,
    horizon: int,
) -> tuple[jax.Array, jax.Array]:
    """Go back from the goal, reached at a least cost > 0; return int8 (T, K) and its length.

    Of the joint states that come before another one, one in which as few agents as possible wait
    is chosen. A plan longer than T = `horizon` is cut.
    """
    K, radix = components.place.shape
    nothing = radix - 1
    k = np.arange(K)
    # The cells from which an agent comes: four neighbours, its own, and 0 if it had retired.
    at = jnp.broadcast_to(jnp.arange(radix), (K, radix)).at[:, 0].set(components.goal)
    edges = components.edges_at[:, :4]
    there = jnp.take_along_axis(components.ends[:, :1], edges, axis=2)
    there += jnp.take_along_axis(components.ends[:, 1:], edges, axis=2) - at[:, None]
    there = jnp.where(edges == nothing, nothing, there)
    retired = jnp.where(np.arange(radix) == 0, 0, nothing)
    retired = jnp.broadcast_to(retired, (K, 1, radix))
    origins = jnp.concatenate([there, at[:, None], retired], axis=1)
    choices = np.indices((6,) * K).reshape(K, -1)
    choices = choices[:, np.argsort(np.sum(choices == 4, axis=0), kind="stable")]

    State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

    def step_back(state: State) -> State:
        cost, steps, here, actions = state
        before = origins[k[:, None], choices, here[:, None]]
        legal = jnp.all(before != nothing, axis=0)
        now = components.place[k, here]
        then = components.place[k[:, None], before]
        for i in range(K):
            for j in range(i):
                # The places of agents that do not exist are -1.
                legal &= (then[i] != now[j]) | (then[j] != now[i]) | (now[i] < 0)
        word, bit = before[-1] // 32, (before[-1] % 32).astype(jnp.uint32)
        bits = (planes[:, *before[:-1], word] >> bit) & 1
        least = jnp.sum(bits.astype(jnp.int32) << np.arange(_PLANES)[:, None], axis=0) - 1
        paid = jnp.where(total, jnp.sum(before > 0, axis=0), 1)
        chosen = jnp.argmax(legal & (least == cost - paid))
        change = now - then[:, chosen]
        deltas = ACTION_DELTAS @ np.array([N, 1])
        action = jnp.argmax(change[:, None] == deltas, axis=1).astype(jnp.int8)
        return (
            cost - paid[chosen],
            steps + 1,
            before[:, chosen],
            actions.at[steps].set(action, mode="drop"),
        )

    end = jnp.where(total, jnp.zeros(K, jnp.int32), components.goal)
    begun = (cost, jnp.int32(0), end, jnp.zeros((horizon, K), jnp.int8))
    _, length, _, actions = jax.lax.while_loop(lambda state: state[0] > 0, step_back, begun)
    back = length - 1 - np.arange(horizon)
    plan = jnp.where((back >= 0)[:, None], actions[jnp.maximum(back, 0)], jnp.int8(0))
    return plan, length
