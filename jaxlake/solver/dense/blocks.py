"""Dense search in blocks, for processors that work on one board at a time.

The search finds the same costs as `joint`. A block contains the joint states in which all agents
except the last three, the outer agents, are on given cells. Most blocks of a set are empty, and
only the others are expanded (design_notes/solver.md).

Shapes: K agents, O = K - 3 outer agents, axes of size A, P = A ** O blocks, W words.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.chunks import order_active_first
from jaxlake.solver.dense.components import Components
from jaxlake.solver.dense.step import (
    FreeEdges,
    LastAgent,
    decode_costs,
    find_free_edges,
    legal_states,
    make_last_agent,
    move_agents,
    num_words,
    pack_masks,
    single_state,
)
from jaxlake.solver.materialize import materialize_call

INNER = 3
"""Number of agents whose joint states form one block."""

COST_BITS = 8
"""Number of bits of a stored cost."""

_ALL = np.uint32(0xFFFFFFFF)


class BlockBuffers(NamedTuple):
    """Sets of joint states in P blocks, which a search writes before it reads them."""

    reached: jax.Array  # uint32 (P, W, A, A), states reached at any cost so far
    moved: jax.Array  # uint32 (P, W, A, A), states reached by the current step
    queue: jax.Array  # uint32 (K + 1, P, W, A, A), [c % (K + 1)]: states to expand at cost c
    cost_bits: jax.Array  # uint32 (P, COST_BITS, W, A, A), bits of 1 + the least cost


class BlockSearch(NamedTuple):
    """Result and state of a search."""

    cost: jax.Array  # int32 (), cost of the last step
    half_done: jax.Array  # bool (), one colour of the next step is done; only without waits
    solved: jax.Array  # bool ()
    stuck: jax.Array  # bool (), no state is left to expand
    is_written: jax.Array  # bool (P,), blocks of `reached` and `cost_bits` that were written
    is_queued: jax.Array  # bool (K + 1, P), blocks of `queue` that hold states
    buffers: BlockBuffers


def allocate_buffers(num_agents: int, axis_size: int) -> BlockBuffers:
    """Allocate the sets of a search, with arbitrary contents."""
    blocks = (axis_size ** (num_agents - INNER),)
    block = (num_words(axis_size), axis_size, axis_size)

    def allocate(*shape: int) -> jax.Array:
        return jnp.zeros((*shape, *block), jnp.uint32)

    return BlockBuffers(
        reached=allocate(*blocks),
        moved=allocate(*blocks),
        queue=allocate(num_agents + 1, *blocks),
        cost_bits=allocate(*blocks, COST_BITS),
    )


class _OuterAgents(NamedTuple):
    """The outer agents in each block of states, or of edges."""

    legal: jax.Array  # bool (P,), all are on distinct cells of their components
    legal_edges: jax.Array  # bool (P,), likewise for edges
    colours: jax.Array  # bool (2, P), all are on cells of the colour, or retired
    active: jax.Array  # int32 (P,), number of agents that have not retired
    remaining: jax.Array  # int32 (P,), the sum of their distances, or the largest for the makespan
    sources: jax.Array  # int32 (2 ** O, P), predecessor blocks of each block of edges
    targets: jax.Array  # int32 (3 ** O, P), successor blocks
    cells: jax.Array  # bool (2, P, A), free cells of each inner agent with an axis
    edges: jax.Array  # bool (2, P, A), free edges of each inner agent with an axis
    last_cells: jax.Array  # uint32 (P, W, 1, 1), free cells of the last agent
    last_horizontal: jax.Array  # uint32 (P, W, 1, 1), its free horizontal edges
    last_vertical: jax.Array  # uint32 (P, W, 1, 1), its free vertical edges


class _InnerAgents(NamedTuple):
    """The inner agents, regardless of the outer ones."""

    legal: jax.Array  # uint32 (W, A, A), all are on distinct cells
    free_edges: FreeEdges  # with the axes of the two agents in the opposite order
    colours: jax.Array  # uint32 (2, W, A, A), all are on cells of the colour, or retired
    active: jax.Array  # uint32 (4, W, A, A), [a]: states in which a agents have not retired
    remaining: jax.Array  # int32 (A, A), as in `_OuterAgents`, for the agents with axes
    near_cells: jax.Array  # uint32 (W, D + 1), [:, d]: cells of the last agent nearer than d


class _Problem(NamedTuple):
    """Inputs of one search, see `search_blocks`."""

    components: Components
    last: LastAgent
    outer: _OuterAgents
    inner: _InnerAgents
    sum_objective: jax.Array
    may_wait: jax.Array
    bound: jax.Array


def _block_index(numbers: Sequence[jax.Array], axis_size: int) -> jax.Array:
    """Return the block in which the outer agents have these cell numbers, int32 (P,)."""
    return reduce(lambda index, number: index * axis_size + number, numbers, jnp.int32(0))


def _make_outer_agents(
    components: Components, last: LastAgent, distances: jax.Array, sum_objective: jax.Array
) -> _OuterAgents:
    K, axis_size = components.positions.shape
    count = K - INNER
    P, unused_number = axis_size**count, axis_size - 1
    numbers = np.indices((axis_size,) * count).reshape(count, P)  # of each agent in each block
    k = np.arange(count)[:, None]

    def are_distinct(positions: jax.Array) -> jax.Array:
        is_legal = jnp.all((positions >= 0) | (numbers == 0), axis=0)
        for i in range(count):
            for j in range(i):
                is_legal &= (positions[i] != positions[j]) | (positions[i] < 0)
        return is_legal

    cells, edges = components.positions[k, numbers], components.edge_positions[k, numbers]
    edge_ends = components.edge_ends[k, :, numbers]  # (count, P, 2)
    at_goal = jnp.any(edge_ends == components.goal[:count, None, None], axis=2)
    at_goal = at_goal & (numbers > 0) & sum_objective
    retirement = jnp.where(at_goal, 0, unused_number)
    options = [edge_ends[..., 0], edge_ends[..., 1], retirement]

    def find_neighbours(num_options: int) -> jax.Array:
        blocks = [
            jnp.broadcast_to(
                _block_index([options[c][i] for i, c in enumerate(choice)], axis_size), (P,)
            )
            for choice in product(range(num_options), repeat=count)
        ]
        return jnp.stack(blocks).astype(jnp.int32)

    def find_free(positions: jax.Array, outer_positions: jax.Array) -> jax.Array:
        """Return the cells or edges of an inner agent that no outer agent occupies."""
        is_occupied = (outer_positions[..., None] == positions) & (outer_positions >= 0)[..., None]
        return ~jnp.any(is_occupied, axis=0)

    def unblock(blocked: jax.Array) -> jax.Array:
        masks = jnp.zeros((len(blocked), P), jnp.uint32)
        for i in range(count):
            masks |= blocked[:, i, numbers[i]]
        return ~masks.T[..., None, None]

    inner_agents = (K - INNER, K - INNER + 1)
    colour = components.colours[k, numbers]
    outer_distances = distances[k, numbers]
    max_distance = jnp.max(outer_distances, axis=0, initial=0)
    distance_sum = jnp.sum(outer_distances, axis=0, dtype=jnp.int32)
    has_colour = [jnp.all((colour == c) | (numbers == 0), axis=0) for c in (0, 1)]
    return _OuterAgents(
        legal=are_distinct(cells),
        legal_edges=are_distinct(edges),
        colours=jnp.stack(has_colour),
        active=jnp.sum(jnp.broadcast_to(numbers > 0, (count, P)), axis=0, dtype=jnp.int32),
        remaining=jnp.where(sum_objective, distance_sum, max_distance),
        sources=find_neighbours(2),
        targets=find_neighbours(3),
        cells=jnp.stack([find_free(components.positions[i], cells) for i in inner_agents]),
        edges=jnp.stack([find_free(components.edge_positions[i], edges) for i in inner_agents]),
        last_cells=unblock(last.blocked_cells),
        last_horizontal=unblock(last.blocked_horizontal),
        last_vertical=unblock(last.blocked_vertical),
    )


def _make_inner_agents(
    components: Components,
    last: LastAgent,
    distances: jax.Array,
    sum_objective: jax.Array,
    max_distance: int,
) -> _InnerAgents:
    K, axis_size = components.positions.shape
    first, second = K - INNER, K - INNER + 1
    is_retired = np.arange(axis_size) == 0
    has_colour = (
        components.colours[np.array([first, second])] == np.arange(2)[:, None, None]
    ) | is_retired
    both_have_colour = has_colour[:, 0, :, None] & has_colour[:, 1, None]
    last_cells = last.colours.T[..., None, None]
    colours = jnp.where(both_have_colour[:, None], last_cells, jnp.uint32(0))
    num_active = (~is_retired)[:, None].astype(int) + ~is_retired  # of the two agents with axes
    first_distance, second_distance = distances[first][:, None], distances[second]
    retired_bit = np.where(np.arange(num_words(axis_size)) == 0, 1, 0).astype(np.uint32)
    retired_bit = retired_bit[:, None, None]
    active = [
        np.where(num_active == a, retired_bit, np.uint32(0))
        | np.where(num_active == a - 1, ~retired_bit, np.uint32(0))
        for a in range(INNER + 1)
    ]
    return _InnerAgents(
        legal=legal_states(components, last, [first, second]),
        free_edges=find_free_edges(components, last, [second, first]),
        colours=colours,
        active=jnp.asarray(np.stack(active)),
        remaining=jnp.where(
            sum_objective,
            first_distance + second_distance,
            jnp.maximum(first_distance, second_distance),
        ),
        near_cells=pack_masks(distances[-1] < np.arange(max_distance + 1)[:, None]),
    )


def search_blocks(
    components: Components,
    N: int,
    distances: jax.Array,
    sum_objective: jax.Array,
    may_wait: jax.Array,
    max_cost: jax.Array,
    bound: jax.Array,
    buffers: BlockBuffers,
) -> BlockSearch:
    """Expand joint states in order of cost until the goal is reached or no state is left.

    Args:
        components: Numbered cells and edges of one board.
        N: Number of rows of the board (static).
        distances: int32 (K, A), distances to the goal by cell number; 0 if retired or absent.
        sum_objective: bool (), minimise the sum of costs instead of the makespan.
        may_wait: bool (), whether agents may wait before they retire.
        max_cost: int32 (), cost after which the search stops.
        bound: int32 (), largest sum of costs, or makespan, of the plans to look for.
        buffers: Memory from `allocate_buffers`.

    Returns:
        The last state of the search, with the least costs that `least_costs` reads.
    """
    K, axis_size = components.positions.shape
    P = axis_size ** (K - INNER)
    last_agent = make_last_agent(components, N)
    max_distance = min(N * N, axis_size)
    outer = _make_outer_agents(components, last_agent, distances, sum_objective)
    inner = _make_inner_agents(components, last_agent, distances, sum_objective, max_distance)
    problem = _Problem(components, last_agent, outer, inner, sum_objective, may_wait, bound)

    def find_block(numbers: jax.Array) -> jax.Array:
        return _block_index(list(numbers[: K - INNER]), axis_size)

    goal_numbers = jnp.where(sum_objective, jnp.zeros(K, jnp.int32), components.goal)
    goal = find_block(goal_numbers), single_state(goal_numbers[-INNER:], axis_size)
    states = single_state(components.start[-INNER:], axis_size)
    start_block = find_block(components.start)
    is_start = jnp.arange(P) == start_block
    # At cost 0, states are queued as at any cost, for as many agents as exist.
    num_agents = jnp.sum(components.start > 0, dtype=jnp.int32)
    slot = jnp.where(sum_objective, num_agents, 1) % (K + 1)
    cost_bits = jnp.zeros((COST_BITS, *states.shape), jnp.uint32).at[0].set(states)
    buffers = buffers._replace(
        reached=jax.lax.dynamic_update_index_in_dim(buffers.reached, states, start_block, 0),
        queue=jax.lax.dynamic_update_slice(
            buffers.queue, states[None, None], (slot, start_block, *[jnp.int32(0)] * 3)
        ),
        cost_bits=jax.lax.dynamic_update_index_in_dim(buffers.cost_bits, cost_bits, start_block, 0),
    )
    false = jnp.bool_(False)
    is_queued = (jnp.arange(K + 1) == slot)[:, None] & is_start
    initial_state = BlockSearch(jnp.int32(0), false, false, false, is_start, is_queued, buffers)
    return jax.lax.while_loop(
        lambda state: (state.cost < max_cost) & (~state.solved | state.half_done) & ~state.stuck,
        lambda state: _advance(problem, state, goal, max_cost),
        initial_state,
    )


def _advance(
    problem: _Problem, state: BlockSearch, goal: tuple[jax.Array, jax.Array], max_cost: jax.Array
) -> BlockSearch:
    """Expand the states queued for the next cost; without waits, those of one colour."""
    outer, inner, may_wait = problem.outer, problem.inner, problem.may_wait
    cost, colour = state.cost + 1, state.half_done.astype(jnp.int32)
    is_complete = may_wait | state.half_done
    slot = cost % len(state.is_queued)
    source_mask = jnp.where(may_wait, _ALL, inner.colours[colour])
    target_mask = jnp.where(may_wait, _ALL, inner.colours[1 - colour])
    is_source = state.is_queued[slot] & (may_wait | outer.colours[colour])
    moved_states, is_moved = _move_blocks(problem, state.buffers, slot, is_source, source_mask)
    cost_mask = ((cost + 1) >> np.arange(COST_BITS)) & 1 != 0

    is_target = may_wait | outer.colours[1 - colour]
    is_near = cost + outer.remaining <= problem.bound
    is_updated = is_moved & outer.legal & is_target & is_near
    blocks, num_blocks = order_active_first(is_updated), jnp.sum(is_updated, dtype=jnp.int32)
    state = state._replace(buffers=state.buffers._replace(moved=moved_states))
    state = jax.lax.fori_loop(
        0,
        num_blocks,
        lambda i, state: _update_block(
            problem, state, blocks[i], goal, cost, cost_mask, target_mask
        ),
        state,
    )
    is_queued = state.is_queued.at[slot].set(state.is_queued[slot] & ~is_complete)
    is_stuck = is_complete & ~jnp.any(is_queued)
    # All sets after the last states would be empty.
    final_cost = jnp.where(is_stuck & problem.sum_objective & ~state.solved, max_cost, cost)
    return state._replace(
        cost=jnp.where(is_complete, final_cost, state.cost),
        half_done=~is_complete,
        stuck=is_stuck & ~problem.sum_objective,
        is_queued=is_queued,
    )


def _move_blocks(
    problem: _Problem,
    buffers: BlockBuffers,
    slot: jax.Array,
    is_source: jax.Array,
    source_mask: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Move the agents of all source blocks; return `moved` and its written blocks, bool (P,)."""
    components, last_agent, outer, inner, sum_objective = problem[:5]
    K = len(components.start)
    opaque_true = components.all_numbered
    agents = [K - INNER, K - INNER + 1]

    def take_step(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        edges = edge_blocks[i]

        def find_origins(queue: jax.Array, is_source: jax.Array) -> jax.Array:
            sets = [
                jnp.where(is_source[source], queue[slot, source], jnp.uint32(0))
                for source in outer.sources[:, edges]
            ]
            return reduce(jnp.bitwise_or, sets) & source_mask

        # The axes of free edges are in the opposite order, see `_InnerAgents`.
        are_distinct = outer.edges[1, edges][:, None] & outer.edges[0, edges]
        mask = jnp.where(are_distinct, _ALL, jnp.uint32(0))
        free_edges = FreeEdges(
            distinct=inner.free_edges.distinct & are_distinct,
            horizontal=inner.free_edges.horizontal & mask & outer.last_horizontal[edges],
            vertical=inner.free_edges.vertical & mask & outer.last_vertical[edges],
        )
        states = materialize_call(find_origins, opaque_true, buffers.queue, is_source)
        states = move_agents(states, components, last_agent, free_edges, sum_objective, agents)

        def merge_target(
            j: jax.Array, state: tuple[jax.Array, jax.Array]
        ) -> tuple[jax.Array, jax.Array]:
            moved, is_moved = state
            target = outer.targets[j, edges]

            def merge(moved: jax.Array, is_moved: jax.Array) -> jax.Array:
                return states | jnp.where(is_moved[target], moved[target], jnp.uint32(0))

            merged_states = materialize_call(merge, opaque_true, moved, is_moved)
            moved = jax.lax.dynamic_update_index_in_dim(moved, merged_states, target, 0)
            return moved, is_moved.at[target].set(True)

        return jax.lax.fori_loop(0, len(outer.targets), merge_target, state)

    is_used = outer.legal_edges & jnp.any(is_source[outer.sources], axis=0)
    edge_blocks, num_blocks = order_active_first(is_used), jnp.sum(is_used, dtype=jnp.int32)
    no_blocks = jnp.zeros(len(is_source), bool)
    return jax.lax.fori_loop(0, num_blocks, take_step, (buffers.moved, no_blocks))


def _update_block(
    problem: _Problem,
    state: BlockSearch,
    block: jax.Array,
    goal: tuple[jax.Array, jax.Array],
    cost: jax.Array,
    cost_mask: jax.Array,
    target_mask: jax.Array,
) -> BlockSearch:
    """Record and queue the moved states of a block that are new at this cost."""
    components, _, outer, inner, sum_objective, may_wait, bound = problem
    K = len(components.start)
    opaque_true, buffers = components.all_numbered, state.buffers
    # The cost that the inner agents may still incur.
    slack = bound - cost - jnp.where(sum_objective, outer.remaining[block], 0)

    def find_new(
        moved: jax.Array, reached: jax.Array, is_written: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        are_distinct = outer.cells[0, block][:, None] & outer.cells[1, block]
        allowed_states = inner.legal & outer.last_cells[block] & target_mask
        last_slack = jnp.where(
            sum_objective, slack - inner.remaining, jnp.where(inner.remaining <= slack, slack, -1)
        )
        max_distance = inner.near_cells.shape[1] - 1
        near_states = inner.near_cells[:, jnp.clip(last_slack + 1, 0, max_distance)]
        states = jnp.where(are_distinct, moved[block] & allowed_states & near_states, jnp.uint32(0))
        known_states = jnp.where(is_written[block] & may_wait, reached[block], jnp.uint32(0))
        return states & ~known_states, states | known_states

    new_states, reached = materialize_call(
        find_new, opaque_true, buffers.moved, buffers.reached, state.is_written
    )

    def add_cost(cost_bits: jax.Array, is_written: jax.Array, new_states: jax.Array) -> jax.Array:
        old_bits = jnp.where(is_written[block], cost_bits[block], jnp.uint32(0))
        return old_bits | jnp.where(cost_mask[:, None, None, None], new_states, jnp.uint32(0))

    cost_bits = materialize_call(
        add_cost, opaque_true, buffers.cost_bits, state.is_written, new_states
    )

    def queue_states(
        a: jax.Array, queues: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        """Queue the states in which `a` of the inner agents have not retired."""
        queue, is_queued = queues
        next_cost = jnp.where(sum_objective, cost + outer.active[block] + a, cost + 1)
        slot = next_cost % (K + 1)

        def merge(queue: jax.Array, is_queued: jax.Array) -> tuple[jax.Array, jax.Array]:
            queued_states = jnp.where(is_queued[slot, block], queue[slot, block], jnp.uint32(0))
            merged_states = queued_states | (new_states & inner.active[a])
            return merged_states, jnp.any(merged_states != 0)

        block_states, has_states = materialize_call(merge, opaque_true, queue, is_queued)
        index = (slot, block, *[jnp.int32(0)] * 3)
        queue = jax.lax.dynamic_update_slice(queue, block_states[None, None], index)
        return queue, is_queued.at[slot, block].set(has_states)

    queue, is_queued = jax.lax.fori_loop(
        0, INNER + 1, queue_states, (buffers.queue, state.is_queued)
    )
    goal_block, goal_states = goal
    at_goal = (block == goal_block) & jnp.any(new_states & goal_states != 0)
    return state._replace(
        solved=state.solved | at_goal,
        is_written=state.is_written.at[block].set(True),
        is_queued=is_queued,
        buffers=buffers._replace(
            reached=jax.lax.dynamic_update_index_in_dim(buffers.reached, reached, block, 0),
            queue=queue,
            cost_bits=jax.lax.dynamic_update_index_in_dim(buffers.cost_bits, cost_bits, block, 0),
        ),
    )


def least_costs(search: BlockSearch, states: jax.Array) -> jax.Array:
    """Return the least costs of joint states, int32 (S,); -1 if the search did not reach them.

    `states`, int32 (K, S), are the cell numbers of the agents.
    """
    axis_size = search.buffers.reached.shape[-1]
    *outer, first, second, last_number = states
    block = _block_index(outer, axis_size)
    word, bit = last_number // 32, (last_number % 32).astype(jnp.uint32)
    plane = np.arange(COST_BITS)[:, None]
    bits = (search.buffers.cost_bits[block, plane, word, first, second] >> bit) & 1
    return jnp.where(search.is_written[block], decode_costs(bits), -1)
