"""Sets of distinct solved boards for a mixture of kinds, by rejection on the device.

Cells of a mixture that agree in size, holes and agents draw from one *stream* of candidates, so
that a set holds no board twice; candidate i of a stream depends on the key, on these three numbers,
on the part of all boards that is asked for and on i alone. The streams of all configurations form
one pool. Every round shares a batch of candidates out over the streams that still miss boards, in
proportion to what they are expected to need: no lane works for a stream that is full, and none
waits for the slowest. Within its stream a candidate is judged in its order, so how the rounds were
cut leaves no trace in the result.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.batch_axes import merge_batch_axes
from jaxlake.cpu_devices import jit_search
from jaxlake.generator import mixture
from jaxlake.generator.board_parts import ALL_BOARDS, Part, checked_part, draw_into_part
from jaxlake.generator.candidates import code_words, decode, draw_codes
from jaxlake.generator.code_table import contains, empty_table, insert
from jaxlake.generator.mixture import LakeParams
from jaxlake.instance import Instance
from jaxlake.solver import DEFAULT_HORIZON, Solution, Status, Widths, solve_batch, widths_for
from jaxlake.solver.solution import unknown_solution

MAX_CANDIDATES = 1 << 18
"""Candidates of a stream after which `generate` gives up, unless told otherwise."""

_UNFILLED = np.int32(np.iinfo(np.int32).max)
_KINDS = 2  # boards that need no wait, boards that need one
_Pool = Callable[[jax.Array, LakeParams, jax.Array, jax.Array], "Generated"]


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


def generate(
    key: jax.Array,
    params: LakeParams,
    n: int,
    *,
    max_size: int = 10,
    max_agents: int = 2,
    horizon: int = DEFAULT_HORIZON,
    batch_size: int | None = None,
    max_candidates: int | None = None,
    widths: Widths | None = None,
    part: Part = ALL_BOARDS,
) -> Generated:
    """Make n distinct boards, each with its optimal solution.

    Cell s gets its share of n by largest remainder of `data_ratio`; of these, wait_ratio (rounded,
    halves up) need a wait and the others do not, exactly. Candidates have exactly `hole_count`
    holes, uniform over all such sets of cells, and starts and goals uniform over distinct free
    cells. Boards that are unsolvable, UNKNOWN or equal to an earlier one of the set are counted and
    not used. What could not be made is reported by cell.

    Usable under jit. Outside of it, a new n compiles next to nothing where another one was rounded
    up to the same number of slots: a power of two, or beyond 4096 also a quarter between two.
    `jax.vmap` over keys, parameters or both is one pool of all cells: it costs what its boards
    cost, and gives what the single calls give.

    Memory is proportional to n and to the batch. A million two-agent boards padded to 10 x 10 take
    0.4 GB with the default horizon, of which the two plans of a board are 256 bytes, and at most
    1 GB while they are made.

    Args:
        key: typed PRNG key; it alone decides among the boards of the same parameters.
        params: leaves (S,), see `lake_params`; cells that are infeasible, or beyond `max_size` or
            `max_agents`, cost nothing and are all shortfall.
        n: boards (static), 1 to 2**24.
        max_size: N, the padding of the boards (static), 2 to 32.
        max_agents: K, the padding of the agents (static), 1 to 5.
        horizon: longest plan, see `solve` (static).
        batch_size: candidates tried at once (static). It does not change the result; by default it
            follows n and the device.
        max_candidates: candidates of one stream after which to give up (static), at most 2**30; by
            default 8 a board, and no fewer than `MAX_CANDIDATES`.
        widths: how many candidates the solver works on at a time, see `solve` (static).
        part: (i, P), make boards of part i, counted from 0, of P parts of all boards (static): no
            two parts have a board in common, whatever their keys; see `board_parts`.

    Returns:
        A `Generated`.

    Raises:
        TypeError: `key` is no typed key.
        ValueError: a static argument is out of range, or the parameters are no (S,) arrays.
    """
    _check(n, max_size, max_agents, batch_size, max_candidates)
    options = _Options(
        *(_slots(n), max_size, max_agents, horizon, batch_size, widths or widths_for()),
        checked_part(part),
    )
    return _of_one(_pool(options), key, params, n, max_candidates)


def generate_sharded(
    key: jax.Array,
    params: LakeParams,
    n: int,
    *,
    devices: tuple[jax.Device, ...] | None = None,
    batch_size: int | None = None,
    max_size: int = 10,
    max_agents: int = 2,
    horizon: int = DEFAULT_HORIZON,
    max_candidates: int | None = None,
    widths: Widths | None = None,
    part: Part = ALL_BOARDS,
) -> Generated:
    """`generate` with each batch of candidates drawn and solved on several devices.

    Solving is nearly all of the work. The set itself is kept on every device, so that no device
    waits for another's bookkeeping; the result is that of `generate`, on all of them.

    The devices may be those of several processes (`jax.distributed.initialize`). Then every one of
    these processes makes the same call, and each has the whole result: `numpy.asarray` of any leaf
    gives it.

    Arguments and errors are those of `generate`, but for `devices` (None for all devices of all
    processes; `jax.local_devices()` are those of this one) and for `batch_size`: the candidates
    tried at once by all devices together, rounded up to a multiple of their number.
    """
    chosen = tuple(jax.devices() if devices is None else devices)
    if not chosen:
        raise ValueError("devices: got none, at least one is needed")
    _check(n, max_size, max_agents, batch_size, max_candidates)
    widths = widths or widths_for(chosen[0].platform)
    batch_size = _shared_batch_size(batch_size, n, len(chosen), widths)
    options = _Options(
        *(_slots(n), max_size, max_agents, horizon, batch_size, widths), checked_part(part)
    )
    return _of_one(_pool_on(options, chosen), key, params, n, max_candidates)


class _Options(NamedTuple):
    """What a program is compiled for."""

    slots: int  # for boards of one set, see `_slots`
    max_size: int
    max_agents: int
    horizon: int
    batch_size: int | None
    widths: Widths  # how much of a batch is solved at a time
    part: Part


def _check(
    n: int, max_size: int, max_agents: int, batch_size: int | None, max_candidates: int | None
) -> None:
    for name, value, least, most in (
        ("n", n, 1, 1 << 24),
        ("max_size", max_size, mixture.MIN_SIZE, mixture.MAX_SIZE),
        ("max_agents", max_agents, mixture.MIN_AGENTS, mixture.MAX_AGENTS),
        ("batch_size", batch_size, 1, 1 << 20),
        ("max_candidates", max_candidates, 0, 1 << 30),
    ):
        if value is not None and not least <= value <= most:
            raise ValueError(f"{name}: got {value}, {least} to {most} are allowed")


def _slots(n: int) -> int:
    """Round n up to one of few numbers: powers of two, and beyond 4096 also quarters between them.

    Sets of more than 4096 boards have at most 25% more slots than boards, a million 4.9%.
    """
    step = max(5, (n - 1).bit_length() - (3 if n > 4096 else 0))
    return -(-n >> step) << step


def _of_one(
    pool: _Pool, key: jax.Array, params: LakeParams, n: int, max_candidates: int | None
) -> Generated:
    shapes = {name: np.shape(leaf) for name, leaf in vars(params).items()}
    for name, shape in shapes.items():
        if len(shape) != 1 or shape != shapes["size"] or not shape[0]:
            raise ValueError(
                f"params.{name}: got shape {shape}, (S,) is needed, the same for all leaves "
                "(jax.vmap maps over further axes)"
            )
    if not jax.dtypes.issubdtype(getattr(key, "dtype", None), jax.dtypes.prng_key):
        raise TypeError("key: a typed key is needed, such as jax.random.key(0)")
    most = max(MAX_CANDIDATES, 8 * n) if max_candidates is None else max_candidates
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], params)
    return _first(pool(key[None], one, *np.array([[n], [most]], np.int32)), n)


@partial(jax.jit, static_argnames="n")
def _first(made: Generated, n: int) -> Generated:
    """Give the only set, leaves (1, ...), without the slots after the first n."""
    made = jax.tree.map(lambda leaf: leaf[0], made)
    boards = (made.instances, made.solutions, made.filled, made.cell)
    instances, solutions, filled, cell = jax.tree.map(lambda leaf: leaf[:n], boards)
    return replace(made, instances=instances, solutions=solutions, filled=filled, cell=cell)


def _batch_size(boards: int, widths: Widths) -> int:
    """Enough lanes to use the device well, and not many more than there are boards to make."""
    most = min(8 * widths.planned_boards, 1 << 16)
    return min(max(1 << (2 * boards - 1).bit_length(), 64), most)


def _shared_batch_size(batch_size: int | None, boards: int, devices: int, widths: Widths) -> int:
    """The batch that is asked for or, if None, a good one of at most 2**20; equal shares."""
    if batch_size is None:
        return min(_batch_size(boards, widths), (1 << 20) // devices) * devices
    return -(-batch_size // devices) * devices


@cache
def _pool(options: _Options) -> _Pool:
    """Fill many configurations in one pool, with further batch axes merged into it."""
    return jit_search(merge_batch_axes(partial(_fill, options=options)))


@cache
def _pool_on(options: _Options, devices: tuple[jax.Device, ...]) -> _Pool:
    """The pool with its lanes shared out over devices, and everything else on all of them."""
    mesh = jax.sharding.Mesh(np.array(devices), ("lanes",))
    everywhere = jax.sharding.PartitionSpec()
    fill = partial(_fill, options=options, axis_name="lanes")
    return jit_search(
        jax.shard_map(fill, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False)
    )


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


class _Kept(NamedTuple):
    drawn: jax.Array  # int32 (G,), the next candidate of each stream
    filled: jax.Array  # int32 (G, 2)
    seen: jax.Array  # int32 (G, 5), candidates, then by Status, then duplicates
    number: jax.Array  # int32 (C * M,), candidate in each slot, _UNFILLED if none
    codes: jax.Array  # uint32 (C * M, V + 1), its code and its stream
    solutions: Solution  # leaves (C * M, ...)
    table: jax.Array  # int32 (T,), the slots by code


def _fill(
    keys: jax.Array,
    params: LakeParams,
    n: jax.Array,
    most: jax.Array,
    options: _Options,
    axis_name: str | None = None,
) -> Generated:
    """The pool: keys (C,) and params (C, S) to a `Generated` with leaves (C, ...) of M slots.

    The boards n and the candidates of a stream at most, int32 (C,), are the same for all.
    """
    C, S = params.size.shape
    G, total = C * S, C * options.slots
    B = options.batch_size or _batch_size(total, options.widths)
    boards_of_each, max_candidates = n[0], most[0]
    size = params.size.astype(jnp.int32).reshape(G)
    num_agents = params.num_agents.astype(jnp.int32).reshape(G)
    holes = mixture.hole_count(size, params.hole_ratio.reshape(G))
    plan = _plan(params, size, holes, num_agents, boards_of_each, options)
    streams = jnp.repeat(keys, S)
    for numbers in (size, holes, num_agents):
        streams = jax.vmap(jax.random.fold_in)(streams, numbers)

    Examined = tuple[jax.Array, jax.Array, Solution]

    def examine(stream: jax.Array, number: jax.Array) -> Examined:
        """Draw and judge the candidates of some lanes. A filter before the solver belongs here.

        Gives their codes, whether they belong to the part of all boards, and their solutions.
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
        solutions = solve_batch(boards, horizon=options.horizon, widths=options.widths)
        return codes, own, solutions

    def examine_all(stream: jax.Array, number: jax.Array) -> Examined:
        """With an axis of devices, examine this one's share of the lanes, then gather all."""
        if axis_name is None:
            return examine(stream, number)
        share = B // jax.lax.axis_size(axis_name)
        start = jax.lax.axis_index(axis_name) * share
        own = (jax.lax.dynamic_slice_in_dim(leaf, start, share) for leaf in (stream, number))
        return jax.lax.all_gather(examine(*own), axis_name, tiled=True)

    def is_open(kept: _Kept) -> jax.Array:
        missing = jnp.any(kept.filled < plan.room, axis=1)
        return missing & (kept.drawn < max_candidates)

    def try_batch(kept: _Kept) -> _Kept:
        ends = _share_out(B, kept, plan, is_open(kept), max_candidates)
        lanes = _lanes(B, ends, kept.drawn, max_candidates)
        codes, own, solutions = examine_all(lanes.stream, lanes.number)
        lanes = lanes._replace(valid=lanes.valid & own)
        return _keep(kept, lanes, ends, codes, solutions, plan, max_candidates)

    V = code_words(options.max_size, options.max_agents)
    blank = unknown_solution(options.horizon, options.max_agents)
    nothing = _Kept(
        drawn=jnp.zeros(G, jnp.int32),
        filled=jnp.zeros((G, _KINDS), jnp.int32),
        seen=jnp.zeros((G, 2 + len(Status)), jnp.int32),
        number=jnp.full(total, _UNFILLED),
        codes=jnp.zeros((total, V + 1), jnp.uint32),
        solutions=jax.tree.map(lambda x: jnp.zeros((total, *x.shape), x.dtype), blank),
        table=empty_table(total),
    )
    kept = jax.lax.while_loop(lambda kept: jnp.any(is_open(kept)), try_batch, nothing)
    return _in_order(kept, plan, size, num_agents, boards_of_each, C, options)


def _plan(
    params: LakeParams,
    size: jax.Array,
    holes: jax.Array,
    num_agents: jax.Array,
    n: jax.Array,
    options: _Options,
) -> _Plan:
    C, S = params.size.shape
    G = C * S
    boards = jax.vmap(partial(mixture.board_counts, n=n))(params)
    waits = jax.vmap(mixture.wait_counts)(params, boards)
    counts = jnp.stack([boards - waits, waits], axis=-1).reshape(G, _KINDS)

    feasible = (size >= mixture.MIN_SIZE) & (size <= options.max_size)
    feasible &= (num_agents >= mixture.MIN_AGENTS) & (num_agents <= options.max_agents)
    feasible &= (holes >= 0) & (holes + 2 * num_agents <= size * size)

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
    B: int, kept: _Kept, plan: _Plan, open_streams: jax.Array, max_candidates: jax.Array
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
    kept: _Kept,
    lanes: _Lanes,
    ends: jax.Array,
    codes: jax.Array,
    solutions: Solution,
    plan: _Plan,
    max_candidates: jax.Array,
) -> _Kept:
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
    return _Kept(
        drawn=jnp.minimum(kept.drawn + lanes_of_stream, max_candidates),
        filled=filled,
        seen=kept.seen + by_stream(seen.astype(jnp.int32), lanes.stream),
        number=put(kept.number, lanes.number),
        codes=stored,
        solutions=jax.tree.map(put, kept.solutions, solutions),
        table=insert(kept.table, stored, named, slot, taken)[0],
    )


def _in_order(
    kept: _Kept,
    plan: _Plan,
    size: jax.Array,
    num_agents: jax.Array,
    n: jax.Array,
    C: int,
    options: _Options,
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
