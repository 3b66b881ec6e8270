"""Proofs that crowded boards are unsolvable, by the reachable permutations of the agents.

Agents are tokens on an occupied set S of cells. The arrangement w(S) maps s to the token in the
s-th cell of S. Moves that close loops generate a permutation group (Kornhauser, Miller and Spirakis
1984). design_notes/solver.md has the proof.
"""

from functools import cache
from itertools import combinations, permutations
from math import comb, factorial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.distance_fields import UNREACHABLE, flood
from jaxlake.board.dynamics import ACTION_DELTAS, Action
from jaxlake.solver.chunks import OCCUPANCY_BLOCK, order_active_first

MAX_JOINT_AGENTS = 5
"""Maximum number of agents examined together. Six agents would also need six-cycles as moves."""

MAX_SETS = 1 << 18
"""Maximum number of sets of cells to examine, of 11 bytes each for 5 slots."""

REPEATING_SIZE = 4
"""Largest N for which many boards of a batch are expected to share their free cells."""


def prove_unsolvable(
    free: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    mask: jax.Array,
    active: jax.Array,
    *,
    boards_at_once: int = 1,
) -> jax.Array:
    """Return which active boards are proved unsolvable by plans of any length, bool (B,).

    The test is exact for components with at most five agents and `MAX_SETS` sets of cells. In
    larger components it examines every subset of agents that fits. False is inconclusive.

    Args:
        free: bool (B, N, N), cells that can be entered.
        starts: int8 (B, K, 2), (row, column), distinct free cells where `mask` is True.
        goals: int8 (B, K, 2), likewise.
        mask: bool (B, K), whether the agent exists.
        active: bool (B,), boards to examine.
        boards_at_once: Number of boards examined at once (static).
    """
    free, starts, goals, mask, active = map(jnp.asarray, (free, starts, goals, mask, active))
    cells, slots = free.shape[-1] ** 2, min(starts.shape[1], MAX_JOINT_AGENTS)
    # Small boards have fewer sets, and every board clears one entry per set.
    capacity = min(MAX_SETS, max(comb(cells, m) for m in range(slots + 1)))
    count = jnp.sum(active, dtype=jnp.int32)
    order = _same_cells_together(free, active)
    last = _empty_search(free.shape[-1], slots, capacity)
    if boards_at_once > 1:
        last = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (boards_at_once, *leaf.shape)), last
        )

    def examine(
        i: jax.Array, state: tuple[jax.Array, _CachedSearch]
    ) -> tuple[jax.Array, _CachedSearch]:
        proved, last = state
        b = order[i]
        unsolvable, last = _board_unsolvable(free[b], starts[b], goals[b], mask[b], last)
        return proved.at[b].set(unsolvable), last

    def examine_many(
        i: jax.Array, state: tuple[jax.Array, _CachedSearch]
    ) -> tuple[jax.Array, _CachedSearch]:
        proved, last = state
        place = i * boards_at_once + jnp.arange(boards_at_once)
        real = place < count
        b = order[jnp.where(real, place, 0)]
        # Padding lanes have no agents and thus need no proof.
        present = mask[b] & real[:, None]
        unsolvable, last = jax.vmap(_board_unsolvable)(free[b], starts[b], goals[b], present, last)
        return proved.at[jnp.where(real, b, len(active))].set(unsolvable, mode="drop"), last

    false = jnp.zeros(active.shape, bool)
    work = examine if boards_at_once == 1 else examine_many
    return jax.lax.fori_loop(0, -(-count // boards_at_once), work, (false, last))[0]


def _same_cells_together(free: jax.Array, active: jax.Array) -> jax.Array:
    """Return the boards, int32 (B,), active ones first, small ones with equal cells together."""
    if free.shape[-1] > REPEATING_SIZE:
        return order_active_first(active)
    cells = free.reshape(len(free), -1)
    pattern = jnp.sum(jnp.where(cells, 1 << np.arange(cells.shape[1]), 0), axis=1, dtype=jnp.int32)
    return jnp.argsort(jnp.where(active, pattern, 1 << cells.shape[1]))


class _SymmetricGroup(NamedTuple):
    """Numbered permutations of K elements, as tuples of their images; 0 is the identity."""

    images: np.ndarray  # int32 (K!, K)
    compose: np.ndarray  # int32 (K!, K!), [a, b] is a after b
    inverse: np.ndarray  # int32 (K!,)
    number: np.ndarray  # int32 (K**K,), of the permutation whose images are the digits in base K


@cache
def _symmetric_group(K: int) -> _SymmetricGroup:
    images = np.array(list(permutations(range(K))), np.int32).reshape(-1, K)
    place = K ** np.arange(K)
    number = np.zeros(K**K, np.int32)
    number[images @ place] = np.arange(len(images))
    compose = number[images[:, images] @ place]
    inverse = number[np.argsort(images, axis=1) @ place]
    return _SymmetricGroup(images, compose.astype(np.int32), inverse, number)


@cache
def _binomials(cells: int, K: int, limit: int) -> np.ndarray:
    """Return int32 (cells + 1, K + 1) binomial coefficients, clipped to `limit`."""
    table = np.zeros((cells + 1, K + 1), np.int64)
    table[:, 0] = 1
    for n in range(1, cells + 1):
        table[n, 1:] = np.minimum(table[n - 1, 1:] + table[n - 1, :-1], limit)
    return table.astype(np.int32)


class _SpanningSearch(NamedTuple):
    """Breadth-first search over sets of cells, which are numbered by rank."""

    sets: jax.Array  # int16 (capacity + block, K), in order of discovery, without the first
    block: jax.Array  # int16 (block, K), the sets to expand next
    arrangement: jax.Array  # uint8 (capacity + 1,), w(S) by rank of S; K! for unseen S
    finder: jax.Array  # int32 (capacity + 1,), by rank: number within its block of a move to it
    num_expanded: jax.Array  # int32 (), number of expanded sets
    num_sets: jax.Array  # int32 ()
    group: jax.Array  # bool (K!,), the group generated by the permutations g found so far


class _CachedSearch(NamedTuple):
    """Search kept for reuse by the next board, with the component and agents it applies to."""

    component: jax.Array  # bool (N, N), connected cells
    agents: jax.Array  # int32 (), number of agents on them; 0 before the first search
    ids: jax.Array  # int32 (N * N,), consecutive numbers of the component's cells, from 0
    neighbours: jax.Array  # int32 (N * N + 1, 4), neighbours of each cell by direction
    search: _SpanningSearch


def _empty_search(N: int, K: int, capacity: int) -> _CachedSearch:
    return _CachedSearch(
        component=jnp.zeros((N, N), bool),
        agents=jnp.int32(0),
        ids=jnp.zeros(N * N, jnp.int32),
        neighbours=jnp.zeros((N * N + 1, 4), jnp.int32),
        search=_SpanningSearch(
            sets=jnp.zeros((capacity + OCCUPANCY_BLOCK, K), jnp.int16),
            block=jnp.zeros((OCCUPANCY_BLOCK, K), jnp.int16),
            arrangement=jnp.zeros(capacity + 1, jnp.uint8),
            finder=jnp.zeros(capacity + 1, jnp.int32),
            num_expanded=jnp.int32(0),
            num_sets=jnp.int32(0),
            group=jnp.zeros(factorial(K), bool),
        ),
    )


def _board_unsolvable(
    free: jax.Array, starts: jax.Array, goals: jax.Array, mask: jax.Array, last: _CachedSearch
) -> tuple[jax.Array, _CachedSearch]:
    """Return whether one board is proved unsolvable, bool (), and the last search for reuse."""
    capacity = last.search.finder.shape[0] - 1
    N, K = free.shape[-1], starts.shape[0]
    S = min(K, MAX_JOINT_AGENTS)
    starts, goals, mask = starts.astype(jnp.int32), goals.astype(jnp.int32), jnp.asarray(mask)
    grid = np.indices((N, N))[..., None]
    at_start = jnp.all(grid == starts.T[:, None, None], axis=0)
    reach = flood(jnp.broadcast_to(free[..., None], (N, N, K)), at_start) < UNREACHABLE
    agent = jnp.arange(K)
    disconnected = mask & ~reach[goals[:, 0], goals[:, 1], agent]

    # The largest number of agents per component whose sets of cells fit: n agents on c cells have
    # (c choose n) sets.
    connected = reach[starts[:, 0], starts[:, 1]] & mask[:, None] & mask
    cells = jnp.sum(reach, axis=(0, 1), dtype=jnp.int32)
    set_counts = jnp.asarray(_binomials(N * N, S, capacity + 1))
    size = jnp.arange(S + 1)
    fits = (set_counts[cells] <= capacity) & (
        size <= jnp.sum(connected, axis=1, dtype=jnp.int32)[:, None]
    )
    largest = jnp.max(jnp.where(fits, size, 0), axis=1)
    subsets = [c for n in range(2, S + 1) for c in combinations(range(K), n)]
    if not subsets:
        return jnp.any(disconnected), last
    members = np.zeros((len(subsets), K), bool)
    for i, subset in enumerate(subsets):
        members[i, list(subset)] = True
    first = np.array([subset[0] for subset in subsets])
    # The agents of each subset first, then the others.
    slots = np.argsort(~members, axis=1, kind="stable")[:, :S]
    inside = jnp.all(~members | connected[first], axis=1)
    relevant = inside & (np.sum(members, axis=1) == largest[first])
    State = tuple[jax.Array, jax.Array, _CachedSearch]

    def examine(state: State) -> State:
        remaining, _, last = state
        i = jnp.argmax(remaining)
        subset_agents = jnp.asarray(slots)[i]
        count = jnp.sum(jnp.asarray(members)[i], dtype=jnp.int32)
        unsolvable, last = _unreachable(
            reach[..., subset_agents[0]], starts[subset_agents], goals[subset_agents], count, last
        )
        return remaining & (np.arange(len(subsets)) != i), unsolvable, last

    _, proved, last = jax.lax.while_loop(
        lambda state: ~state[1] & jnp.any(state[0]),
        examine,
        (relevant, jnp.any(disconnected), last),
    )
    return proved, last


def _unreachable(
    component: jax.Array, starts: jax.Array, goals: jax.Array, m: jax.Array, last: _CachedSearch
) -> tuple[jax.Array, _CachedSearch]:
    """Return whether the first m of K agents cannot reach their goals together, as bool ()."""
    N, K = component.shape[-1], starts.shape[0]
    capacity = last.search.finder.shape[0] - 1
    table = _symmetric_group(K)
    images, compose = jnp.asarray(table.images), jnp.asarray(table.compose)
    inverse, number = jnp.asarray(table.inverse), jnp.asarray(table.number)
    off_board = N * N
    unknown = len(table.images)
    binomials = jnp.asarray(_binomials(off_board, K, capacity + 1))
    slot = np.arange(K)
    playing = slot < m

    to_right, to_below = Action.RIGHT - 1, Action.DOWN - 1

    def canonical(cells: jax.Array, tokens: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return sorted cells (..., K) of `tokens`, the rank of their set, an arrangement."""
        # The rank is colexicographic: the sum of (c_i choose i + 1) over the sorted cells c_i.
        key = jnp.where(playing, cells, off_board + slot)
        place = jnp.sum(key[..., None, :] < key[..., None], axis=-1, dtype=jnp.int32)
        count = binomials[jnp.where(playing, cells, 0), jnp.where(playing, place + 1, 0)]
        rank = jnp.sum(jnp.where(playing, count, 0), axis=-1, dtype=jnp.int32)
        at = place[..., None, :] == slot[:, None]
        ordered = jnp.sum(jnp.where(at, cells[..., None, :], 0), axis=-1, dtype=jnp.int32)
        images_of = jnp.sum(jnp.where(at, tokens[..., None, :], 0), axis=-1, dtype=jnp.int32)
        return ordered, rank, number[jnp.sum(images_of * K**slot, axis=-1, dtype=jnp.int32)]

    SearchStart = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]

    def start() -> SearchStart:
        # Consecutive cell numbers give consecutive set ranks.
        flat = component.reshape(-1)
        ids = jnp.where(flat, jnp.cumsum(flat, dtype=jnp.int32) - 1, off_board).astype(jnp.int32)
        rim = jnp.pad(ids.reshape(N, N), 1, constant_values=off_board)
        neighbours = jnp.stack(
            [rim[1 + dr : 1 + dr + N, 1 + dc : 1 + dc + N] for dr, dc in ACTION_DELTAS[1:]], axis=-1
        ).reshape(-1, 4)
        neighbours = jnp.full((off_board + 1, 4), off_board, jnp.int32).at[ids].set(neighbours)
        neighbours = neighbours.at[off_board].set(off_board)
        base = jnp.where(playing, ids[_roomiest_cells(component, K)], off_board)
        first_set, rank, arrangement = canonical(base, jnp.asarray(slot))
        return (
            ids,
            neighbours,
            jnp.zeros((OCCUPANCY_BLOCK, K), jnp.int16).at[0].set(first_set.astype(jnp.int16)),
            jnp.full(capacity + 1, unknown, jnp.uint8).at[rank].set(arrangement.astype(jnp.uint8)),
            jnp.int32(0),
            jnp.int32(1),
            jnp.arange(unknown) == 0,
        )

    def resume() -> SearchStart:
        search = last.search
        places = (
            search.block,
            search.arrangement,
            search.num_expanded,
            search.num_sets,
            search.group,
        )
        return last.ids, last.neighbours, *places

    same = jnp.all(component == last.component) & (m == last.agents)
    ids, neighbours, block, arrangement, num_expanded, num_sets, group = jax.lax.cond(
        same, resume, start
    )
    initial = _SpanningSearch(
        last.search.sets, block, arrangement, last.search.finder, num_expanded, num_sets, group
    )

    def locate_agents(places: jax.Array) -> tuple[jax.Array, jax.Array]:
        cells = ids[places[:, 0] * N + places[:, 1]]
        _, rank, arrangement = canonical(jnp.where(playing, cells, off_board), jnp.asarray(slot))
        return rank, arrangement

    start_rank, start_arrangement = locate_agents(starts)
    goal_rank, goal_arrangement = locate_agents(goals)
    orders = jnp.asarray(np.cumprod(np.maximum(np.arange(K + 1), 1)))[m]

    def solvable(state: _SpanningSearch) -> jax.Array:
        # The search starts from an arbitrary set. Once it reaches the starts, `tokens` maps agents
        # to tokens. The agents at their goals are then h w(T), where T is the set of
        # the goals and h = tokens * goal_arrangement * w(T)^-1.
        start_entry, goal_entry = state.arrangement[start_rank], state.arrangement[goal_rank]
        reached = (start_entry < unknown) & (goal_entry < unknown)
        tokens = compose[jnp.where(reached, start_entry, 0), inverse[start_arrangement]]
        h = compose[tokens, compose[goal_arrangement, inverse[jnp.where(reached, goal_entry, 0)]]]
        return (reached & state.group[h]) | (jnp.sum(state.group, dtype=jnp.int32) == orders)

    def advance(state: _SpanningSearch) -> _SpanningSearch:
        cells = state.block.astype(jnp.int32)
        live = state.num_expanded + jnp.arange(OCCUPANCY_BLOCK) < state.num_sets
        cells = jnp.where(live[:, None] & playing, cells, off_board)
        _, rank, _ = canonical(cells, jnp.broadcast_to(slot, cells.shape))
        tokens = images[jnp.where(live, state.arrangement[jnp.where(live, rank, 0)], 0)]

        # (block, agent, move, slots): one agent moves to an empty cell.
        target = neighbours[cells]
        occupied = jnp.any(target[..., None] == cells[:, None, None], axis=-1)
        can_move = (target < off_board) & ~occupied
        moved = jnp.where(np.eye(K, dtype=bool)[:, None], target[..., None], cells[:, None, None])
        moved = moved.reshape(OCCUPANCY_BLOCK, -1, K)

        # (block, agent, slots): the square below and to the right of an agent rotates.
        right, below = neighbours[cells, to_right], neighbours[cells, to_below]
        ring = jnp.stack([cells, right, neighbours[right, to_below], below, cells], axis=-1)
        corner = cells[:, None, None] == ring[..., None]
        can_turn = jnp.all(jnp.any(corner, axis=-1) & (ring < off_board), axis=-1)
        turned = jnp.sum(
            jnp.where(corner[:, :, :4], ring[..., 1:, None], 0), axis=2, dtype=jnp.int32
        )
        turned = jnp.where(jnp.any(corner, axis=2), turned, cells[:, None])

        new_sets, new_ranks, new_arrangements = canonical(
            jnp.concatenate([moved, turned], axis=1), tokens[:, None]
        )
        can_move = can_move.reshape(OCCUPANCY_BLOCK, -1)
        legal = jnp.concatenate([can_move, can_turn], axis=1).reshape(-1)
        new_sets = new_sets.reshape(-1, K).astype(jnp.int16)
        new_ranks, new_arrangements = new_ranks.reshape(-1), new_arrangements.reshape(-1)
        target_rank = jnp.where(legal, new_ranks, capacity)

        # If several moves find the same set, the one written last belongs to the tree, and the
        # others close loops.
        unseen = legal & (state.arrangement[target_rank] == unknown)
        find = jnp.where(unseen, target_rank, capacity)
        arrangement = state.arrangement.at[find].set(new_arrangements.astype(jnp.uint8))
        move = jnp.arange(legal.shape[0], dtype=jnp.int32)
        finder = state.finder.at[find].set(move)
        finds = unseen & (finder[find] == move)
        place = jnp.where(
            finds, state.num_sets + jnp.cumsum(finds, dtype=jnp.int32) - 1, state.sets.shape[0]
        )

        # A loop at T gives g = (arrangement moved from S) * w(T)^-1, the identity for moves of the
        # tree.
        tree = arrangement[target_rank].astype(jnp.int32)
        loop = jnp.where(legal, compose[new_arrangements, inverse[jnp.where(legal, tree, 0)]], 0)
        num_expanded = jnp.minimum(state.num_expanded + OCCUPANCY_BLOCK, state.num_sets)
        # Read the next block here: in the next step, the compiler would copy all sets before it
        # changes them.
        sets = state.sets.at[place].set(new_sets, mode="drop")
        return _SpanningSearch(
            sets=sets,
            block=jax.lax.dynamic_slice_in_dim(sets, num_expanded, OCCUPANCY_BLOCK),
            arrangement=arrangement,
            finder=finder,
            num_expanded=num_expanded,
            num_sets=state.num_sets + jnp.sum(finds, dtype=jnp.int32),
            group=_generated_group(state.group.at[loop].set(True), state.group, table),
        )

    state = jax.lax.while_loop(
        lambda state: (state.num_expanded < state.num_sets) & ~solvable(state), advance, initial
    )
    return ~solvable(state), _CachedSearch(component, m, ids, neighbours, state)


def _roomiest_cells(component: jax.Array, count: int) -> jax.Array:
    """Return the cell with the most free neighbours and the cells nearest to it, int32 (count,)."""
    N = component.shape[-1]

    def sum_neighbours(values: jax.Array) -> jax.Array:
        rim = jnp.pad(jnp.where(component, values, 0), 1)
        return rim[:-2, 1:-1] + rim[2:, 1:-1] + rim[1:-1, :-2] + rim[1:-1, 2:]

    degree = sum_neighbours(jnp.ones((N, N), jnp.int32))
    room = jnp.where(component, 16 * degree + sum_neighbours(degree), -1).reshape(-1)
    centre = jnp.arange(N * N) == jnp.argmax(room)
    steps = flood(component, centre.reshape(N, N)).reshape(-1)
    return jnp.argsort(steps, stable=True)[np.minimum(np.arange(count), N * N - 1)]


def _generated_group(generators: jax.Array, group: jax.Array, table: _SymmetricGroup) -> jax.Array:
    """Return the group, bool (K!,), that `generators`, a superset of `group`, generate."""
    # A finite set closed under products is a group.
    quotient = table.compose[table.inverse].T  # [b, a] is a^-1 b

    def multiply(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        _, members = state
        return members, jnp.any(members[quotient] & members, axis=1)

    return jax.lax.while_loop(
        lambda state: jnp.any(state[0] != state[1]), multiply, (group, generators)
    )[1]
