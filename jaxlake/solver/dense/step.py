"""One step of whole sets of joint states, agent by agent over edges (design_notes/solver.md).

A set is an array (W, radix, ...): words whose bits are cells of the last agent, and one axis for
each other agent. Words come first because a TPU pads the last axis to 128. Number 0 means retired.
"""

from collections.abc import Sequence
from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.dense.components import Components
from jaxlake.solver.materialize import materialize_call


def num_words(radix: int) -> int:
    """Return the number of words with a bit for each number below `radix`."""
    return -(-radix // 32)


def broadcast_agent(values: jax.Array, axis: int, K: int) -> jax.Array:
    """Broadcast values (..., radix) of one agent along its axis of arrays (..., radix, ...)."""
    shape = [1] * (K - 1)
    shape[axis] = values.shape[-1]
    return values.reshape(*values.shape[:-1], *shape)


def broadcast_words(values: jax.Array, axes: int) -> jax.Array:
    """Reshape values (W,) for sets with `axes` agent axes, to (W, 1, ...)."""
    return values.reshape(-1, *(1,) * axes)


def bit_masks(members: jax.Array) -> jax.Array:
    """Pack bool (..., radix) into words, uint32 (W, ...)."""
    spare = num_words(members.shape[-1]) * 32 - members.shape[-1]
    padded = jnp.pad(members, [(0, 0)] * (members.ndim - 1) + [(0, spare)])
    padded = jnp.moveaxis(padded.reshape(*members.shape[:-1], -1, 32), -2, 0)
    return jnp.sum(
        jnp.where(padded, np.uint32(1) << np.arange(32, dtype=np.uint32), np.uint32(0)),
        axis=-1,
        dtype=jnp.uint32,
    )


def single_state(numbers: jax.Array, radix: int) -> jax.Array:
    """Return the set of the one joint state with agents at cell numbers int32 (K,)."""
    *axes, last = numbers
    K, number = len(numbers), np.arange(radix)
    masks = [broadcast_agent(number == agent, i, K) for i, agent in enumerate(axes)]
    bit = broadcast_words(bit_masks(number == last), K - 1)
    return jnp.where(reduce(jnp.logical_and, masks), bit, jnp.uint32(0))


def decode_costs(bits: jax.Array) -> jax.Array:
    """Return the costs whose bits, plus 1, are the first axis, lowest first; -1 if 0."""
    places = np.arange(len(bits))[:, None]
    return jnp.sum(bits.astype(jnp.int32) << places, axis=0, dtype=jnp.int32) - 1


def _down(words: list[jax.Array], by: int) -> list[jax.Array]:
    """Shift bits to lower numbers; the words are separate arrays."""
    whole, bits = divmod(by, 32)
    padded = [*words, *[jnp.zeros_like(words[0])] * (whole + 1)][whole:]
    if bits == 0:
        return padded[: len(words)]
    return [(padded[w] >> bits) | (padded[w + 1] << (32 - bits)) for w in range(len(words))]


def _up(words: list[jax.Array], by: int) -> list[jax.Array]:
    """Shift bits to higher numbers; the words are separate arrays."""
    whole, bits = divmod(by, 32)
    padded = [*[jnp.zeros_like(words[0])] * (whole + 1), *words]
    if bits == 0:
        return padded[1 : 1 + len(words)]
    return [(padded[w + 1] << bits) | (padded[w] >> (32 - bits)) for w in range(len(words))]


class LastAgent(NamedTuple):
    """Masks that move the last agent, whose cells are bits; edges are bits at their first cell."""

    right: jax.Array  # uint32 (W,), cells with a neighbour to the right
    down: jax.Array  # uint32 (W, N), cells whose lower neighbour has a number larger by i + 1
    cells: jax.Array  # uint32 (W,), all cells, and 0
    colours: jax.Array  # uint32 (W, 2), cells by their colour, and 0
    home: jax.Array  # uint32 (W,), the goal
    blocked_across: jax.Array  # uint32 (W, K - 1, radix), the edge by the edge of another agent
    blocked_along: jax.Array  # uint32 (W, K - 1, radix)
    blocked_cells: jax.Array  # uint32 (W, K - 1, radix), the cell by the cell of another agent


def last_agent(components: Components, N: int) -> LastAgent:
    """Return the masks of the last agent on a board of N rows."""
    place, colour = components.place[-1], components.colour[-1]
    radix = place.shape[0]
    number = np.arange(radix, dtype=np.int32)
    real = (place >= 0) & (number > 0)
    unused = radix - 1
    number_of = jnp.full(N * N, unused, jnp.int32)
    number_of = number_of.at[jnp.where(real, place, N * N)].set(number, mode="drop")

    def neighbour(by: int, inside: jax.Array) -> jax.Array:
        neighbours = number_of[jnp.minimum(place + by, N * N - 1)]
        return jnp.where(real & inside, neighbours, unused)

    right = neighbour(1, place % N < N - 1)
    below = neighbour(N, place < N * (N - 1))
    step = jnp.where(below < unused, below - number, 0)
    steps = np.arange(1, N + 1)[:, None]
    other_edges = components.edge[:-1]

    def same_edge(their_edges: jax.Array, own_edges: jax.Array) -> jax.Array:
        return (their_edges[..., None] == own_edges) & (their_edges >= 0)[..., None] & real

    home = jnp.where(number == 0, True, real)
    cells_met = (components.place[:-1, :, None] == place) & (components.place[:-1] >= 0)[..., None]
    return LastAgent(
        right=bit_masks(right < unused),
        down=bit_masks(step == steps),
        cells=bit_masks(home),
        colours=bit_masks((real & (colour == np.arange(2)[:, None])) | (number == 0)),
        home=bit_masks(number == components.goal[-1]),
        blocked_across=bit_masks(same_edge(other_edges, place)),
        blocked_along=bit_masks(same_edge(other_edges - N * N, place)),
        blocked_cells=bit_masks(cells_met & home),
    )


class Halfway(NamedTuple):
    """Moves of the last agent while the others, one axis each, are in the middle of edges."""

    apart: jax.Array  # bool (radix, ...), all other agents are on distinct edges
    across: jax.Array  # uint32 (W, radix, ...), unoccupied edges in rows
    along: jax.Array  # uint32 (W, radix, ...), unoccupied edges in columns


def halfway(components: Components, last: LastAgent, agents: Sequence[int]) -> Halfway:
    """Return the edges open to the last agent, with axes for `agents` in the given order."""
    indices = np.array(agents)
    distinct = _all_distinct(components.edge[indices])

    def left_free(blocked: jax.Array) -> jax.Array:
        return jnp.where(distinct, ~_unite_agents(blocked[:, indices]), jnp.uint32(0))

    return Halfway(distinct, left_free(last.blocked_across), left_free(last.blocked_along))


def legal_states(components: Components, last: LastAgent, agents: Sequence[int]) -> jax.Array:
    """Return the states (W, radix, ...) of `agents` and the last agent in distinct cells."""
    indices = np.array(agents)
    free = broadcast_words(last.cells, len(agents)) & ~_unite_agents(last.blocked_cells[:, indices])
    return jnp.where(_all_distinct(components.place[indices]), free, jnp.uint32(0))


def step(states: jax.Array, components: Components, last: LastAgent, total: jax.Array) -> jax.Array:
    """Return the joint states one step away from `states`, uint32 (W, radix, ...)."""
    K = components.place.shape[0]
    agents = range(K - 1)
    between = halfway(components, last, np.roll(agents, 1).tolist())
    moved = move(states, components, last, between, total, agents)
    return moved & legal_states(components, last, agents)


def move(
    states: jax.Array,
    components: Components,
    last: LastAgent,
    between: Halfway,
    total: jax.Array,
    agents: Sequence[int],
) -> jax.Array:
    """Move the agents of the axes and the last one; the caller masks vertex conflicts.

    The last of the `agents` moves with its axis in front; `between` has its axis first.
    """
    ends, edges_at = components.ends, components.edges_at
    unused = states.shape[-1] - 1
    # Agents that reach their goal may retire if the sum of costs is minimised.
    edges_at = edges_at.at[:, :4, 0].set(jnp.where(total, edges_at[:, :4, 0], unused))
    opaque_true = components.fits  # only boards that fit are searched
    *outer, inner = agents
    axis = 1 + len(outer)
    for i, agent in enumerate(outer, start=1):
        states = materialize_call(partial(_slices, axis=i), opaque_true, states, ends[agent])
    states = materialize_call(lambda x: jnp.moveaxis(x, axis, 1), opaque_true, states)
    states = materialize_call(partial(_slices, axis=1), opaque_true, states, ends[inner])
    states = _move_last(states, last, between, total, opaque_true)
    states = materialize_call(partial(_slices, axis=1), opaque_true, states, edges_at[inner])
    states = materialize_call(lambda x: jnp.moveaxis(x, 1, axis), opaque_true, states)
    for i, agent in enumerate(outer, start=1):
        states = materialize_call(partial(_slices, axis=i), opaque_true, states, edges_at[agent])
    return states


def _slices(states: jax.Array, sources: jax.Array, *, axis: int) -> jax.Array:
    """Unite, for each number of an axis, the slices at its sources, int32 (S, radix)."""
    return reduce(
        jnp.bitwise_or, (jnp.take(states, source, axis=axis, mode="clip") for source in sources)
    )


def _unite_agents(masks: jax.Array) -> jax.Array:
    """Unite the masks (W, K - 1, radix) of the agents on the axes."""
    K = masks.shape[1] + 1
    return reduce(jnp.bitwise_or, (broadcast_agent(masks[:, i], i, K) for i in range(K - 1)))


def _all_distinct(places: jax.Array) -> jax.Array:
    """Return where all agents on axes are at distinct places >= 0, int32 (K - 1, radix)."""
    K = places.shape[0] + 1
    distinct = jnp.ones((1,) * (K - 1), bool)
    for i in range(K - 1):
        for j in range(i):
            first, second = broadcast_agent(places[i], i, K), broadcast_agent(places[j], j, K)
            distinct &= (first != second) | (first < 0)
    return distinct


def _move_last(
    states: jax.Array, last: LastAgent, between: Halfway, total: jax.Array, opaque_true: jax.Array
) -> jax.Array:
    """Move the last agent while the others, with edges for cells, are halfway."""
    W, N = last.down.shape

    def to_edges(states: jax.Array) -> tuple[list[jax.Array], list[jax.Array]]:
        words = [states[w] for w in range(W)]
        right, below = _down(words, 1), [jnp.zeros_like(word) for word in words]
        for i in range(N):
            shifted = _down(words, i + 1)
            below = [
                b | ((word | s) & last.down[w, i])
                for w, (b, word, s) in enumerate(zip(below, words, shifted, strict=True))
            ]
        across = [(words[w] | right[w]) & last.right[w] & between.across[w] for w in range(W)]
        return across, [below[w] & between.along[w] for w in range(W)]

    def to_cells(
        edges: tuple[list[jax.Array], list[jax.Array]], before: jax.Array
    ) -> list[jax.Array]:
        across, along = edges
        moved = [across[w] | shifted | along[w] for w, shifted in enumerate(_up(across, 1))]
        for i in range(N):
            shifted = _up([along[w] & last.down[w, i] for w in range(W)], i + 1)
            moved = [word | s for word, s in zip(moved, shifted, strict=True)]
        home = reduce(jnp.bitwise_or, (moved[w] & last.home[w] for w in range(W)))
        moved[0] |= jnp.where(between.apart, before[0] & 1, jnp.uint32(0))
        moved[0] |= ((home != 0) & total).astype(jnp.uint32)
        return moved

    words = materialize_call(
        to_cells, opaque_true, materialize_call(to_edges, opaque_true, states), states
    )
    if W == 1:
        return words[0][None]
    # If XLA computed the words while stacking them, none would be vectorised.
    return materialize_call(jnp.stack, opaque_true, words)
