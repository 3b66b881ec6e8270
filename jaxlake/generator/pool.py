"""Pool of C * M board slots in which `generate` builds C sets: layout, state and finished sets."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.instance import Instance
from jaxlake.board.limits import MIN_AGENTS, MIN_SIZE
from jaxlake.generator import mixture
from jaxlake.generator.candidates import code_length, decode_boards
from jaxlake.generator.code_table import empty_table
from jaxlake.generator.mixture import LakeParams
from jaxlake.solver import Limits, Solution, Status
from jaxlake.solver.solution import unknown_solution

_UNFILLED = np.int32(np.iinfo(np.int32).max)
NUM_WAIT_CLASSES = 2  # 0: boards that need no wait, 1: boards that need one


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Generated:
    """n boards of S components, ordered by component and candidate, with unfilled slots last.

    Unfilled slots have no agents. Their solutions are UNKNOWN, with -1 for costs and actions.
    Components of the same kind draw from one stream of candidates. The last five counts cover this
    stream up to the candidate that completed it, so such components report the same counts.
    """

    instances: Instance  # leaves (n, ...)
    solutions: Solution  # leaves (n, ...)
    filled: jax.Array  # bool (n,)
    component: jax.Array  # int32 (n,), index into the parameters, ascending
    requested_wait: jax.Array  # int32 (S,), requested boards that need a wait
    requested_no_wait: jax.Array  # int32 (S,), requested boards that need no wait
    shortfall_wait: jax.Array  # int32 (S,), missing boards of `requested_wait`
    shortfall_no_wait: jax.Array  # int32 (S,), missing boards of `requested_no_wait`
    candidates: jax.Array  # int32 (S,), boards drawn
    solvable: jax.Array  # int32 (S,), solvable candidates
    unsolvable: jax.Array  # int32 (S,), candidates proved unsolvable
    unknown: jax.Array  # int32 (S,), candidates that the solver gave up on; not used
    duplicates: jax.Array  # int32 (S,), solvable candidates that were already in the set


class PoolOptions(NamedTuple):
    """Static options of a pool; see `generate`."""

    slots_per_set: int  # M, at least the number of boards per set
    max_size: int  # N, the padded side of the boards
    max_agents: int  # K, the number of agent slots
    horizon: int  # longest plan in steps
    batch_size: int | None  # B, candidates examined at once; None: `default_batch_size`
    limits: Limits  # number of candidates that the solver processes at once
    num_parts: int  # number of parts that all boards are divided into, see `board_parts`


def default_batch_size(num_boards: int, limits: Limits) -> int:
    """Return about twice the number of boards, within the limits of the device."""
    max_batch_size = min(8 * limits.planned_boards, 1 << 16)
    return min(max(1 << (2 * num_boards - 1).bit_length(), 64), max_batch_size)


class SlotLayout(NamedTuple):
    """Quotas and slots of the G = C * S components of C sets.

    A kind of board is its size, holes and agents. Components of a set with the same kind draw from
    one stream of candidates, and the index of the first such component also identifies the stream.
    Each set has M slots, ordered by stream, wait class and component, with unused slots last.
    """

    counts: jax.Array  # int32 (G, 2), boards of each component by wait class
    component_offset: jax.Array  # int32 (G, 2), boards of the stream in earlier components
    stream: jax.Array  # int32 (G,), index of the stream of each component
    first_slot: jax.Array  # int32 (G, 2), first slot of each stream
    quota: jax.Array  # int32 (G, 2), boards to make per stream, 0 if infeasible
    component_of_slot: jax.Array  # int32 (C * M,), G for unused slots


class PoolState(NamedTuple):
    """Boards and counts after some rounds."""

    num_drawn: jax.Array  # int32 (G,), candidates drawn from each stream
    filled: jax.Array  # int32 (G, 2), filled slots of each stream by wait class
    counters: jax.Array  # int32 (G, 5), candidates, then counts by Status, then duplicates
    candidate: jax.Array  # int32 (C * M,), index of the candidate in each slot, or _UNFILLED
    codes: jax.Array  # uint32 (C * M, V + 1), code of V words and stream of each candidate
    solutions: Solution  # leaves (C * M, ...)
    table: jax.Array  # int32 (T,), slots by code


class PoolInputs(NamedTuple):
    """Values that stay the same in all rounds."""

    layout: SlotLayout
    streams: jax.Array  # PRNG keys (G,) of the streams
    size: jax.Array  # int32 (G,), of the boards of each component
    num_holes: jax.Array  # int32 (G,)
    num_agents: jax.Array  # int32 (G,)
    max_candidates: jax.Array  # int32 (), candidates of a stream before giving up
    part_index: jax.Array  # int32 (), the part of all boards to generate


def init_pool(
    keys: jax.Array,
    params: LakeParams,
    boards_per_set: jax.Array,
    max_candidates: jax.Array,
    part_index: jax.Array,
    options: PoolOptions,
) -> tuple[PoolInputs, PoolState]:
    """Return the inputs and the empty pool for C sets.

    The int32 (C,) arguments have one entry per set because `jax.vmap` merges its axes into C. Their
    entries are equal, and only the first one is read.

    Args:
        keys: Typed PRNG keys (C,).
        params: Mixtures of S components, leaves (C, S).
        boards_per_set: int32 (C,), at most `options.slots_per_set`.
        max_candidates: int32 (C,), candidates of a stream before giving up.
        part_index: int32 (C,), the part of all boards to generate, 0 to `options.num_parts` - 1.
        options: Static options.
    """
    G, S = params.size.size, params.size.shape[1]
    size = params.size.astype(jnp.int32).reshape(G)
    num_agents = params.num_agents.astype(jnp.int32).reshape(G)
    num_holes = mixture.hole_count(size, params.hole_ratio.reshape(G))
    layout = _make_layout(params, size, num_holes, num_agents, boards_per_set[0], options)
    streams = jnp.repeat(keys, S)
    for field in (size, num_holes, num_agents):
        streams = jax.vmap(jax.random.fold_in)(streams, field)
    inputs = PoolInputs(
        layout, streams, size, num_holes, num_agents, max_candidates[0], part_index[0]
    )
    return inputs, _make_empty_state(layout.component_of_slot.shape[0], G, options)


def _make_empty_state(num_slots: int, G: int, options: PoolOptions) -> PoolState:
    solution = unknown_solution(options.horizon, options.max_agents)
    return PoolState(
        num_drawn=jnp.zeros(G, jnp.int32),
        filled=jnp.zeros((G, NUM_WAIT_CLASSES), jnp.int32),
        counters=jnp.zeros((G, 2 + len(Status)), jnp.int32),
        candidate=jnp.full(num_slots, _UNFILLED),
        codes=jnp.zeros(
            (num_slots, code_length(options.max_size, options.max_agents) + 1), jnp.uint32
        ),
        solutions=jax.tree.map(lambda x: jnp.broadcast_to(x, (num_slots, *x.shape)), solution),
        table=empty_table(num_slots),
    )


def _make_layout(
    params: LakeParams,
    size: jax.Array,
    num_holes: jax.Array,
    num_agents: jax.Array,
    boards_per_set: jax.Array,
    options: PoolOptions,
) -> SlotLayout:
    C, S = params.size.shape
    G = C * S
    num_boards = jax.vmap(partial(mixture.board_counts, num_boards=boards_per_set))(params)
    num_waits = jax.vmap(mixture.wait_counts)(params, num_boards)
    counts = jnp.stack([num_boards - num_waits, num_waits], axis=-1).reshape(G, NUM_WAIT_CLASSES)

    is_feasible = (size >= MIN_SIZE) & (size <= options.max_size)
    is_feasible &= (num_agents >= MIN_AGENTS) & (num_agents <= options.max_agents)
    is_feasible &= (num_holes >= 0) & (num_holes <= size * size - 2 * num_agents)

    kinds = jnp.stack([size, num_holes, num_agents], axis=-1).reshape(C, S, 3)
    is_same_kind = jnp.all(kinds[:, :, None] == kinds[:, None], axis=-1)
    stream = (jnp.argmax(is_same_kind, axis=-1) + S * jnp.arange(C)[:, None]).reshape(G)
    stream = stream.astype(jnp.int32)
    stream_counts = jax.ops.segment_sum(counts, stream, num_segments=G)
    end_slot = jnp.cumsum(stream_counts.reshape(-1), dtype=jnp.int32).reshape(G, NUM_WAIT_CLASSES)

    # Each wait class of a component has a run of consecutive slots.
    wait_class = np.arange(NUM_WAIT_CLASSES)[:, None]
    order = jnp.argsort((stream * NUM_WAIT_CLASSES + wait_class).reshape(-1), stable=True)
    run_lengths = counts.T.reshape(-1)[order]
    run_ends = jnp.cumsum(run_lengths, dtype=jnp.int32)
    slots = jnp.arange(C * options.slots_per_set, dtype=jnp.int32)
    run = jnp.searchsorted(run_ends, slots, side="right", method="sort")
    run_starts = jnp.zeros(NUM_WAIT_CLASSES * G, jnp.int32).at[order].set(run_ends - run_lengths)
    first_slot = end_slot - stream_counts
    component_of_slot = jnp.where(slots < C * boards_per_set, order[run] % G, G)
    return SlotLayout(
        counts=counts,
        component_offset=run_starts.reshape(NUM_WAIT_CLASSES, G).T - first_slot[stream],
        stream=stream,
        first_slot=first_slot,
        quota=jnp.where(is_feasible[:, None], stream_counts, 0),
        component_of_slot=component_of_slot.astype(jnp.int32),
    )


def collect_sets(
    inputs: PoolInputs, state: PoolState, boards_per_set: jax.Array, options: PoolOptions
) -> Generated:
    """Return the finished sets, leaves (C, ...) of M slots.

    Args:
        inputs: Result of `init_pool`.
        state: The pool after the last round.
        boards_per_set: int32 (C,), as for `init_pool`; only the first entry is read.
        options: Static options, as for `init_pool`.
    """
    layout, size, num_agents, C = inputs.layout, inputs.size, inputs.num_agents, len(boards_per_set)
    slots = jnp.arange(C * options.slots_per_set, dtype=jnp.int32)
    sorted_slots = jax.lax.sort((layout.component_of_slot, state.candidate, slots), num_keys=2)
    if C > 1:  # move the slots of each set to its front
        first_rows = jnp.arange(C)[:, None] * boards_per_set[0]
        rows = (first_rows + jnp.arange(options.slots_per_set)).reshape(-1)
        sorted_slots = tuple(leaf.at[rows].get(mode="clip") for leaf in sorted_slots)
    component, candidate, order = sorted_slots
    filled = candidate != _UNFILLED
    padding = {"max_size": options.max_size, "max_agents": options.max_agents}
    boards = decode_boards(
        state.codes[order, :-1], size[component], num_agents[component], **padding
    )

    def clear_unfilled(leaf: jax.Array) -> jax.Array:
        is_filled = filled.reshape(-1, *[1] * (leaf.ndim - 1))
        return jnp.where(is_filled, leaf, jnp.zeros((), leaf.dtype))

    num_filled = jnp.clip(state.filled[layout.stream] - layout.component_offset, 0, layout.counts)
    num_missing = layout.counts - num_filled
    candidates, solvable, unsolvable, unknown, duplicates = state.counters[layout.stream].T
    generated = Generated(
        instances=jax.tree.map(clear_unfilled, boards),
        solutions=jax.tree.map(lambda leaf: leaf[order], state.solutions),
        filled=filled,
        component=component % (size.shape[0] // C),
        requested_wait=layout.counts[:, 1],
        requested_no_wait=layout.counts[:, 0],
        shortfall_wait=num_missing[:, 1],
        shortfall_no_wait=num_missing[:, 0],
        candidates=candidates,
        solvable=solvable,
        unsolvable=unsolvable,
        unknown=unknown,
        duplicates=duplicates,
    )
    return jax.tree.map(lambda leaf: leaf.reshape(C, -1, *leaf.shape[1:]), generated)
