"""Block-wise search equivalent to `joint`, for a core that works on one board at a time."""

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
    Halfway,
    LastAgent,
    bit_masks,
    decode_costs,
    halfway,
    last_agent,
    legal_states,
    move,
    num_words,
    single_state,
)
from jaxlake.solver.materialize import materialize_call

INNER = 3
"""Number of agents whose joint states form one block."""

PLANES = 8
"""Number of bits of a cost."""

_ALL = np.uint32(0xFFFFFFFF)


class BlockBuffers(NamedTuple):
    """Sets of joint states in P blocks, which a search writes before it reads them."""

    reached: jax.Array  # uint32 (P, W, radix, radix), states reached at any cost so far
    moved: jax.Array  # uint32 (P, W, radix, radix), states reached by the current step
    waiting: jax.Array  # uint32 (K + 1, P, W, radix, radix), states to expand at c % (K + 1)
    planes: jax.Array  # uint32 (P, 8, W, radix, radix), bits of 1 + the least cost


class BlockSearch(NamedTuple):
    """Result and state of a search."""

    cost: jax.Array  # int32 (), c of the last step
    half: jax.Array  # bool (), one colour of the next step is done; only without waits
    solved: jax.Array  # bool ()
    stuck: jax.Array  # bool (), no state is left to expand
    valid: jax.Array  # bool (P,), blocks of `reached` and `planes` that were written
    due: jax.Array  # bool (K + 1, P), blocks of `waiting` that hold states
    buffers: BlockBuffers


def block_buffers(agents: int, radix: int) -> BlockBuffers:
    """Allocate the sets of a search, with arbitrary contents."""
    blocks = (radix ** (agents - INNER),)
    block = (num_words(radix), radix, radix)

    def sets(*shape: int) -> jax.Array:
        return jnp.zeros((*shape, *block), jnp.uint32)

    return BlockBuffers(
        reached=sets(*blocks),
        moved=sets(*blocks),
        waiting=sets(agents + 1, *blocks),
        planes=sets(*blocks, PLANES),
    )


class _Outer(NamedTuple):
    """The O = K - 3 outer agents, whose positions determine a block of states or of edges."""

    legal: jax.Array  # bool (P,), all are on distinct cells of the board
    legal_edges: jax.Array  # bool (P,), likewise for edges
    colours: jax.Array  # bool (2, P), all are on cells of the colour, or retired
    active: jax.Array  # int32 (P,), number of agents that have not retired
    remaining: jax.Array  # int32 (P,), the sum of their distances, or the largest for the makespan
    sources: jax.Array  # int32 (2 ** O, P), predecessor blocks of each block of edges
    targets: jax.Array  # int32 (3 ** O, P), successor blocks
    cells: jax.Array  # bool (2, P, radix), free cells of the agents on axes
    edges: jax.Array  # bool (2, P, radix), free edges of the agents on axes
    last_cells: jax.Array  # uint32 (P, W, 1, 1), free cells of the last agent
    last_across: jax.Array  # uint32 (P, W, 1, 1), free edges of the last agent in rows
    last_along: jax.Array  # uint32 (P, W, 1, 1), free edges of the last agent in columns


class _Inner(NamedTuple):
    """The last three agents on their own."""

    legal: jax.Array  # uint32 (W, radix, radix)
    between: Halfway
    colours: jax.Array  # uint32 (2, W, radix, radix), all are on cells of the colour, or retired
    active: jax.Array  # uint32 (4, W, radix, radix), states in which so many have not retired
    remaining: jax.Array  # int32 (radix, radix), as in `_Outer`, for the agents on axes
    within: jax.Array  # uint32 (W, D + 1), cells of the last agent with a distance below d


def _number(digits: Sequence[jax.Array], radix: int) -> jax.Array:
    """Return the block of outer agents with the given cell numbers, int32 (P,)."""
    return reduce(lambda number, digit: number * radix + digit, digits, jnp.int32(0))


def _outer_agents(
    components: Components, last: LastAgent, distances: jax.Array, total: jax.Array
) -> _Outer:
    K, radix = components.place.shape
    count = K - INNER
    P, unused = radix**count, radix - 1
    digits = np.indices((radix,) * count).reshape(count, P)
    k = np.arange(count)[:, None]

    def select_digits(values: jax.Array) -> jax.Array:
        return values[k, digits]

    def distinct(places: jax.Array) -> jax.Array:
        legal = jnp.all((places >= 0) | (digits == 0), axis=0)
        for i in range(count):
            for j in range(i):
                legal &= (places[i] != places[j]) | (places[i] < 0)
        return legal

    place, edge = select_digits(components.place), select_digits(components.edge)
    ends = components.ends[k, :, digits]  # (count, P, 2)
    at_goal = jnp.any(ends == components.goal[:count, None, None], axis=2) & (digits > 0) & total
    home = jnp.where(at_goal, 0, unused)
    options = [ends[..., 0], ends[..., 1], home]

    def neighbours(sides: int) -> jax.Array:
        numbers = [
            jnp.broadcast_to(_number([options[c][i] for i, c in enumerate(choice)], radix), (P,))
            for choice in product(range(sides), repeat=count)
        ]
        return jnp.stack(numbers).astype(jnp.int32)

    def unoccupied_numbers(own_places: jax.Array, other_places: jax.Array) -> jax.Array:
        """Return, for each block, the numbers of an agent on an axis that are unoccupied."""
        met = (other_places[..., None] == own_places) & (other_places >= 0)[..., None]
        return ~jnp.any(met, axis=0)

    def unblocked_words(masks: jax.Array) -> jax.Array:
        words = jnp.zeros((len(masks), P), jnp.uint32)
        for i in range(count):
            words |= masks[:, i, digits[i]]
        return ~words.T[..., None, None]

    on_axes = (K - INNER, K - INNER + 1)
    colour = select_digits(components.colour)
    agrees = [jnp.all((colour == c) | (digits == 0), axis=0) for c in (0, 1)]
    return _Outer(
        legal=distinct(place),
        legal_edges=distinct(edge),
        colours=jnp.stack(agrees),
        active=jnp.sum(jnp.broadcast_to(digits > 0, (count, P)), axis=0, dtype=jnp.int32),
        remaining=_combine_distances(select_digits(distances), total),
        sources=neighbours(2),
        targets=neighbours(3),
        cells=jnp.stack([unoccupied_numbers(components.place[i], place) for i in on_axes]),
        edges=jnp.stack([unoccupied_numbers(components.edge[i], edge) for i in on_axes]),
        last_cells=unblocked_words(last.blocked_cells),
        last_across=unblocked_words(last.blocked_across),
        last_along=unblocked_words(last.blocked_along),
    )


def _inner_agents(
    components: Components,
    last: LastAgent,
    distances: jax.Array,
    total: jax.Array,
    farthest: int,
) -> _Inner:
    K, radix = components.place.shape
    first, second = K - INNER, K - INNER + 1
    number = np.arange(radix)
    retired = number == 0
    pair = (components.colour[np.array([first, second])] == np.arange(2)[:, None, None]) | retired
    same_colour = pair[:, 0, :, None] & pair[:, 1, None]
    cells = last.colours.T[..., None, None]
    colours = jnp.where(same_colour[:, None], cells, jnp.uint32(0))
    on_axes = (~retired)[:, None].astype(int) + ~retired
    first_distance, second_distance = distances[first][:, None], distances[second]
    first_bit = np.where(np.arange(num_words(radix)) == 0, 1, 0).astype(np.uint32)[:, None, None]
    active = [
        np.where(on_axes == a, first_bit, np.uint32(0))
        | np.where(on_axes == a - 1, ~first_bit, np.uint32(0))
        for a in range(INNER + 1)
    ]
    return _Inner(
        legal=legal_states(components, last, [first, second]),
        between=halfway(components, last, [second, first]),
        colours=colours,
        active=jnp.asarray(np.stack(active)),
        remaining=jnp.where(
            total, first_distance + second_distance, jnp.maximum(first_distance, second_distance)
        ),
        within=bit_masks(distances[-1] < np.arange(farthest + 1)[:, None]),
    )


def _combine_distances(distances: jax.Array, total: jax.Array) -> jax.Array:
    """Return the least cost, or makespan, of agents with distances int32 (O, P), int32 (P,)."""
    farthest = jnp.max(distances, axis=0, initial=0)
    return jnp.where(total, jnp.sum(distances, axis=0, dtype=jnp.int32), farthest)


def search_blocks(
    components: Components,
    N: int,
    distances: jax.Array,
    total: jax.Array,
    waits: jax.Array,
    max_cost: jax.Array,
    within: jax.Array,
    buffers: BlockBuffers,
) -> BlockSearch:
    """Take steps until the goal is reached, no state is left, or c is `max_cost`.

    `distances` to the goal, int32 (K, radix), are by cell, and 0 for retired and absent agents.
    Plans that exceed `within`, in cost or in makespan, are not found.
    """
    K, radix = components.place.shape
    P = radix ** (K - INNER)
    last = last_agent(components, N)
    farthest = min(N * N, radix)
    outer = _outer_agents(components, last, distances, total)
    inner = _inner_agents(components, last, distances, total, farthest)
    opaque_true = components.fits
    agents = [K - INNER, K - INNER + 1]

    def block_number(numbers: jax.Array) -> jax.Array:
        return _number(list(numbers[: K - INNER]), radix)

    def states_at(numbers: jax.Array) -> jax.Array:
        """Return the set within its block that holds the one joint state."""
        return single_state(numbers[-INNER:], radix)

    end = jnp.where(total, jnp.zeros(K, jnp.int32), components.goal)
    end_block, end_states = block_number(end), states_at(end)

    def advance(state: BlockSearch) -> BlockSearch:
        c, colour = state.cost + 1, state.half.astype(jnp.int32)
        complete = waits | state.half
        slot = c % (K + 1)
        colour_mask = jnp.where(waits, _ALL, inner.colours[colour])
        to_colour = jnp.where(waits, _ALL, inner.colours[1 - colour])
        due = state.due[slot] & (waits | outer.colours[colour])
        buffers = state.buffers

        def take_step(
            i: jax.Array, moving: tuple[jax.Array, jax.Array]
        ) -> tuple[jax.Array, jax.Array]:
            q = steps[i]

            def origins(waiting: jax.Array, due: jax.Array) -> jax.Array:
                sets = [
                    jnp.where(due[p], waiting[slot, p], jnp.uint32(0)) for p in outer.sources[:, q]
                ]
                return reduce(jnp.bitwise_or, sets) & colour_mask

            # There, the axes are in the opposite order.
            distinct_edges = outer.edges[1, q][:, None] & outer.edges[0, q]
            free = jnp.where(distinct_edges, _ALL, jnp.uint32(0))
            between = Halfway(
                apart=inner.between.apart & distinct_edges,
                across=inner.between.across & free & outer.last_across[q],
                along=inner.between.along & free & outer.last_along[q],
            )
            states = materialize_call(origins, opaque_true, buffers.waiting, due)
            states = move(states, components, last, between, total, agents)

            def merge_target(
                j: jax.Array, moving: tuple[jax.Array, jax.Array]
            ) -> tuple[jax.Array, jax.Array]:
                moved, touched = moving
                p = outer.targets[j, q]

                def unite(moved: jax.Array, touched: jax.Array) -> jax.Array:
                    return states | jnp.where(touched[p], moved[p], jnp.uint32(0))

                merged = materialize_call(unite, opaque_true, moved, touched)
                moved = jax.lax.dynamic_update_index_in_dim(moved, merged, p, 0)
                return moved, touched.at[p].set(True)

            return jax.lax.fori_loop(0, len(outer.targets), merge_target, moving)

        some = outer.legal_edges & jnp.any(due[outer.sources], axis=0)
        steps, count = order_active_first(some), jnp.sum(some, dtype=jnp.int32)
        moved, touched = jax.lax.fori_loop(0, count, take_step, (buffers.moved, jnp.zeros(P, bool)))
        cost_bits = ((c + 1) >> np.arange(PLANES)) & 1 != 0

        def arrive(i: jax.Array, state: BlockSearch) -> BlockSearch:
            buffers = state.buffers
            p = blocks[i]
            # The cost that the last three agents may still incur.
            room = within - c - jnp.where(total, outer.remaining[p], 0)

            def unite(
                moved: jax.Array, reached: jax.Array, valid: jax.Array
            ) -> tuple[jax.Array, jax.Array]:
                distinct = outer.cells[0, p][:, None] & outer.cells[1, p]
                legal = inner.legal & outer.last_cells[p] & to_colour
                rest = jnp.where(
                    total, room - inner.remaining, jnp.where(inner.remaining <= room, room, -1)
                )
                near = inner.within[:, jnp.clip(rest + 1, 0, farthest)]
                states = jnp.where(distinct, moved[p] & legal & near, jnp.uint32(0))
                before = jnp.where(valid[p] & waits, reached[p], jnp.uint32(0))
                return states & ~before, states | before

            new, reached = materialize_call(unite, opaque_true, moved, buffers.reached, state.valid)

            def note(planes: jax.Array, valid: jax.Array, new: jax.Array) -> jax.Array:
                before = jnp.where(valid[p], planes[p], jnp.uint32(0))
                return before | jnp.where(cost_bits[:, None, None, None], new, jnp.uint32(0))

            planes = materialize_call(note, opaque_true, buffers.planes, state.valid, new)

            def queue_states(
                a: jax.Array, queue: tuple[jax.Array, jax.Array]
            ) -> tuple[jax.Array, jax.Array]:
                """Queue the states in which `a` of the last three agents have not retired."""
                waiting, due = queue
                then = jnp.where(total, c + outer.active[p] + a, c + 1) % (K + 1)

                def unite(waiting: jax.Array, due: jax.Array) -> tuple[jax.Array, jax.Array]:
                    before = jnp.where(due[then, p], waiting[then, p], jnp.uint32(0))
                    merged = before | (new & inner.active[a])
                    return merged, jnp.any(merged != 0)

                merged, some = materialize_call(unite, opaque_true, waiting, due)
                place = (then, p, *[jnp.int32(0)] * 3)
                waiting = jax.lax.dynamic_update_slice(waiting, merged[None, None], place)
                return waiting, due.at[then, p].set(some)

            waiting, due = jax.lax.fori_loop(
                0, INNER + 1, queue_states, (buffers.waiting, state.due)
            )
            arrived = (p == end_block) & jnp.any(new & end_states != 0)
            return state._replace(
                solved=state.solved | arrived,
                valid=state.valid.at[p].set(True),
                due=due,
                buffers=buffers._replace(
                    reached=jax.lax.dynamic_update_index_in_dim(buffers.reached, reached, p, 0),
                    waiting=waiting,
                    planes=jax.lax.dynamic_update_index_in_dim(buffers.planes, planes, p, 0),
                ),
            )

        to_outer = waits | outer.colours[1 - colour]
        near = c + outer.remaining <= within
        some = touched & outer.legal & to_outer & near
        blocks, count = order_active_first(some), jnp.sum(some, dtype=jnp.int32)
        state = state._replace(buffers=buffers._replace(moved=moved))
        state = jax.lax.fori_loop(0, count, arrive, state)
        due = state.due.at[slot].set(state.due[slot] & ~complete)
        stuck = complete & ~jnp.any(due)
        # All sets after the last states would be empty.
        ended = jnp.where(stuck & total & ~state.solved, max_cost, c)
        return state._replace(
            cost=jnp.where(complete, ended, state.cost),
            half=~complete,
            stuck=stuck & ~total,
            due=due,
        )

    begin, block = states_at(components.start), block_number(components.start)
    at = jnp.arange(P) == block
    # At cost 0, states are queued as at any cost, for as many agents as exist.
    num_agents = jnp.sum(components.start > 0, dtype=jnp.int32)
    slot = jnp.where(total, num_agents, 1) % (K + 1)
    planes = jnp.zeros((PLANES, *begin.shape), jnp.uint32).at[0].set(begin)
    buffers = buffers._replace(
        reached=jax.lax.dynamic_update_index_in_dim(buffers.reached, begin, block, 0),
        waiting=jax.lax.dynamic_update_slice(
            buffers.waiting, begin[None, None], (slot, block, *[jnp.int32(0)] * 3)
        ),
        planes=jax.lax.dynamic_update_index_in_dim(buffers.planes, planes, block, 0),
    )
    false = jnp.bool_(False)
    due = (jnp.arange(K + 1) == slot)[:, None] & at
    start = BlockSearch(jnp.int32(0), false, false, false, at, due, buffers)
    return jax.lax.while_loop(
        lambda state: (state.cost < max_cost) & (~state.solved | state.half) & ~state.stuck,
        advance,
        start,
    )


def least_costs(search: BlockSearch, states: jax.Array) -> jax.Array:
    """Return the least costs of joint states, int32 (K, S) numbers of cells; -1 if not reached."""
    radix = search.buffers.reached.shape[-1]
    *outer, first, second, last = states
    block = _number(outer, radix)
    word, bit = last // 32, (last % 32).astype(jnp.uint32)
    plane = np.arange(PLANES)[:, None]
    bits = (search.buffers.planes[block, plane, word, first, second] >> bit) & 1
    return jnp.where(search.valid[block], decode_costs(bits), -1)
