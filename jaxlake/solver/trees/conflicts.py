"""Conflicts between paths, and the choice of the conflict to split on."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.pairs.arrivals import Stair
from jaxlake.solver.pairs.bounds import agent_pairs

FORCED = 1 << 14
"""Flag added to a cell of a path: all earliest paths of the agent use that cell at that time."""

NONE, VERTEX, SWAP, TARGET, ARRIVAL = range(5)


class PathConflict(NamedTuple):
    """Two agents that meet, swap, pass a resting agent or arrive too early, int16 (B,) each."""

    first: jax.Array  # the agent that the first child constrains and replans
    second: jax.Array  # the agent of the second child; for TARGET the agent at rest
    kind: jax.Array  # NONE, VERTEX, SWAP, TARGET or ARRIVAL
    time: jax.Array
    first_cell: jax.Array  # cells of both at `time`; for ARRIVAL the earliest arrivals that the
    #   children allow
    second_cell: jax.Array
    first_next_cell: jax.Array  # cells of both at `time` + 1
    second_next_cell: jax.Array


def choose_conflict(
    paths: jax.Array, costs: jax.Array, total: jax.Array, bound: jax.Array
) -> tuple[PathConflict, jax.Array]:
    """Return the conflict to split on, and the number of conflicts, int16 (B,).

    Cardinal conflicts come first (both children cost more), then semi-cardinal ones, then the
    earliest.

    Args:
        paths: int16 (K, T + 1, B), cells, with FORCED.
        costs: int16 (K, B), last arrivals.
        total: bool (B,), whether the bound is on the sum of costs; else on the makespan.
        bound: int16 (B,), the current bound.
    """
    K, times, B = paths.shape
    T = times - 1
    pairs = agent_pairs(K)
    # Conflicts are encoded as numbers, from the highest bit on: how many children cost more, plus
    # 1; T - time in `clock` bits; the pair in 4 bits; whether it is a swap.
    clock = 8 if T < 256 else 13
    width = jnp.int16 if T < 256 else jnp.int32
    cells = paths & (FORCED - 1)
    # With a bound on the makespan, an agent that arrives before the bound can detour at no cost.
    tight = total | (costs == bound)
    forced = ((paths & FORCED) != 0) & tight[:, None]
    t = np.arange(T)[:, None]
    at_rest = t >= costs[:, None]
    forced_move = forced[:, :-1] & forced[:, 1:]
    # Reduce over all pairs, then over all times: two reductions instead of two per pair.
    keys = jnp.zeros((T, B), width)
    conflicts = jnp.zeros((T, B), jnp.int16)
    for p, (i, j) in enumerate(pairs):
        meets = cells[i, :-1] == cells[j, :-1]
        swap = (cells[i, :-1] == cells[j, 1:]) & (cells[i, 1:] == cells[j, :-1]) & ~meets
        vertex_rank = (forced[i, :-1] | at_rest[i]).astype(width) + (
            forced[j, :-1] | at_rest[j]
        ).astype(width)
        swap_rank = forced_move[i].astype(width) + forced_move[j].astype(width)
        rank = 1 + jnp.where(meets, vertex_rank, swap_rank)
        pair_code = width(2 * p) | swap.astype(width)
        key = (rank << (5 + clock)) | ((T - t).astype(width) << 5) | pair_code
        keys = jnp.maximum(keys, jnp.where(meets | swap, key, width(0)))
        conflicts += meets | swap
    best = jnp.max(keys, axis=0)
    count = jnp.sum(conflicts, axis=0, dtype=jnp.int16)

    b = jnp.arange(B)
    time = jnp.clip(T - ((best >> 5) & ((1 << clock) - 1)), 0, T - 1).astype(jnp.int16)
    pair = jnp.clip((best >> 1) & 15, 0, len(pairs) - 1)
    first, second = (
        jnp.asarray(np.array(side, np.int16))[pair] for side in zip(*pairs, strict=True)
    )
    first_rests = time >= costs[first, b]
    second_rests = time >= costs[second, b]
    is_swap = (best & 1) != 0
    kind = jnp.where(is_swap, SWAP, jnp.where(first_rests | second_rests, TARGET, VERTEX))
    # First comes the child that probably costs nothing: the one that replans a moving agent, or an
    # agent whose cell is not forced.
    choice = forced[first, time, b] & ~forced[second, time, b]
    flip = jnp.where(kind == TARGET, first_rests, choice)
    first, second = jnp.where(flip, second, first), jnp.where(flip, first, second)
    conflict = PathConflict(
        first=first,
        second=second,
        kind=jnp.where(best > 0, kind, NONE).astype(jnp.int16),
        time=time,
        first_cell=cells[first, time, b],
        second_cell=cells[second, time, b],
        first_next_cell=cells[first, time + 1, b],
        second_next_cell=cells[second, time + 1, b],
    )
    return conflict, count


def arrival_conflict(
    stairs: Sequence[Stair], excesses: Sequence[jax.Array], solo_distances: Sequence[jax.Array]
) -> PathConflict:
    """Return the pair with the largest inevitable delay: one of the two agents arrives late.

    The kind is NONE if all pairs may arrive as they do. `stairs` are looked up at `excesses`, int
    (B,) each: the delay of each agent relative to `solo_distances`.
    """
    zero = jnp.zeros_like(excesses[0])
    best, first, second, early, late = (zero,) * 5
    for stair, (i, j) in zip(stairs, agent_pairs(len(excesses)), strict=True):
        rise, other_rise = stair.foot - excesses[i], stair.top - excesses[j]
        least = jnp.where(rise > 0, jnp.minimum(rise, other_rise), 0)
        better = least > best
        flip = rise > other_rise
        best = jnp.where(better, least, best)
        first_arrival, second_arrival = (
            stair.foot + solo_distances[i],
            stair.top + solo_distances[j],
        )
        first = jnp.where(better, jnp.where(flip, j, i), first)
        second = jnp.where(better, jnp.where(flip, i, j), second)
        early = jnp.where(better, jnp.where(flip, second_arrival, first_arrival), early)
        late = jnp.where(better, jnp.where(flip, first_arrival, second_arrival), late)
    kind = jnp.where(best > 0, ARRIVAL, NONE)
    fields = (first, second, kind, zero, early, late, zero, zero)
    return PathConflict(*(field.astype(zero.dtype) for field in fields))
