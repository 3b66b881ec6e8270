"""The pool in which `generate` makes sets: rounds of candidates, and what is kept of them.

The streams of all configurations share the lanes of every round (see `generation`). A pool can be
filled by one program, or in two steps: rounds without the last tier of the solver, which is large
and of which most sets have no need, and where they meet a board that needs it, the same rounds go
on with it.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.generator import mixture
from jaxlake.generator.board_parts import ALL_BOARDS, Part, draw_into_part
from jaxlake.generator.candidates import code_words, decode, draw_codes
from jaxlake.generator.code_table import contains, empty_table, insert
from jaxlake.generator.mixture import LakeParams
from jaxlake.instance import Instance
from jaxlake.solver import Solution, Status, Widths, solve_batch
from jaxlake.solver.many_slots import candidate_budgets, search_most
from jaxlake.solver.solution import unknown_solution

_UNFILLED = np.int32(np.iinfo(np.int32).max)
_KINDS = 2  # boards that need no wait, boards that need one


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Generated:
    """n boards by cell, inside a cell in the order of their candidates, unfilled slots last.

    Every cell has its slots, whether they could be filled or not; unfilled ones hold zeros. The
    last five counts are those of the cell's stream up to the candidate that made it complete, so
    cells that share a stream report the same.
    """

    instances: Instance  # leaves (n, ...)
    solutions: Solution  # leaves (n, ...)
    filled: jax.Array  # bool (n,)
    cell: jax.Array  # int32 (n,), index into the parameters, ascending
    requested_wait: jax.Array  # int32 (S,), boards asked for that need a wait
    requested_no_wait: jax.Array  # int32 (S,), boards asked for that need none
    shortfall_wait: jax.Array  # int32 (S,), of these, missing
    shortfall_no_wait: jax.Array  # int32 (S,), of these, missing
    candidates: jax.Array  # int32 (S,), boards drawn
    solvable: jax.Array  # int32 (S,), of these
    unsolvable: jax.Array  # int32 (S,), of these; proved
    unknown: jax.Array  # int32 (S,), of these; the solver gave up, so not used
    duplicates: jax.Array  # int32 (S,), of these; solvable, but already in the set


class PoolOptions(NamedTuple):
    """What a program is compiled for."""

    slots: int  # for boards of one set, see `_slots`
    max_size: int
    max_agents: int
    horizon: int
    batch_size: int | None
    widths: Widths  # how much of a batch is solved at a time
    part: Part


def batch_size_for(boards: int, widths: Widths) -> int:
    """Enough lanes to use the device well, and not many more than there are boards to make."""
    most = min(8 * widths.planned_boards, 1 << 16)
    return min(max(1 << (2 * boards - 1).bit_length(), 64), most)


class _Plan(NamedTuple):
    """What is to be made, for G = C * S cells. A stream is named by the first cell that draws it.

    Slots are numbered by stream, kind and cell while the set is made. There are M for each of the C
    sets of n boards; those that are not needed come last.
    """

    counts: jax.Array  # int32 (G, 2), boards of each cell by kind
    made_before: jax.Array  # int32 (G, 2), boards of its stream that go to earlier cells
    stream: jax.Array  # int32 (G,)
    slots: jax.Array  # int32 (G, 2), first slot of each stream
    room: jax.Array  # int32 (G, 2), boards to make of each stream, 0 if infeasible
    cell_of_slot: jax.Array  # int32 (C * M,), G where no board is wanted


class _Lanes(NamedTuple):
    """One candidate a lane, in the order of streams and within a stream of candidates."""

    stream: jax.Array  # int32 (B,)
    number: jax.Array  # int32 (B,), of the candidate
    valid: jax.Array  # bool (B,), False beyond max_candidates, and if it belongs to another part
    first: jax.Array  # int32 (B,), the first lane of the same stream


class Kept(NamedTuple):
    """What the rounds so far have made."""

    drawn: jax.Array  # int32 (G,), the next candidate of each stream
    filled: jax.Array  # int32 (G, 2)
    seen: jax.Array  # int32 (G, 5), candidates, then by Status, then duplicates
    number: jax.Array  # int32 (C * M,), candidate in each slot, _UNFILLED if none
    codes: jax.Array  # uint32 (C * M, V + 1), its code and its stream
    solutions: Solution  # leaves (C * M, ...)
    table: jax.Array  # int32 (T,), the slots by code


class _Setting(NamedTuple):
    """What all rounds need to know."""

    plan: _Plan
    streams: jax.Array  # keys (G,)
    size: jax.Array  # int32 (G,)
    holes: jax.Array  # int32 (G,)
    num_agents: jax.Array  # int32 (G,)


def fill_pool(
    keys: jax.Array,
    params: LakeParams,
    n: jax.Array,
    most: jax.Array,
    options: PoolOptions,
    axis_name: str | None = None,
) -> Generated:
    """Map keys (C,) and params (C, S) to a `Generated` with leaves (C, ...) of M slots.

    The boards n and the candidates of a stream at most, int32 (C,), are the same for all.
    """
    kept, _ = make_rounds(keys, params, n, most, None, options, axis_name=axis_name)
    return put_in_order(keys, params, n, kept, options)


def make_rounds(
    keys: jax.Array,
    params: LakeParams,
    n: jax.Array,
    most: jax.Array,
    begun: Kept | None,
    options: PoolOptions,
    *,
    last_tier: bool = True,
    axis_name: str | None = None,
) -> tuple[Kept, jax.Array]:
    """Make rounds until nothing is missing; arguments as those of `fill_pool`.

    Without the `last_tier` (static) of the solver, rounds end before the first one that needs it,
    and bool () says whether there is such a one. With what was `begun` they go on from there.
    """
    setting = _set_up(keys, params, n, options)
    plan, streams, size, holes, num_agents = setting
    total = plan.cell_of_slot.shape[0]
    B, max_candidates = options.batch_size or batch_size_for(total, options.widths), most[0]

    Examined = tuple[jax.Array, jax.Array, Solution, jax.Array]

    def examine(stream: jax.Array, number: jax.Array) -> Examined:
        """Draw and judge the candidates of some lanes. A filter before the solver belongs here.

        Gives their codes, whether they belong to the part of all boards, their solutions, and
        whether the last tier has to look at them.
        """
        shapes = {"max_size": options.max_size, "max_agents": options.max_agents}
        keys, agents = streams[stream], num_agents[stream]
        codes = draw_codes(keys, number, size[stream], holes[stream], agents, **shapes)
        own = jnp.ones(number.shape, bool)
        if options.part != ALL_BOARDS:
            codes, own = draw_into_part(
                keys, number, codes, size[stream], agents, options.part, **shapes
            )
        boards = decode(codes, size[stream], agents, **shapes)
        horizon, widths, most = options.horizon, options.widths, candidate_budgets(boards)
        if last_tier:
            solutions = solve_batch(boards, horizon=horizon, max_expansions=most, widths=widths)
            return codes, own, solutions, jnp.zeros_like(own)
        searched = search_most(boards, horizon=horizon, max_expansions=most, widths=widths)
        return codes, own, searched.solution, jnp.any(searched.left, axis=0)

    def examine_all(stream: jax.Array, number: jax.Array) -> Examined:
        """With an axis of devices, examine this one's share of the lanes, then gather all."""
        if axis_name is None:
            return examine(stream, number)
        share = B // jax.lax.axis_size(axis_name)
        start = jax.lax.axis_index(axis_name) * share
        own = (jax.lax.dynamic_slice_in_dim(leaf, start, share) for leaf in (stream, number))
        return jax.lax.all_gather(examine(*own), axis_name, tiled=True)

    def is_open(kept: Kept) -> jax.Array:
        missing = jnp.any(kept.filled < plan.room, axis=1)
        return missing & (kept.drawn < max_candidates)

    State = tuple[Kept, jax.Array]

    def try_batch(state: State) -> State:
        kept, _ = state
        ends = _share_out(B, kept, plan, is_open(kept), max_candidates)
        lanes = _lanes(B, ends, kept.drawn, max_candidates)
        codes, own, solutions, left = examine_all(lanes.stream, lanes.number)
        valid = lanes.valid & own
        stopped = jnp.any(valid & left)
        # A round that stops counts for nothing: it drew no lane, and none is valid.
        lanes, ends = lanes._replace(valid=valid & ~stopped), jnp.where(stopped, 0, ends)
        return _keep(kept, lanes, ends, codes, solutions, plan, max_candidates), stopped

    kept = _nothing(total, len(size), options) if begun is None else begun
    return jax.lax.while_loop(
        lambda state: jnp.any(is_open(state[0])) & ~state[1], try_batch, (kept, jnp.bool_(False))
    )


def put_in_order(
    keys: jax.Array, params: LakeParams, n: jax.Array, kept: Kept, options: PoolOptions
) -> Generated:
    """Give what the rounds have made."""
    setting = _set_up(keys, params, n, options)
    return _in_order(kept, setting.plan, setting.size, setting.num_agents, n[0], len(keys), options)


def _set_up(keys: jax.Array, params: LakeParams, n: jax.Array, options: PoolOptions) -> _Setting:
    G, S = params.size.size, params.size.shape[1]
    size = params.size.astype(jnp.int32).reshape(G)
    num_agents = params.num_agents.astype(jnp.int32).reshape(G)
    holes = mixture.hole_count(size, params.hole_ratio.reshape(G))
    plan = _plan(params, size, holes, num_agents, n[0], options)
    streams = jnp.repeat(keys, S)
    for numbers in (size, holes, num_agents):
        streams = jax.vmap(jax.random.fold_in)(streams, numbers)
    return _Setting(plan, streams, size, holes, num_agents)


def _nothing(total: int, G: int, options: PoolOptions) -> Kept:
    blank = unknown_solution(options.horizon, options.max_agents)
    return Kept(
        drawn=jnp.zeros(G, jnp.int32),
        filled=jnp.zeros((G, _KINDS), jnp.int32),
        seen=jnp.zeros((G, 2 + len(Status)), jnp.int32),
        number=jnp.full(total, _UNFILLED),
        codes=jnp.zeros((total, code_words(options.max_size, options.max_agents) + 1), jnp.uint32),
        solutions=jax.tree.map(lambda x: jnp.zeros((total, *x.shape), x.dtype), blank),
        table=empty_table(total),
    )


def _plan(
    params: LakeParams,
    size: jax.Array,
    holes: jax.Array,
    num_agents: jax.Array,
    n: jax.Array,
    options: PoolOptions,
) -> _Plan:
    C, S = params.size.shape
    G = C * S
    boards = jax.vmap(partial(mixture.board_counts, n=n))(params)
    waits = jax.vmap(mixture.wait_counts)(params, boards)
    counts = jnp.stack([boards - waits, waits], axis=-1).reshape(G, _KINDS)

    feasible = (size >= mixture.MIN_SIZE) & (size <= options.max_size)
    feasible &= (num_agents >= mixture.MIN_AGENTS) & (num_agents <= options.max_agents)
    feasible &= (holes >= 0) & (holes <= size * size - 2 * num_agents)

    kinds = jnp.stack([size, holes, num_agents], axis=-1).reshape(C, S, 3)
    alike = jnp.all(kinds[:, :, None] == kinds[:, None], axis=-1)
    stream = (jnp.argmax(alike, axis=-1) + S * jnp.arange(C)[:, None]).reshape(G)
    stream = stream.astype(jnp.int32)
    wanted = jax.ops.segment_sum(counts, stream, num_segments=G)
    ends = jnp.cumsum(wanted.reshape(-1), dtype=jnp.int32).reshape(G, _KINDS)

    # Runs of slots that belong to one cell, in the order of the slots.
    kind_of_run = np.arange(_KINDS)[:, None]
    order = jnp.argsort((stream * _KINDS + kind_of_run).reshape(-1), stable=True)
    lengths = counts.T.reshape(-1)[order]
    run_ends = jnp.cumsum(lengths, dtype=jnp.int32)
    slots = jnp.arange(C * options.slots, dtype=jnp.int32)
    run = jnp.searchsorted(run_ends, slots, side="right", method="sort")
    starts = jnp.zeros(_KINDS * G, jnp.int32).at[order].set(run_ends - lengths)
    first = ends - wanted
    return _Plan(
        counts=counts,
        made_before=starts.reshape(_KINDS, G).T - first[stream],
        stream=stream,
        slots=first,
        room=jnp.where(feasible[:, None], wanted, 0),
        cell_of_slot=jnp.where(slots < C * n, order[run] % G, G).astype(jnp.int32),
    )


def _share_out(
    B: int, kept: Kept, plan: _Plan, open_streams: jax.Array, max_candidates: jax.Array
) -> jax.Array:
    """int32 (G,): each stream gets the lanes from the end of the one before it up to its own."""
    # Candidates that a stream can expect to need, from what it took so far (Laplace's rule).
    missing = (plan.room - kept.filled).astype(jnp.float32)
    rate = (kept.filled + 1) / (kept.drawn[:, None] + 2)
    left = (max_candidates - kept.drawn).astype(jnp.float32)
    need = jnp.where(open_streams, jnp.minimum(jnp.max(missing / rate, axis=1), left), 0)
    # Whole numbers, so that the sums are exact and a stream that is not open gets no lane.
    weight = jnp.ceil(need / jnp.sum(need) * (1 << 20)).astype(jnp.int32)
    upto = jnp.cumsum(weight, dtype=jnp.int32)
    return jnp.floor(upto / upto[-1] * B).astype(jnp.int32)


def _lanes(B: int, ends: jax.Array, drawn: jax.Array, max_candidates: jax.Array) -> _Lanes:
    lane = jnp.arange(B, dtype=jnp.int32)
    stream = jnp.searchsorted(ends, lane, side="right").astype(jnp.int32)
    first = jnp.concatenate([jnp.zeros(1, jnp.int32), ends[:-1]])[stream]
    number = drawn[stream] + lane - first
    return _Lanes(stream, number, number < max_candidates, first)


def _keep(
    kept: Kept,
    lanes: _Lanes,
    ends: jax.Array,
    codes: jax.Array,
    solutions: Solution,
    plan: _Plan,
    max_candidates: jax.Array,
) -> Kept:
    """Put the candidates that fit into slots, in order, and count up to a stream's last one."""
    G, total = plan.stream.shape[0], kept.number.shape[0]
    lane = jnp.arange(lanes.stream.shape[0], dtype=jnp.int32)
    named = jnp.concatenate([codes, lanes.stream[:, None].astype(jnp.uint32)], axis=1)
    solvable = lanes.valid & (solutions.status == Status.OPTIMAL)
    in_slot = contains(kept.table, kept.codes, named, solvable)
    _, equal = insert(empty_table(lane.size), named, named, lane, solvable & ~in_slot)

    kind = solutions.needs_wait.astype(jnp.int32)
    fits = (solvable & ~in_slot & (equal == lane))[:, None] & (kind[:, None] == np.arange(_KINDS))
    before = jnp.cumsum(fits, axis=0, dtype=jnp.int32) - fits
    rank = jnp.take_along_axis(before - before[lanes.first], kind[:, None], axis=1)[:, 0]
    place = kept.filled[lanes.stream, kind] + rank
    taken = jnp.any(fits, axis=1) & (place < plan.room[lanes.stream, kind])
    slot = jnp.where(taken, plan.slots[lanes.stream, kind] + place, total)

    by_stream = partial(jax.ops.segment_sum, num_segments=G, indices_are_sorted=True)
    filled = kept.filled + by_stream((fits & taken[:, None]).astype(jnp.int32), lanes.stream)
    complete = jnp.all(filled >= plan.room, axis=1)
    last = jax.ops.segment_max(jnp.where(taken, lane, -1), lanes.stream, G, indices_are_sorted=True)
    counted = lanes.valid & ~(complete[lanes.stream] & (lane > last[lanes.stream]))
    duplicate = solvable & (in_slot | ((equal != lane) & taken[equal]))
    flags = [lanes.valid, *(solutions.status == status for status in Status), duplicate]
    seen = jnp.stack(flags, axis=1) & counted[:, None]

    def put(slots: jax.Array, values: jax.Array) -> jax.Array:
        return slots.at[slot].set(values, mode="drop")

    stored = put(kept.codes, named)
    lanes_of_stream = ends - jnp.concatenate([jnp.zeros(1, jnp.int32), ends[:-1]])
    return Kept(
        drawn=jnp.minimum(kept.drawn + lanes_of_stream, max_candidates),
        filled=filled,
        seen=kept.seen + by_stream(seen.astype(jnp.int32), lanes.stream),
        number=put(kept.number, lanes.number),
        codes=stored,
        solutions=jax.tree.map(put, kept.solutions, solutions),
        table=insert(kept.table, stored, named, slot, taken)[0],
    )


def _in_order(
    kept: Kept,
    plan: _Plan,
    size: jax.Array,
    num_agents: jax.Array,
    n: jax.Array,
    C: int,
    options: PoolOptions,
) -> Generated:
    slots = jnp.arange(C * options.slots, dtype=jnp.int32)
    ordered = jax.lax.sort((plan.cell_of_slot, kept.number, slots), num_keys=2)
    if C > 1:  # each set gets its own n slots first
        rows = (jnp.arange(C)[:, None] * n + jnp.arange(options.slots)).reshape(-1)
        ordered = tuple(leaf.at[rows].get(mode="clip") for leaf in ordered)
    cell, number, order = ordered
    filled = number != _UNFILLED
    shapes = {"max_size": options.max_size, "max_agents": options.max_agents}
    boards = decode(kept.codes[order, :-1], size[cell], num_agents[cell], **shapes)

    def unless_empty(leaf: jax.Array) -> jax.Array:
        where = filled.reshape(-1, *[1] * (leaf.ndim - 1))
        return jnp.where(where, leaf, jnp.zeros((), leaf.dtype))

    made = jnp.clip(kept.filled[plan.stream] - plan.made_before, 0, plan.counts)
    missing = plan.counts - made
    candidates, solvable, unsolvable, unknown, duplicates = kept.seen[plan.stream].T
    generated = Generated(
        instances=jax.tree.map(unless_empty, boards),
        solutions=jax.tree.map(lambda leaf: leaf[order], kept.solutions),
        filled=filled,
        cell=cell % (size.shape[0] // C),
        requested_wait=plan.counts[:, 1],
        requested_no_wait=plan.counts[:, 0],
        shortfall_wait=missing[:, 1],
        shortfall_no_wait=missing[:, 0],
        candidates=candidates,
        solvable=solvable,
        unsolvable=unsolvable,
        unknown=unknown,
        duplicates=duplicates,
    )
    return jax.tree.map(lambda leaf: leaf.reshape(C, -1, *leaf.shape[1:]), generated)
