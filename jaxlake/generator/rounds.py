"""Rounds that fill a pool: draw candidates, solve them, and keep those that fit."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.instance import Instance
from jaxlake.generator.board_parts import draw_into_part
from jaxlake.generator.candidates import decode, draw_codes
from jaxlake.generator.code_table import contains, empty_table, insert
from jaxlake.generator.mixture import LakeParams
from jaxlake.generator.pool import (
    KINDS,
    Generated,
    Kept,
    PoolOptions,
    Setting,
    batch_size_for,
    put_in_order,
    set_up,
)
from jaxlake.runtime.cpu_devices import jit_search
from jaxlake.solver import Solution, Status, solve_batch
from jaxlake.solver.many_slots import candidate_budgets
from jaxlake.solver.tiers import solve_boards

SMALL_SET = 4096
"""Slots up to which generating a set takes less time than compiling its programs."""

Pool = Callable[[jax.Array, LakeParams, jax.Array, jax.Array, jax.Array], Generated]


class Lanes(NamedTuple):
    """One candidate per lane, ordered by stream and by candidate within a stream."""

    stream: jax.Array  # int32 (B,)
    number: jax.Array  # int32 (B,), number of the candidate
    valid: jax.Array  # bool (B,), False beyond max_candidates and outside the requested part
    first: jax.Array  # int32 (B,), first lane of the same stream
    ends: jax.Array  # int32 (G,), end of each stream's lanes


class Candidates(NamedTuple):
    """Boards of a round's lanes."""

    codes: jax.Array  # uint32 (B, V)
    own: jax.Array  # bool (B,), whether the board belongs to the requested part
    boards: Instance  # leaves (B, ...)
    budgets: jax.Array  # int32 (B,), replanned agents allowed per search


Examined = tuple[jax.Array, jax.Array, Solution]
"""`codes` and `own` of a round's candidates, and their solutions, leaves (B, ...)."""


def fill_pool(
    keys: jax.Array,
    params: LakeParams,
    n: jax.Array,
    most: jax.Array,
    part: jax.Array,
    options: PoolOptions,
    axis_name: str | None = None,
) -> Generated:
    """Return a `Generated` with leaves (C, ...) of M slots for keys (C,) and params (C, S).

    `n`, `part` and `most`, the candidates of a stream before giving up, are int32 (C,) with equal
    entries. With a device axis `axis_name`, each device processes its share of the lanes.
    """
    setting, begun = set_up(keys, params, n, most, part, options)
    B = _lanes_of(setting, options)

    def examine(stream: jax.Array, number: jax.Array) -> Examined:
        drawn = _draw(setting, stream, number, options)
        solutions = solve_batch(
            drawn.boards,
            horizon=options.horizon,
            max_expansions=drawn.budgets,
            widths=options.widths,
        )
        return drawn.codes, drawn.own, solutions

    def examine_all(stream: jax.Array, number: jax.Array) -> Examined:
        """Examine all lanes; with a device axis, examine a share per device and gather."""
        if axis_name is None:
            return examine(stream, number)
        share = B // jax.lax.axis_size(axis_name)
        start = jax.lax.axis_index(axis_name) * share
        own = (jax.lax.dynamic_slice_in_dim(leaf, start, share) for leaf in (stream, number))
        return jax.lax.all_gather(examine(*own), axis_name, tiled=True)

    def make_round(kept: Kept) -> Kept:
        lanes = _next_lanes(B, setting, kept)
        return _keep(setting, kept, lanes, examine_all(lanes.stream, lanes.number))

    kept = jax.lax.while_loop(lambda kept: jnp.any(_is_open(setting, kept)), make_round, begun)
    return put_in_order(setting, kept, n, options)


def fill_by_parts(options: PoolOptions) -> Pool:
    """Return an eager, single-device equivalent of `fill_pool` that runs separate programs."""
    # The code around the solver runs equally fast when compiled at a low optimisation level.
    begin = jit_search(partial(_begin, options=options)).lightly
    draw = jit_search(partial(_begin_round, options=options)).lightly
    keep = jit_search(_end_round, donate_argnames="kept").lightly
    order = jit_search(partial(put_in_order, options=options)).lightly
    lightly = options.slots <= SMALL_SET

    def fill(
        keys: jax.Array, params: LakeParams, n: jax.Array, most: jax.Array, part: jax.Array
    ) -> Generated:
        setting, kept, more = begin(keys, params, n, most, part)
        while more:
            lanes, drawn = draw(setting, kept)
            solutions = solve_boards(
                drawn.boards, drawn.budgets, options.horizon, options.widths, lightly=lightly
            )
            examined = (drawn.codes, drawn.own, solutions)
            kept, more = keep(setting, kept, lanes, examined)
        return order(setting, kept, n)

    return fill


def _begin(
    keys: jax.Array,
    params: LakeParams,
    n: jax.Array,
    most: jax.Array,
    part: jax.Array,
    options: PoolOptions,
) -> tuple[Setting, Kept, jax.Array]:
    setting, kept = set_up(keys, params, n, most, part, options)
    return setting, kept, jnp.any(_is_open(setting, kept))


def _begin_round(setting: Setting, kept: Kept, options: PoolOptions) -> tuple[Lanes, Candidates]:
    lanes = _next_lanes(_lanes_of(setting, options), setting, kept)
    return lanes, _draw(setting, lanes.stream, lanes.number, options)


def _end_round(
    setting: Setting, kept: Kept, lanes: Lanes, examined: Examined
) -> tuple[Kept, jax.Array]:
    kept = _keep(setting, kept, lanes, examined)
    return kept, jnp.any(_is_open(setting, kept))


def _lanes_of(setting: Setting, options: PoolOptions) -> int:
    """Return B, the number of candidates examined at once."""
    total = setting.plan.cell_of_slot.shape[0]
    return options.batch_size or batch_size_for(total, options.widths)


def _is_open(setting: Setting, kept: Kept) -> jax.Array:
    """Return which streams miss boards and have candidates left, bool (G,)."""
    missing = jnp.any(kept.filled < setting.plan.room, axis=1)
    return missing & (kept.drawn < setting.most)


def _draw(
    setting: Setting, stream: jax.Array, number: jax.Array, options: PoolOptions
) -> Candidates:
    """Return the candidates of some lanes. Filters before the solver belong here."""
    shapes = {"max_size": options.max_size, "max_agents": options.max_agents}
    keys, agents, size = setting.streams[stream], setting.num_agents[stream], setting.size[stream]
    codes = draw_codes(keys, number, size, setting.holes[stream], agents, **shapes)
    own = jnp.ones(number.shape, bool)
    if options.parts > 1:
        part = (setting.part, options.parts)
        codes, own = draw_into_part(keys, number, codes, size, agents, part, **shapes)
    boards = decode(codes, size, agents, **shapes)
    return Candidates(codes, own, boards, candidate_budgets(boards))


def _next_lanes(B: int, setting: Setting, kept: Kept) -> Lanes:
    """Distribute B lanes over the open streams."""
    ends = _share_out(B, setting, kept)
    lane = jnp.arange(B, dtype=jnp.int32)
    stream = jnp.searchsorted(ends, lane, side="right").astype(jnp.int32)
    first = jnp.concatenate([jnp.zeros(1, jnp.int32), ends[:-1]])[stream]
    number = kept.drawn[stream] + lane - first
    return Lanes(stream, number, number < setting.most, first, ends)


def _share_out(B: int, setting: Setting, kept: Kept) -> jax.Array:
    """Return the end of each stream's range of lanes, int32 (G,)."""
    # Expected number of candidates that a stream still needs (Laplace's rule of succession).
    missing = (setting.plan.room - kept.filled).astype(jnp.float32)
    rate = (kept.filled + 1) / (kept.drawn[:, None] + 2)
    left = (setting.most - kept.drawn).astype(jnp.float32)
    need = jnp.where(_is_open(setting, kept), jnp.minimum(jnp.max(missing / rate, axis=1), left), 0)
    # Integer weights make the sums exact, so that a closed stream gets no lane.
    weight = jnp.ceil(need / jnp.sum(need) * (1 << 20)).astype(jnp.int32)
    upto = jnp.cumsum(weight, dtype=jnp.int32)
    return jnp.floor(upto / upto[-1] * B).astype(jnp.int32)


def _keep(setting: Setting, kept: Kept, lanes: Lanes, examined: Examined) -> Kept:
    """Put fitting candidates into slots, in order, and count up to a stream's last one."""
    codes, own, solutions = examined
    plan, ends = setting.plan, lanes.ends
    lanes = lanes._replace(valid=lanes.valid & own)
    G, total = plan.stream.shape[0], kept.number.shape[0]
    lane = jnp.arange(lanes.stream.shape[0], dtype=jnp.int32)
    named = jnp.concatenate([codes, lanes.stream[:, None].astype(jnp.uint32)], axis=1)
    solvable = lanes.valid & (solutions.status == Status.OPTIMAL)
    in_slot = contains(kept.table, kept.codes, named, solvable)
    _, equal = insert(empty_table(lane.size), named, named, lane, solvable & ~in_slot)

    kind = solutions.needs_wait.astype(jnp.int32)
    fits = (solvable & ~in_slot & (equal == lane))[:, None] & (kind[:, None] == np.arange(KINDS))
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
        drawn=jnp.minimum(kept.drawn + lanes_of_stream, setting.most),
        filled=filled,
        seen=kept.seen + by_stream(seen.astype(jnp.int32), lanes.stream),
        number=put(kept.number, lanes.number),
        codes=stored,
        solutions=jax.tree.map(put, kept.solutions, solutions),
        table=insert(kept.table, stored, named, slot, taken)[0],
    )
