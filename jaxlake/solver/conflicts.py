"""Where the paths of several agents meet, and on which of these conflicts to split."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.pairs import pairs_of

NARROW = 1 << 14
"""Added to a cell of a path: all earliest paths of the agent are there at that time."""

NONE, VERTEX, SWAP, TARGET = range(4)


class Conflict(NamedTuple):
    """Two agents that can't both do what they do: vertex, swapping or target. int16 (B,) each."""

    one: jax.Array  # whom the first child constrains and replans
    other: jax.Array  # whom the second child does; at a target the one at rest
    kind: jax.Array  # NONE, VERTEX, SWAP or TARGET
    time: jax.Array
    one_here: jax.Array  # cells of both at `time`
    other_here: jax.Array
    one_there: jax.Array  # cells of both at `time` + 1
    other_there: jax.Array


def first_conflict(
    paths: jax.Array, costs: jax.Array, total: jax.Array, bound: jax.Array
) -> tuple[Conflict, jax.Array]:
    """The conflict to split on, and int16 (B,) how many there are.

    Cardinal conflicts first, then semi-cardinal ones, then the earliest.
    """
    K, times, B = paths.shape
    T = times - 1
    pairs = pairs_of(K)
    clock = 8 if T < 256 else 13
    width = jnp.int16 if T < 256 else jnp.int32
    cells = paths & (NARROW - 1)
    # An agent with time to spare has a choice.
    tight = total | (costs == bound)
    narrow = ((paths & NARROW) != 0) & tight[:, None]
    t = np.arange(T)[:, None]
    at_rest = t >= costs[:, None]
    stays = narrow[:, :-1] & narrow[:, 1:]
    best = jnp.zeros(B, width)
    clashes = jnp.zeros(B, jnp.int16)
    for p, (i, j) in enumerate(pairs):
        meets = cells[i, :-1] == cells[j, :-1]
        swap = (cells[i, :-1] == cells[j, 1:]) & (cells[i, 1:] == cells[j, :-1]) & ~meets
        vertex_rank = (narrow[i, :-1] | at_rest[i]).astype(width) + (
            narrow[j, :-1] | at_rest[j]
        ).astype(width)
        swap_rank = stays[i].astype(width) + stays[j].astype(width)
        rank = 1 + jnp.where(meets, vertex_rank, swap_rank)
        which = width(2 * p) | swap.astype(width)
        key = (rank << (5 + clock)) | ((T - t).astype(width) << 5) | which
        best = jnp.maximum(best, jnp.max(jnp.where(meets | swap, key, width(0)), axis=0))
        clashes += jnp.sum(meets | swap, axis=0, dtype=jnp.int16)

    b = jnp.arange(B)
    time = jnp.clip(T - ((best >> 5) & ((1 << clock) - 1)), 0, T - 1).astype(jnp.int16)
    index = jnp.clip((best >> 1) & 15, 0, len(pairs) - 1)
    one, other = (jnp.asarray(np.array(side, np.int16))[index] for side in zip(*pairs, strict=True))
    rests = time >= costs[one, b]
    other_rests = time >= costs[other, b]
    is_swap = (best & 1) != 0
    kind = jnp.where(is_swap, SWAP, jnp.where(rests | other_rests, TARGET, VERTEX))
    # First the child that is likely to cost nothing: whoever moves, or has a choice.
    choice = narrow[one, time, b] & ~narrow[other, time, b]
    turned = jnp.where(kind == TARGET, rests, choice)
    one, other = jnp.where(turned, other, one), jnp.where(turned, one, other)
    return (
        Conflict(
            one=one,
            other=other,
            kind=jnp.where(best > 0, kind, NONE).astype(jnp.int16),
            time=time,
            one_here=cells[one, time, b],
            other_here=cells[other, time, b],
            one_there=cells[one, time + 1, b],
            other_there=cells[other, time + 1, b],
        ),
        clashes,
    )
