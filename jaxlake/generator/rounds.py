"""Rounds that fill the slots of `pool`: draw candidates, solve them, and store those that fit."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.instance import Instance
from jaxlake.generator.board_parts import draw_into_part
from jaxlake.generator.candidates import decode_boards, draw_codes
from jaxlake.generator.code_table import contains, empty_table, insert
from jaxlake.generator.mixture import LakeParams
from jaxlake.generator.pool import (
    NUM_WAIT_CLASSES,
    Generated,
    PoolInputs,
    PoolOptions,
    PoolState,
    collect_sets,
    default_batch_size,
    init_pool,
)
from jaxlake.runtime.cpu_devices import jit_search
from jaxlake.solver import Solution, Status, solve_batch
from jaxlake.solver.entry_points import solve_boards
from jaxlake.solver.many_agents import candidate_max_expansions

MAX_SMALL_SET = 4096
"""Number of slots up to which generating a set takes less time than compiling its programs."""

PoolProgram = Callable[[jax.Array, LakeParams, jax.Array, jax.Array, jax.Array], Generated]
"""Function of the first five arguments of `fill_pool`."""


class Lanes(NamedTuple):
    """The B candidates of a round, one per lane, ordered by stream and candidate."""

    stream: jax.Array  # int32 (B,)
    candidate: jax.Array  # int32 (B,), index of the candidate in its stream
    valid: jax.Array  # bool (B,), False beyond max_candidates and outside the requested part
    first_lane: jax.Array  # int32 (B,), first lane of the same stream
    stream_ends: jax.Array  # int32 (G,), end of each stream's lanes


class Candidates(NamedTuple):
    """Boards of a round's lanes, and their codes of V words."""

    codes: jax.Array  # uint32 (B, V)
    in_part: jax.Array  # bool (B,), whether the board belongs to the requested part
    boards: Instance  # leaves (B, ...)
    max_expansions: jax.Array  # int32 (B,), replanned agents allowed per search


SolvedCandidates = tuple[jax.Array, jax.Array, Solution]
"""`codes` and `in_part` of a round's candidates, and their solutions, leaves (B, ...)."""


def fill_pool(
    keys: jax.Array,
    params: LakeParams,
    boards_per_set: jax.Array,
    max_candidates: jax.Array,
    part_index: jax.Array,
    options: PoolOptions,
    axis_name: str | None = None,
) -> Generated:
    """Return a `Generated` with leaves (C, ...) of M slots; see `init_pool` for the arguments.

    With a device axis `axis_name`, each device processes a share of the lanes.
    """
    inputs, initial = init_pool(keys, params, boards_per_set, max_candidates, part_index, options)
    B = _num_lanes(inputs, options)

    def examine(stream: jax.Array, candidate: jax.Array) -> SolvedCandidates:
        candidates = _draw_candidates(inputs, stream, candidate, options)
        solutions = solve_batch(
            candidates.boards,
            horizon=options.horizon,
            max_expansions=candidates.max_expansions,
            limits=options.limits,
        )
        return candidates.codes, candidates.in_part, solutions

    def examine_all(stream: jax.Array, candidate: jax.Array) -> SolvedCandidates:
        """Examine all lanes; with a device axis, examine a share per device and gather."""
        if axis_name is None:
            return examine(stream, candidate)
        share = B // jax.lax.axis_size(axis_name)
        start = jax.lax.axis_index(axis_name) * share
        lanes = (jax.lax.dynamic_slice_in_dim(leaf, start, share) for leaf in (stream, candidate))
        return jax.lax.all_gather(examine(*lanes), axis_name, tiled=True)

    def run_round(state: PoolState) -> PoolState:
        lanes = _assign_lanes(B, inputs, state)
        return _store_candidates(inputs, state, lanes, examine_all(lanes.stream, lanes.candidate))

    state = jax.lax.while_loop(lambda state: jnp.any(_is_open(inputs, state)), run_round, initial)
    return collect_sets(inputs, state, boards_per_set, options)


def make_eager_program(options: PoolOptions) -> PoolProgram:
    """Return an eager, single-device equivalent of `fill_pool` that runs several programs."""
    # The code around the solver is as fast when compiled at a low optimisation level.
    initialize = jit_search(partial(_initialize, options=options)).fast_compile
    draw = jit_search(partial(_begin_round, options=options)).fast_compile
    store = jit_search(_end_round, donate_argnames="state").fast_compile
    collect = jit_search(partial(collect_sets, options=options)).fast_compile
    fast_compile = options.slots_per_set <= MAX_SMALL_SET

    def fill_eagerly(
        keys: jax.Array,
        params: LakeParams,
        boards_per_set: jax.Array,
        max_candidates: jax.Array,
        part_index: jax.Array,
    ) -> Generated:
        inputs, state, is_open = initialize(
            keys, params, boards_per_set, max_candidates, part_index
        )
        while is_open:
            lanes, candidates = draw(inputs, state)
            solutions = solve_boards(
                candidates.boards,
                candidates.max_expansions,
                options.horizon,
                options.limits,
                fast_compile=fast_compile,
            )
            results = (candidates.codes, candidates.in_part, solutions)
            state, is_open = store(inputs, state, lanes, results)
        return collect(inputs, state, boards_per_set)

    return fill_eagerly


def _initialize(
    keys: jax.Array,
    params: LakeParams,
    boards_per_set: jax.Array,
    max_candidates: jax.Array,
    part_index: jax.Array,
    options: PoolOptions,
) -> tuple[PoolInputs, PoolState, jax.Array]:
    inputs, state = init_pool(keys, params, boards_per_set, max_candidates, part_index, options)
    return inputs, state, jnp.any(_is_open(inputs, state))


def _begin_round(
    inputs: PoolInputs, state: PoolState, options: PoolOptions
) -> tuple[Lanes, Candidates]:
    lanes = _assign_lanes(_num_lanes(inputs, options), inputs, state)
    return lanes, _draw_candidates(inputs, lanes.stream, lanes.candidate, options)


def _end_round(
    inputs: PoolInputs, state: PoolState, lanes: Lanes, results: SolvedCandidates
) -> tuple[PoolState, jax.Array]:
    state = _store_candidates(inputs, state, lanes, results)
    return state, jnp.any(_is_open(inputs, state))


def _num_lanes(inputs: PoolInputs, options: PoolOptions) -> int:
    """Return B, the number of candidates examined at once."""
    num_slots = inputs.layout.component_of_slot.shape[0]
    return options.batch_size or default_batch_size(num_slots, options.limits)


def _is_open(inputs: PoolInputs, state: PoolState) -> jax.Array:
    """Return which streams have missing boards and remaining candidates, bool (G,)."""
    has_missing = jnp.any(state.filled < inputs.layout.quota, axis=1)
    return has_missing & (state.num_drawn < inputs.max_candidates)


def _draw_candidates(
    inputs: PoolInputs, stream: jax.Array, candidate: jax.Array, options: PoolOptions
) -> Candidates:
    """Return the boards of candidates, given by their streams and indices."""
    padding = {"max_size": options.max_size, "max_agents": options.max_agents}
    keys, num_agents, size = inputs.streams[stream], inputs.num_agents[stream], inputs.size[stream]
    codes = draw_codes(keys, candidate, size, inputs.num_holes[stream], num_agents, **padding)
    in_part = jnp.ones(candidate.shape, bool)
    if options.num_parts > 1:
        part = (inputs.part_index, options.num_parts)
        codes, in_part = draw_into_part(keys, candidate, codes, size, num_agents, part, **padding)
    boards = decode_boards(codes, size, num_agents, **padding)
    return Candidates(codes, in_part, boards, candidate_max_expansions(boards))


def _assign_lanes(B: int, inputs: PoolInputs, state: PoolState) -> Lanes:
    """Distribute B lanes over the open streams."""
    stream_ends = _stream_ends(B, inputs, state)
    lane = jnp.arange(B, dtype=jnp.int32)
    stream = jnp.searchsorted(stream_ends, lane, side="right").astype(jnp.int32)
    first_lane = jnp.concatenate([jnp.zeros(1, jnp.int32), stream_ends[:-1]])[stream]
    candidate = state.num_drawn[stream] + lane - first_lane
    return Lanes(stream, candidate, candidate < inputs.max_candidates, first_lane, stream_ends)


def _stream_ends(B: int, inputs: PoolInputs, state: PoolState) -> jax.Array:
    """Return the end of each stream's range of lanes, int32 (G,)."""
    # Expected number of candidates that a stream still needs (Laplace's rule of succession).
    num_missing = (inputs.layout.quota - state.filled).astype(jnp.float32)
    rate = (state.filled + 1) / (state.num_drawn[:, None] + 2)
    num_remaining = (inputs.max_candidates - state.num_drawn).astype(jnp.float32)
    num_expected = jnp.minimum(jnp.max(num_missing / rate, axis=1), num_remaining)
    num_expected = jnp.where(_is_open(inputs, state), num_expected, 0)
    # Integer weights make the sums exact, so that a closed stream gets no lane.
    weight = jnp.ceil(num_expected / jnp.sum(num_expected) * (1 << 20)).astype(jnp.int32)
    cumulative = jnp.cumsum(weight, dtype=jnp.int32)
    return jnp.floor(cumulative / cumulative[-1] * B).astype(jnp.int32)


def _store_candidates(
    inputs: PoolInputs, state: PoolState, lanes: Lanes, results: SolvedCandidates
) -> PoolState:
    """Store new solvable candidates, in order, until the quotas of their streams are full.

    Candidates after the one that completes a stream are not counted.
    """
    codes, in_part, solutions = results
    layout, stream, stream_ends = inputs.layout, lanes.stream, lanes.stream_ends
    is_valid = lanes.valid & in_part
    G, num_slots = layout.stream.shape[0], state.candidate.shape[0]
    lane = jnp.arange(stream.shape[0], dtype=jnp.int32)
    stream_codes = jnp.concatenate([codes, stream[:, None].astype(jnp.uint32)], axis=1)
    is_solvable = is_valid & (solutions.status == Status.OPTIMAL)
    is_stored = contains(state.table, state.codes, stream_codes, is_solvable)
    # Lane with the first equal code in this round.
    is_fresh = is_solvable & ~is_stored
    _, first_equal = insert(empty_table(lane.size), stream_codes, stream_codes, lane, is_fresh)

    wait_class = solutions.needs_wait.astype(jnp.int32)
    is_in_class = wait_class[:, None] == np.arange(NUM_WAIT_CLASSES)
    is_new = (is_fresh & (first_equal == lane))[:, None] & is_in_class
    num_before = jnp.cumsum(is_new, axis=0, dtype=jnp.int32) - is_new
    num_before -= num_before[lanes.first_lane]
    rank = jnp.take_along_axis(num_before, wait_class[:, None], axis=1)[:, 0]
    index = state.filled[stream, wait_class] + rank
    is_accepted = jnp.any(is_new, axis=1) & (index < layout.quota[stream, wait_class])
    slot = jnp.where(is_accepted, layout.first_slot[stream, wait_class] + index, num_slots)

    sum_by_stream = partial(jax.ops.segment_sum, num_segments=G, indices_are_sorted=True)
    num_accepted = sum_by_stream((is_new & is_accepted[:, None]).astype(jnp.int32), stream)
    filled = state.filled + num_accepted
    is_complete = jnp.all(filled >= layout.quota, axis=1)
    last_accepted = jax.ops.segment_max(
        jnp.where(is_accepted, lane, -1), stream, G, indices_are_sorted=True
    )
    counted = is_valid & ~(is_complete[stream] & (lane > last_accepted[stream]))
    is_duplicate = is_solvable & (is_stored | ((first_equal != lane) & is_accepted[first_equal]))
    flags = [is_valid, *(solutions.status == status for status in Status), is_duplicate]
    counts = sum_by_stream((jnp.stack(flags, axis=1) & counted[:, None]).astype(jnp.int32), stream)

    def write(slots: jax.Array, values: jax.Array) -> jax.Array:
        return slots.at[slot].set(values, mode="drop")

    stored_codes = write(state.codes, stream_codes)
    lanes_per_stream = stream_ends - jnp.concatenate([jnp.zeros(1, jnp.int32), stream_ends[:-1]])
    return PoolState(
        num_drawn=jnp.minimum(state.num_drawn + lanes_per_stream, inputs.max_candidates),
        filled=filled,
        counters=state.counters + counts,
        candidate=write(state.candidate, lanes.candidate),
        codes=stored_codes,
        solutions=jax.tree.map(write, state.solutions, solutions),
        table=insert(state.table, stored_codes, stream_codes, slot, is_accepted)[0],
    )
