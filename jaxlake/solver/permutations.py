"""Proofs that crowded boards are unsolvable, from the reachable permutations of the agents.

The search visits the sets S of cells that the agents can occupy. The agents carry tokens: the
arrangement w(S) maps s to the token in the s-th cell of S. Moves that lead to a visited set close
loops, which generate a permutation group (Kornhauser, Miller and Spirakis 1984).
design_notes/solver.md has the proof. Shapes: B boards of N x N cells, K agents.
"""

import functools
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
"""Maximum number of agents to examine together. Six agents could also rotate in a cycle of six."""

MAX_SETS = 1 << 18
"""Maximum number of sets of cells to visit. Each takes 11 bytes for 5 slots."""

REPEATING_SIZE = 4
"""Largest board size N for which boards of a batch often have the same free cells."""


def prove_unsolvable(
    free: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    mask: jax.Array,
    active: jax.Array,
    *,
    boards_at_once: int = 1,
) -> jax.Array:
    """Return which active boards are proved to have no plan of any length, bool (B,).

    False is inconclusive, except for boards whose components have at most five agents and at most
    `MAX_SETS` sets of cells. In larger components, only subsets of the agents are examined.

    Args:
        free: bool (B, N, N), cells that can be entered.
        starts: int8 (B, K, 2), (row, column), distinct free cells where `mask` is True.
        goals: int8 (B, K, 2), likewise.
        mask: bool (B, K), agents that exist.
        active: bool (B,), boards to examine.
        boards_at_once: Number of boards examined at once (static).
    """
    free, starts, goals, mask, active = map(jnp.asarray, (free, starts, goals, mask, active))
    num_cells, num_slots = free.shape[-1] ** 2, min(starts.shape[1], MAX_JOINT_AGENTS)
    # Small boards have fewer sets, and every board clears one entry per set.
    capacity = min(MAX_SETS, max(comb(num_cells, m) for m in range(num_slots + 1)))
    num_active = jnp.sum(active, dtype=jnp.int32)
    order = _order_by_free_cells(free, active)
    cache = _empty_search(free.shape[-1], num_slots, capacity)
    if boards_at_once > 1:
        cache = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (boards_at_once, *leaf.shape)), cache
        )

    def examine(
        i: jax.Array, state: tuple[jax.Array, _CachedSearch]
    ) -> tuple[jax.Array, _CachedSearch]:
        is_proved, cache = state
        b = order[i]
        is_proof, cache = _prove_board(free[b], starts[b], goals[b], mask[b], cache)
        return is_proved.at[b].set(is_proof), cache

    def examine_many(
        i: jax.Array, state: tuple[jax.Array, _CachedSearch]
    ) -> tuple[jax.Array, _CachedSearch]:
        is_proved, cache = state
        index = i * boards_at_once + jnp.arange(boards_at_once)
        is_board = index < num_active
        b = order[jnp.where(is_board, index, 0)]
        # Padding lanes have no agents and thus need no proof.
        padded_mask = mask[b] & is_board[:, None]
        is_proof, cache = jax.vmap(_prove_board)(free[b], starts[b], goals[b], padded_mask, cache)
        return is_proved.at[jnp.where(is_board, b, len(active))].set(is_proof, mode="drop"), cache

    false = jnp.zeros(active.shape, bool)
    examine_next = examine if boards_at_once == 1 else examine_many
    return jax.lax.fori_loop(0, -(-num_active // boards_at_once), examine_next, (false, cache))[0]


def _order_by_free_cells(free: jax.Array, active: jax.Array) -> jax.Array:
    """Return the order of the boards, int32 (B,): active ones first, equal small ones together."""
    if free.shape[-1] > REPEATING_SIZE:
        return order_active_first(active)
    cells = free.reshape(len(free), -1)
    pattern = jnp.sum(jnp.where(cells, 1 << np.arange(cells.shape[1]), 0), axis=1, dtype=jnp.int32)
    return jnp.argsort(jnp.where(active, pattern, 1 << cells.shape[1]))


class _SymmetricGroup(NamedTuple):
    """The permutations of K elements, by index. Index 0 is the identity."""

    images: np.ndarray  # int32 (K!, K)
    compose: np.ndarray  # int32 (K!, K!), [a, b]: index of a after b
    inverse: np.ndarray  # int32 (K!,)
    index_by_code: np.ndarray  # int32 (K**K,), by code: the images as base-K digits, lowest first


@functools.cache
def _symmetric_group(K: int) -> _SymmetricGroup:
    images = np.array(list(permutations(range(K))), np.int32).reshape(-1, K)
    weights = K ** np.arange(K)
    index_by_code = np.zeros(K**K, np.int32)
    index_by_code[images @ weights] = np.arange(len(images))
    compose = index_by_code[images[:, images] @ weights]
    inverse = index_by_code[np.argsort(images, axis=1) @ weights]
    return _SymmetricGroup(images, compose.astype(np.int32), inverse, index_by_code)


@functools.cache
def _binomials(num_cells: int, K: int, max_value: int) -> np.ndarray:
    """Return int32 (num_cells + 1, K + 1) binomial coefficients, clipped to `max_value`."""
    table = np.zeros((num_cells + 1, K + 1), np.int64)
    table[:, 0] = 1
    for n in range(1, num_cells + 1):
        table[n, 1:] = np.minimum(table[n - 1, 1:] + table[n - 1, :-1], max_value)
    return table.astype(np.int32)


class _SpanningSearch(NamedTuple):
    """Breadth-first search over sets of cells."""

    sets: jax.Array  # int16 (capacity + block, K), in order of discovery, without the first
    discovery: jax.Array  # int32 (capacity + 1,), by rank of the set: move that discovered it
    block: jax.Array  # int16 (block, K), the sets to expand next
    arrangement: jax.Array  # uint8 (capacity + 1,), w(S) by rank of S; K! for unseen S
    num_expanded: jax.Array  # int32 (), number of expanded sets
    num_sets: jax.Array  # int32 (), number of discovered sets
    group: jax.Array  # bool (K!,), group generated by the loops found so far


class _CachedSearch(NamedTuple):
    """Search, with the component and number of agents for which another board can reuse it."""

    component: jax.Array  # bool (N, N), connected cells
    num_agents: jax.Array  # int32 (), agents on them; 0 before the first search
    ids: jax.Array  # int32 (N * N,), consecutive numbers of the component's cells, from 0
    neighbours: jax.Array  # int32 (N * N + 1, 4), neighbours of each cell by direction
    search: _SpanningSearch


def _empty_search(N: int, K: int, capacity: int) -> _CachedSearch:
    return _CachedSearch(
        component=jnp.zeros((N, N), bool),
        num_agents=jnp.int32(0),
        ids=jnp.zeros(N * N, jnp.int32),
        neighbours=jnp.zeros((N * N + 1, 4), jnp.int32),
        search=_SpanningSearch(
            sets=jnp.zeros((capacity + OCCUPANCY_BLOCK, K), jnp.int16),
            discovery=jnp.zeros(capacity + 1, jnp.int32),
            block=jnp.zeros((OCCUPANCY_BLOCK, K), jnp.int16),
            arrangement=jnp.zeros(capacity + 1, jnp.uint8),
            num_expanded=jnp.int32(0),
            num_sets=jnp.int32(0),
            group=jnp.zeros(factorial(K), bool),
        ),
    )


def _prove_board(
    free: jax.Array, starts: jax.Array, goals: jax.Array, mask: jax.Array, cache: _CachedSearch
) -> tuple[jax.Array, _CachedSearch]:
    """Return whether one board is proved unsolvable, bool (), and the last search."""
    capacity = cache.search.discovery.shape[0] - 1
    N, K = free.shape[-1], starts.shape[0]
    max_joint_agents = min(K, MAX_JOINT_AGENTS)
    starts, goals, mask = starts.astype(jnp.int32), goals.astype(jnp.int32), jnp.asarray(mask)
    grid = np.indices((N, N))[..., None]
    at_start = jnp.all(grid == starts.T[:, None, None], axis=0)
    reach = flood(jnp.broadcast_to(free[..., None], (N, N, K)), at_start) < UNREACHABLE
    agent = jnp.arange(K)
    is_disconnected = mask & ~reach[goals[:, 0], goals[:, 1], agent]

    # The largest number of agents in each component whose sets fit into the memory: n agents on c
    # cells can occupy (c choose n) sets.
    same_component = reach[starts[:, 0], starts[:, 1]] & mask[:, None] & mask
    num_cells = jnp.sum(reach, axis=(0, 1), dtype=jnp.int32)
    set_counts = jnp.asarray(_binomials(N * N, max_joint_agents, capacity + 1))
    size = jnp.arange(max_joint_agents + 1)
    is_searchable = (set_counts[num_cells] <= capacity) & (
        size <= jnp.sum(same_component, axis=1, dtype=jnp.int32)[:, None]
    )
    max_agents = jnp.max(jnp.where(is_searchable, size, 0), axis=1)
    subsets = [
        agents for n in range(2, max_joint_agents + 1) for agents in combinations(range(K), n)
    ]
    if not subsets:
        return jnp.any(is_disconnected), cache
    members = np.zeros((len(subsets), K), bool)
    for i, subset in enumerate(subsets):
        members[i, list(subset)] = True
    first_agents = np.array([subset[0] for subset in subsets])
    slots = np.argsort(~members, axis=1, kind="stable")[:, :max_joint_agents]  # subset first
    is_connected = jnp.all(~members | same_component[first_agents], axis=1)
    is_relevant = is_connected & (np.sum(members, axis=1) == max_agents[first_agents])
    State = tuple[jax.Array, jax.Array, _CachedSearch]

    def examine(state: State) -> State:
        is_remaining, _, cache = state
        i = jnp.argmax(is_remaining)
        subset_agents = jnp.asarray(slots)[i]
        count = jnp.sum(jnp.asarray(members)[i], dtype=jnp.int32)
        is_unsolvable, cache = _prove_agents(
            reach[..., subset_agents[0]], starts[subset_agents], goals[subset_agents], count, cache
        )
        return is_remaining & (np.arange(len(subsets)) != i), is_unsolvable, cache

    _, is_proved, cache = jax.lax.while_loop(
        lambda state: ~state[1] & jnp.any(state[0]),
        examine,
        (is_relevant, jnp.any(is_disconnected), cache),
    )
    return is_proved, cache


def _prove_agents(
    component: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    num_agents: jax.Array,
    cache: _CachedSearch,
) -> tuple[jax.Array, _CachedSearch]:
    """Return whether the first `num_agents` agents cannot reach their goals together."""
    N, K = component.shape[-1], starts.shape[0]
    capacity = cache.search.discovery.shape[0] - 1
    symmetric_group = _symmetric_group(K)
    binomials = jnp.asarray(_binomials(N * N, K, capacity + 1))
    ranking = _SetRanking(
        jnp.arange(K) < num_agents, binomials, jnp.asarray(symmetric_group.index_by_code)
    )

    is_cached = jnp.all(component == cache.component) & (num_agents == cache.num_agents)
    sets, discovery, *cached_fields = cache.search
    ids, neighbours, *start_fields = jax.lax.cond(
        is_cached,
        lambda: (cache.ids, cache.neighbours, *cached_fields),
        lambda: _start_search(component, ranking, capacity),
    )
    initial_search = _SpanningSearch(sets, discovery, *start_fields)

    def locate_agents(positions: jax.Array) -> tuple[jax.Array, jax.Array]:
        cells = ids[positions[:, 0] * N + positions[:, 1]]
        cells = jnp.where(ranking.has_agent, cells, N * N)
        _, rank, arrangement = ranking.sort(cells, jnp.arange(K))
        return rank, arrangement

    start_rank, start_arrangement = locate_agents(starts)
    goal_rank, goal_arrangement = locate_agents(goals)
    num_permutations = jnp.asarray(np.cumprod(np.maximum(np.arange(K + 1), 1)))[
        num_agents
    ]  # factorial
    compose, inverse = map(jnp.asarray, (symmetric_group.compose, symmetric_group.inverse))

    def is_solvable(state: _SpanningSearch) -> jax.Array:
        # The search starts from an arbitrary set. Once it has reached the starts, `tokens` maps
        # agents to tokens. The agents at their goals are then h w(T), where T is the set of the
        # goals and h = tokens * goal_arrangement * w(T)^-1.
        at_start, at_goal = state.arrangement[start_rank], state.arrangement[goal_rank]
        is_reached = (at_start < len(inverse)) & (at_goal < len(inverse))
        tokens = compose[jnp.where(is_reached, at_start, 0), inverse[start_arrangement]]
        h = compose[tokens, compose[goal_arrangement, inverse[jnp.where(is_reached, at_goal, 0)]]]
        has_all_permutations = jnp.sum(state.group, dtype=jnp.int32) == num_permutations
        return (is_reached & state.group[h]) | has_all_permutations

    search = jax.lax.while_loop(
        lambda state: (state.num_expanded < state.num_sets) & ~is_solvable(state),
        lambda state: _expand_block(state, neighbours, ranking, symmetric_group),
        initial_search,
    )
    return ~is_solvable(search), _CachedSearch(component, num_agents, ids, neighbours, search)


class _SetRanking(NamedTuple):
    """Ranks of the sets of cells that the agents in the first slots occupy."""

    has_agent: jax.Array  # bool (K,), slots with an agent
    binomials: jax.Array  # int32 (cells + 1, K + 1)
    index_by_code: jax.Array  # int32 (K**K,), see `_SymmetricGroup`

    def sort(self, cells: jax.Array, tokens: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Sort the agents of each set by their cells.

        Args:
            cells: int32 (..., K), cell of the agent in each slot; others are ignored.
            tokens: int32 (..., K), token of each slot.

        Returns:
            The sorted cells, int32 (..., K), with those of slots without an agent last; the
            colexicographic rank of their set, int32 (...), which is the sum of (c_i choose i + 1)
            over the sorted cells c_i; and the index of its arrangement, int32 (...).
        """
        K, slot = len(self.has_agent), np.arange(len(self.has_agent))
        key = jnp.where(self.has_agent, cells, len(self.binomials) - 1 + slot)
        index = jnp.sum(key[..., None, :] < key[..., None], axis=-1, dtype=jnp.int32)
        rows, columns = jnp.where(self.has_agent, cells, 0), jnp.where(self.has_agent, index + 1, 0)
        terms = jnp.where(self.has_agent, self.binomials[rows, columns], 0)
        rank = jnp.sum(terms, axis=-1, dtype=jnp.int32)
        at_slot = index[..., None, :] == slot[:, None]
        sorted_cells = jnp.sum(jnp.where(at_slot, cells[..., None, :], 0), axis=-1, dtype=jnp.int32)
        images = jnp.sum(jnp.where(at_slot, tokens[..., None, :], 0), axis=-1, dtype=jnp.int32)
        code = jnp.sum(images * K**slot, axis=-1, dtype=jnp.int32)
        return sorted_cells, rank, self.index_by_code[code]


def _start_search(
    component: jax.Array, ranking: _SetRanking, capacity: int
) -> tuple[jax.Array, ...]:
    """Return `ids` and `neighbours` of a `_CachedSearch`, and its search without two buffers."""
    N, K = component.shape[-1], len(ranking.has_agent)
    off_board, unseen = N * N, factorial(K)
    # Consecutive cell numbers give consecutive set ranks.
    mask = component.reshape(-1)
    ids = jnp.where(mask, jnp.cumsum(mask, dtype=jnp.int32) - 1, off_board).astype(jnp.int32)
    padded_ids = jnp.pad(ids.reshape(N, N), 1, constant_values=off_board)
    neighbours = jnp.stack(
        [padded_ids[1 + dr : 1 + dr + N, 1 + dc : 1 + dc + N] for dr, dc in ACTION_DELTAS[1:]],
        axis=-1,
    ).reshape(-1, 4)
    neighbours = jnp.full((off_board + 1, 4), off_board, jnp.int32).at[ids].set(neighbours)
    neighbours = neighbours.at[off_board].set(off_board)
    cells = jnp.where(ranking.has_agent, ids[_find_open_cells(component, K)], off_board)
    first_set, rank, first_arrangement = ranking.sort(cells, jnp.arange(K))
    block = jnp.zeros((OCCUPANCY_BLOCK, K), jnp.int16).at[0].set(first_set.astype(jnp.int16))
    arrangement = (
        jnp.full(capacity + 1, unseen, jnp.uint8).at[rank].set(first_arrangement.astype(jnp.uint8))
    )
    group = jnp.arange(unseen) == 0
    return ids, neighbours, block, arrangement, jnp.int32(0), jnp.int32(1), group


def _expand_block(
    state: _SpanningSearch,
    neighbours: jax.Array,
    ranking: _SetRanking,
    symmetric_group: _SymmetricGroup,
) -> _SpanningSearch:
    """Make all moves from the sets of the block: add new sets, and permutations of closed loops."""
    K, off_board, unseen = len(ranking.has_agent), len(neighbours) - 1, len(symmetric_group.images)
    capacity = len(state.discovery) - 1
    compose, inverse = map(jnp.asarray, (symmetric_group.compose, symmetric_group.inverse))
    cells = state.block.astype(jnp.int32)
    is_set = state.num_expanded + jnp.arange(OCCUPANCY_BLOCK) < state.num_sets
    cells = jnp.where(is_set[:, None] & ranking.has_agent, cells, off_board)
    _, rank, _ = ranking.sort(cells, jnp.broadcast_to(jnp.arange(K), cells.shape))
    arrangement = state.arrangement[jnp.where(is_set, rank, 0)]
    tokens = jnp.asarray(symmetric_group.images)[jnp.where(is_set, arrangement, 0)]

    moved_cells, can_move = _move_agents(cells, neighbours)
    moved_sets, *moved = ranking.sort(moved_cells, tokens[:, None])
    is_legal, ranks, arrangements = (leaf.reshape(-1) for leaf in (can_move, *moved))
    ranks = jnp.where(is_legal, ranks, capacity)

    # If several moves lead to the same new set, the one written last belongs to the spanning tree,
    # and the others close loops.
    is_unseen = is_legal & (state.arrangement[ranks] == unseen)
    targets = jnp.where(is_unseen, ranks, capacity)
    arrangement = state.arrangement.at[targets].set(arrangements.astype(jnp.uint8))
    move = jnp.arange(len(is_legal), dtype=jnp.int32)
    discovery = state.discovery.at[targets].set(move)
    is_discovery = is_unseen & (discovery[targets] == move)
    index = state.num_sets + jnp.cumsum(is_discovery, dtype=jnp.int32) - 1
    index = jnp.where(is_discovery, index, len(state.sets))

    # A move from S to T gives g = (arrangement moved from S) * w(T)^-1, which is the identity for
    # moves of the spanning tree.
    known_arrangements = arrangement[ranks].astype(jnp.int32)
    loops = jnp.where(
        is_legal, compose[arrangements, inverse[jnp.where(is_legal, known_arrangements, 0)]], 0
    )
    num_expanded = jnp.minimum(state.num_expanded + OCCUPANCY_BLOCK, state.num_sets)
    # Read the next block here: in the next step, the compiler would copy all sets before it
    # changes them.
    sets = state.sets.at[index].set(moved_sets.reshape(-1, K).astype(jnp.int16), mode="drop")
    return _SpanningSearch(
        sets=sets,
        discovery=discovery,
        block=jax.lax.dynamic_slice_in_dim(sets, num_expanded, OCCUPANCY_BLOCK),
        arrangement=arrangement,
        num_expanded=num_expanded,
        num_sets=state.num_sets + jnp.sum(is_discovery, dtype=jnp.int32),
        group=_generate_group(state.group.at[loops].set(True), state.group, symmetric_group),
    )


def _move_agents(cells: jax.Array, neighbours: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the cells after all 5 K moves from sets, int32 (sets, 5 K, K), and their legality."""
    num_sets, K = cells.shape
    off_board = len(neighbours) - 1
    # One agent moves to an empty cell.
    target = neighbours[cells]  # (sets, agent, direction)
    is_occupied = jnp.any(target[..., None] == cells[:, None, None], axis=-1)
    can_move = (target < off_board) & ~is_occupied
    moved_cells = jnp.where(np.eye(K, dtype=bool)[:, None], target[..., None], cells[:, None, None])

    # The full square with an agent in its upper left corner rotates.
    right, below = neighbours[cells, Action.RIGHT - 1], neighbours[cells, Action.DOWN - 1]
    opposite = neighbours[right, Action.DOWN - 1]
    ring = jnp.stack([cells, right, opposite, below, cells], axis=-1)  # (sets, agent, corner)
    is_corner = cells[:, None, None] == ring[..., None]
    can_rotate = jnp.all(jnp.any(is_corner, axis=-1) & (ring < off_board), axis=-1)
    rotated_cells = jnp.where(is_corner[:, :, :4], ring[..., 1:, None], 0)
    rotated_cells = jnp.sum(rotated_cells, axis=2, dtype=jnp.int32)
    rotated_cells = jnp.where(jnp.any(is_corner, axis=2), rotated_cells, cells[:, None])
    return (
        jnp.concatenate([moved_cells.reshape(num_sets, -1, K), rotated_cells], axis=1),
        jnp.concatenate([can_move.reshape(num_sets, -1), can_rotate], axis=1),
    )


def _find_open_cells(component: jax.Array, count: int) -> jax.Array:
    """Return the cell with the most free cells around it and its nearest cells, int32 (count,)."""
    N = component.shape[-1]

    def sum_neighbours(values: jax.Array) -> jax.Array:
        padded = jnp.pad(jnp.where(component, values, 0), 1)
        return padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]

    degree = sum_neighbours(jnp.ones((N, N), jnp.int32))
    openness = jnp.where(component, 16 * degree + sum_neighbours(degree), -1).reshape(-1)
    centre = jnp.arange(N * N) == jnp.argmax(openness)
    distances = flood(component, centre.reshape(N, N)).reshape(-1)
    return jnp.argsort(distances, stable=True)[np.minimum(np.arange(count), N * N - 1)]


def _generate_group(
    generators: jax.Array, group: jax.Array, symmetric_group: _SymmetricGroup
) -> jax.Array:
    """Return the group generated by `generators`, bool (K!,), which must contain `group`."""
    # Multiply until the set is closed: a finite set that is closed under products is a group.
    quotient = symmetric_group.compose[symmetric_group.inverse].T  # [b, a] is a^-1 b

    def multiply(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        _, members = state
        return members, jnp.any(members[quotient] & members, axis=1)

    return jax.lax.while_loop(
        lambda state: jnp.any(state[0] != state[1]), multiply, (group, generators)
    )[1]
