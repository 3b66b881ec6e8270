"""Simultaneous moves of all agents, applied to a whole set of joint states at once.

A joint state has one cell per agent. A set of them is an array uint32 (W, A, ...). Each agent
except the last has one axis, indexed by its cell number. The bits of the W words are the cell
numbers of the last agent. Cell number 0 means retired. Words come first because a TPU pads the last
axis to 128. design_notes/solver.md explains the moves.
"""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.dense.components import Components
from jaxlake.solver.materialize import materialize_call


def num_words(axis_size: int) -> int:
    """Return the number of 32-bit words that hold `axis_size` bits."""
    return -(-axis_size // 32)


def broadcast_agent(values: jax.Array, axis: int, K: int) -> jax.Array:
    """Reshape values (..., A) of one agent so that they broadcast along its axis of a set."""
    shape = [1] * (K - 1)
    shape[axis] = values.shape[-1]
    return values.reshape(*values.shape[:-1], *shape)


def broadcast_words(values: jax.Array, num_axes: int) -> jax.Array:
    """Reshape one value per word, (W,), for sets with `num_axes` agent axes, to (W, 1, ...)."""
    return values.reshape(-1, *(1,) * num_axes)


def pack_masks(members: jax.Array) -> jax.Array:
    """Pack bool (..., A) into words, uint32 (W, ...)."""
    num_padding = num_words(members.shape[-1]) * 32 - members.shape[-1]
    padded_bits = jnp.pad(members, [(0, 0)] * (members.ndim - 1) + [(0, num_padding)])
    padded_bits = jnp.moveaxis(padded_bits.reshape(*members.shape[:-1], -1, 32), -2, 0)
    return jnp.sum(
        jnp.where(padded_bits, np.uint32(1) << np.arange(32, dtype=np.uint32), np.uint32(0)),
        axis=-1,
        dtype=jnp.uint32,
    )


def single_state(numbers: jax.Array, axis_size: int) -> jax.Array:
    """Return the set with one joint state, given the agents' cell numbers, int32 (K,)."""
    *axes, last = numbers
    K, number = len(numbers), np.arange(axis_size)
    masks = [broadcast_agent(number == agent, i, K) for i, agent in enumerate(axes)]
    bit = broadcast_words(pack_masks(number == last), K - 1)
    return jnp.where(reduce(jnp.logical_and, masks), bit, jnp.uint32(0))


def decode_costs(bits: jax.Array) -> jax.Array:
    """Return costs from the bits of 1 + cost, (COST_BITS, S), lowest bit first; -1 if all are 0."""
    positions = np.arange(len(bits))[:, None]
    return jnp.sum(bits.astype(jnp.int32) << positions, axis=0, dtype=jnp.int32) - 1


def _shift_down(words: list[jax.Array], distance: int) -> list[jax.Array]:
    """Shift bits to lower cell numbers; the words are separate arrays."""
    word_shift, bits = divmod(distance, 32)
    padded = [*words, *[jnp.zeros_like(words[0])] * (word_shift + 1)][word_shift:]
    if bits == 0:
        return padded[: len(words)]
    return [(padded[w] >> bits) | (padded[w + 1] << (32 - bits)) for w in range(len(words))]


def _shift_up(words: list[jax.Array], distance: int) -> list[jax.Array]:
    """Shift bits to higher cell numbers; the words are separate arrays."""
    word_shift, bits = divmod(distance, 32)
    padded = [*[jnp.zeros_like(words[0])] * (word_shift + 1), *words]
    if bits == 0:
        return padded[1 : 1 + len(words)]
    return [(padded[w + 1] << bits) | (padded[w] >> (32 - bits)) for w in range(len(words))]


class LastAgent(NamedTuple):
    """Masks for the moves of the last agent. An edge has the bit of its left or upper cell."""

    right: jax.Array  # uint32 (W,), cells with a neighbour to the right
    down: jax.Array  # uint32 (W, N), [:, i]: cells whose number is i + 1 less than that of the cell
    #   below
    cells: jax.Array  # uint32 (W,), all cells, and the retired state 0
    colours: jax.Array  # uint32 (W, 2), cells of each colour, and 0
    goal: jax.Array  # uint32 (W,)
    blocked_horizontal: jax.Array  # uint32 (W, K - 1, A), edges blocked by each edge of an agent
    blocked_vertical: jax.Array  # uint32 (W, K - 1, A)
    blocked_cells: jax.Array  # uint32 (W, K - 1, A), cells blocked by each cell of an agent


def make_last_agent(components: Components, N: int) -> LastAgent:
    """Return the masks of the last agent on a board of N rows."""
    position, colour = components.positions[-1], components.colours[-1]
    axis_size = position.shape[0]
    number = np.arange(axis_size, dtype=np.int32)
    is_cell = (position >= 0) & (number > 0)
    unused_number = axis_size - 1
    cell_numbers = jnp.full(N * N, unused_number, jnp.int32)
    cell_numbers = cell_numbers.at[jnp.where(is_cell, position, N * N)].set(number, mode="drop")

    def find_neighbour(offset: int, exists: jax.Array) -> jax.Array:
        neighbours = cell_numbers[jnp.minimum(position + offset, N * N - 1)]
        return jnp.where(is_cell & exists, neighbours, unused_number)

    right_numbers = find_neighbour(1, position % N < N - 1)
    below_numbers = find_neighbour(N, position < N * (N - 1))
    difference = jnp.where(below_numbers < unused_number, below_numbers - number, 0)
    differences = np.arange(1, N + 1)[:, None]
    other_edges = components.edge_positions[:-1]

    def is_same_edge(other_edges: jax.Array, edges: jax.Array) -> jax.Array:
        return (other_edges[..., None] == edges) & (other_edges >= 0)[..., None] & is_cell

    is_valid = jnp.where(number == 0, True, is_cell)
    is_same_cell = components.positions[:-1, :, None] == position
    is_same_cell &= (components.positions[:-1] >= 0)[..., None]
    return LastAgent(
        right=pack_masks(right_numbers < unused_number),
        down=pack_masks(difference == differences),
        cells=pack_masks(is_valid),
        colours=pack_masks((is_cell & (colour == np.arange(2)[:, None])) | (number == 0)),
        goal=pack_masks(number == components.goal[-1]),
        blocked_horizontal=pack_masks(is_same_edge(other_edges, position)),
        blocked_vertical=pack_masks(is_same_edge(other_edges - N * N, position)),
        blocked_cells=pack_masks(is_same_cell & is_valid),
    )


class FreeEdges(NamedTuple):
    """Edges that the last agent can use, by the edge numbers of the other agents."""

    distinct: jax.Array  # bool (A, ...), the other agents are on distinct edges
    horizontal: jax.Array  # uint32 (W, A, ...)
    vertical: jax.Array  # uint32 (W, A, ...)


def find_free_edges(components: Components, last: LastAgent, agents: Sequence[int]) -> FreeEdges:
    """Return the free edges of the last agent, with one axis per agent in the given order."""
    indices = np.array(agents)
    distinct = _are_distinct(components.edge_positions[indices])

    def remove_blocked(blocked: jax.Array) -> jax.Array:
        return jnp.where(distinct, ~_unite_agents(blocked[:, indices]), jnp.uint32(0))

    return FreeEdges(
        distinct, remove_blocked(last.blocked_horizontal), remove_blocked(last.blocked_vertical)
    )


def legal_states(components: Components, last: LastAgent, agents: Sequence[int]) -> jax.Array:
    """Return the states (W, A, ...) in which `agents` and the last agent are on distinct cells."""
    indices = np.array(agents)
    free = broadcast_words(last.cells, len(agents)) & ~_unite_agents(last.blocked_cells[:, indices])
    return jnp.where(_are_distinct(components.positions[indices]), free, jnp.uint32(0))


def take_step(
    states: jax.Array, components: Components, last: LastAgent, sum_objective: jax.Array
) -> jax.Array:
    """Return the joint states one step away from `states`, uint32 (W, A, ...)."""
    K = components.positions.shape[0]
    agents = range(K - 1)
    free_edges = find_free_edges(components, last, np.roll(agents, 1).tolist())
    moved_states = move_agents(states, components, last, free_edges, sum_objective, agents)
    return moved_states & legal_states(components, last, agents)


def move_agents(
    states: jax.Array,
    components: Components,
    last: LastAgent,
    free_edges: FreeEdges,
    sum_objective: jax.Array,
    agents: Sequence[int],
) -> jax.Array:
    """Move `agents`, which have the axes of `states`, and the last agent.

    The caller masks vertex conflicts. `free_edges` must have the axis of `agents[-1]` first.
    """
    edge_ends, cell_edges = components.edge_ends, components.cell_edges
    unused_number = states.shape[-1] - 1
    # Agents that reach their goal may retire if the sum of costs is minimised.
    retirements = jnp.where(sum_objective, cell_edges[:, :4, 0], unused_number)
    cell_edges = cell_edges.at[:, :4, 0].set(retirements)
    opaque_true = components.all_numbered  # only boards that fit are searched
    *outer, inner = agents
    axis = 1 + len(outer)

    def gather(states: jax.Array, axis: int, sources: jax.Array) -> jax.Array:
        """Replace each slice of an axis by the union of its source slices, int32 (S, A)."""
        return materialize_call(
            lambda states, sources: reduce(
                jnp.bitwise_or, (jnp.take(states, x, axis=axis, mode="clip") for x in sources)
            ),
            opaque_true,
            states,
            sources,
        )

    for i, agent in enumerate(outer, start=1):
        states = gather(states, i, edge_ends[agent])
    states = materialize_call(lambda x: jnp.moveaxis(x, axis, 1), opaque_true, states)
    states = gather(states, 1, edge_ends[inner])
    states = _move_last_agent(states, last, free_edges, sum_objective, opaque_true)
    states = gather(states, 1, cell_edges[inner])
    states = materialize_call(lambda x: jnp.moveaxis(x, 1, axis), opaque_true, states)
    for i, agent in enumerate(outer, start=1):
        states = gather(states, i, cell_edges[agent])
    return states


def _unite_agents(masks: jax.Array) -> jax.Array:
    """Return the union (W, A, ...) of the masks (W, K - 1, A) of the agents with axes."""
    K = masks.shape[1] + 1
    return reduce(jnp.bitwise_or, (broadcast_agent(masks[:, i], i, K) for i in range(K - 1)))


def _are_distinct(positions: jax.Array) -> jax.Array:
    """Return whether all agents with axes are at distinct positions >= 0, bool (A, ...)."""
    K = positions.shape[0] + 1
    is_distinct = jnp.ones((1,) * (K - 1), bool)
    for i in range(K - 1):
        for j in range(i):
            first, second = broadcast_agent(positions[i], i, K), broadcast_agent(positions[j], j, K)
            is_distinct &= (first != second) | (first < 0)
    return is_distinct


def _move_last_agent(
    states: jax.Array,
    last: LastAgent,
    free_edges: FreeEdges,
    sum_objective: jax.Array,
    opaque_true: jax.Array,
) -> jax.Array:
    """Move the last agent over a free edge, by the edge numbers of the other agents."""
    W, N = last.down.shape

    def move_to_edges(states: jax.Array) -> tuple[list[jax.Array], list[jax.Array]]:
        words = [states[w] for w in range(W)]
        right_words, below_words = _shift_down(words, 1), [jnp.zeros_like(word) for word in words]
        for i in range(N):
            shifts = _shift_down(words, i + 1)
            below_words = [
                b | ((word | s) & last.down[w, i])
                for w, (b, word, s) in enumerate(zip(below_words, words, shifts, strict=True))
            ]
        horizontal = [
            (words[w] | right_words[w]) & last.right[w] & free_edges.horizontal[w] for w in range(W)
        ]
        return horizontal, [below_words[w] & free_edges.vertical[w] for w in range(W)]

    def move_to_cells(
        edges: tuple[list[jax.Array], list[jax.Array]], states: jax.Array
    ) -> list[jax.Array]:
        horizontal, vertical = edges
        moved_words = [
            horizontal[w] | shifted | vertical[w]
            for w, shifted in enumerate(_shift_up(horizontal, 1))
        ]
        for i in range(N):
            shifts = _shift_up([vertical[w] & last.down[w, i] for w in range(W)], i + 1)
            moved_words = [word | s for word, s in zip(moved_words, shifts, strict=True)]
        at_goal = reduce(jnp.bitwise_or, (moved_words[w] & last.goal[w] for w in range(W)))
        moved_words[0] |= jnp.where(free_edges.distinct, states[0] & 1, jnp.uint32(0))
        moved_words[0] |= ((at_goal != 0) & sum_objective).astype(jnp.uint32)
        return moved_words

    words = materialize_call(
        move_to_cells, opaque_true, materialize_call(move_to_edges, opaque_true, states), states
    )
    if W == 1:
        return words[0][None]
    # If XLA computed the words while stacking them, none would be vectorised.
    return materialize_call(jnp.stack, opaque_true, words)
