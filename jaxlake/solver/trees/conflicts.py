"""Conflicts between paths of K agents in B lanes, and the choice of the conflict to split on."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.pairs.arrivals import Stair
from jaxlake.solver.pairs.bounds import agent_pairs

FORCED = 1 << 14
"""Flag of a path's cell: all earliest paths of the agent are in this cell at this time."""

NONE, VERTEX, SWAP, TARGET, ARRIVAL = range(5)
"""Kinds of conflicts: the agents meet in a cell, swap cells, meet at the goal at which one of them
rests, or cannot both arrive as early as their paths do."""


class PathConflict(NamedTuple):
    """Conflict between the paths of two agents, int16 (B,) each."""

    first: jax.Array  # agent that the first child constrains and replans
    second: jax.Array  # agent of the second child; for TARGET, the resting agent
    kind: jax.Array
    time: jax.Array
    first_cell: jax.Array  # cells at `time`; for ARRIVAL, the children's earliest arrivals
    second_cell: jax.Array
    first_next_cell: jax.Array  # cells at `time` + 1
    second_next_cell: jax.Array


def choose_conflict(
    paths: jax.Array, costs: jax.Array, sum_objective: jax.Array, bound: jax.Array
) -> tuple[PathConflict, jax.Array]:
    """Return the conflict to split on, and the number of conflicts, int16 (B,).

    Cardinal conflicts, where both children cost more, come before semi-cardinal ones, where one
    child costs more, and these before all others. Among equals, the earliest comes first.

    Args:
        paths: int16 (K, T + 1, B), cells at times 0 to T, with FORCED.
        costs: int16 (K, B), last arrivals.
        sum_objective: bool (B,), whether the bound is on the sum of costs; else on the makespan.
        bound: int16 (B,), the current bound.
    """
    K, times, B = paths.shape
    T = times - 1
    pairs = agent_pairs(K)
    # A conflict is encoded as a number, from the highest bits to the lowest: 1 + the number of
    # children that cost more; T - time; the pair, in 4 bits; and whether it is a swap.
    time_bits = 8 if T < 256 else 13
    dtype = jnp.int16 if T < 256 else jnp.int32
    cells = paths & (FORCED - 1)
    # With a bound on the makespan, an agent that arrives before the bound can detour at no cost.
    no_slack = sum_objective | (costs == bound)
    is_forced = ((paths & FORCED) != 0) & no_slack[:, None]
    t = np.arange(T)[:, None]
    is_at_rest = t >= costs[:, None]
    stuck = (is_forced[:, :-1] | is_at_rest).astype(dtype)
    forced_move = (is_forced[:, :-1] & is_forced[:, 1:]).astype(dtype)
    # Reduce over all pairs, then over all times: two reductions instead of two per pair.
    codes = jnp.zeros((T, B), dtype)
    counts = jnp.zeros((T, B), jnp.int16)
    for p, (i, j) in enumerate(pairs):
        meets = cells[i, :-1] == cells[j, :-1]
        swaps = (cells[i, :-1] == cells[j, 1:]) & (cells[i, 1:] == cells[j, :-1]) & ~meets
        rank = 1 + jnp.where(meets, stuck[i] + stuck[j], forced_move[i] + forced_move[j])
        pair_code = dtype(2 * p) | swaps.astype(dtype)
        code = (rank << (5 + time_bits)) | ((T - t).astype(dtype) << 5) | pair_code
        codes = jnp.maximum(codes, jnp.where(meets | swaps, code, dtype(0)))
        counts += meets | swaps
    code = jnp.max(codes, axis=0)
    count = jnp.sum(counts, axis=0, dtype=jnp.int16)

    b = jnp.arange(B)
    time = jnp.clip(T - ((code >> 5) & ((1 << time_bits) - 1)), 0, T - 1).astype(jnp.int16)
    pair = jnp.clip((code >> 1) & 15, 0, len(pairs) - 1)
    first, second = (
        jnp.asarray(np.array(agents, np.int16))[pair] for agents in zip(*pairs, strict=True)
    )
    first_rests = time >= costs[first, b]
    second_rests = time >= costs[second, b]
    is_swap = (code & 1) != 0
    kind = jnp.where(is_swap, SWAP, jnp.where(first_rests | second_rests, TARGET, VERTEX))
    # The first child should be the one that probably costs nothing: it replans the moving agent of
    # a TARGET conflict, or an agent whose cell is not forced.
    only_first_forced = is_forced[first, time, b] & ~is_forced[second, time, b]
    exchange = jnp.where(kind == TARGET, first_rests, only_first_forced)
    first, second = jnp.where(exchange, second, first), jnp.where(exchange, first, second)
    conflict = PathConflict(
        first=first,
        second=second,
        kind=jnp.where(code > 0, kind, NONE).astype(jnp.int16),
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
    """Return the ARRIVAL conflict of the pair with the largest inevitable delay.

    The kind is NONE if all pairs can arrive as early as their paths do.

    Args:
        stairs: For each pair, the bounds of `look_up_stair` for the excesses of its agents.
        excesses: K of int (B,), delays of the agents' paths relative to `solo_distances`.
        solo_distances: K of int (B,), arrival times of the agents alone.
    """
    zero = jnp.zeros_like(excesses[0])
    max_delay, first, second, first_arrival, second_arrival = (zero,) * 5
    for stair, (i, j) in zip(stairs, agent_pairs(len(excesses)), strict=True):
        delay_i, delay_j = stair.foot - excesses[i], stair.top - excesses[j]
        arrival_i, arrival_j = stair.foot + solo_distances[i], stair.top + solo_distances[j]
        delay = jnp.where(delay_i > 0, jnp.minimum(delay_i, delay_j), 0)
        is_max = delay > max_delay
        reverse = delay_i > delay_j
        max_delay = jnp.where(is_max, delay, max_delay)
        first = jnp.where(is_max, jnp.where(reverse, j, i), first)
        second = jnp.where(is_max, jnp.where(reverse, i, j), second)
        first_arrival = jnp.where(is_max, jnp.where(reverse, arrival_j, arrival_i), first_arrival)
        second_arrival = jnp.where(is_max, jnp.where(reverse, arrival_i, arrival_j), second_arrival)
    kind = jnp.where(max_delay > 0, ARRIVAL, NONE)
    fields = (first, second, kind, zero, first_arrival, second_arrival, zero, zero)
    return PathConflict(*(field.astype(zero.dtype) for field in fields))
