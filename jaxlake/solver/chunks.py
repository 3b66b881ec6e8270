"""Many boards a few at a time: those that need work, the short ones first."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")


def in_chunks(
    work: Callable[[T, V], tuple[U, V]],
    operands: T,
    wanted: jax.Array,
    length: jax.Array,
    blank: U,
    width: int,
    scratch: V,
) -> tuple[U, V]:
    """Do some work for the wanted lanes, `width` of them at a time; the others cost nothing.

    A loop runs until its slowest lane, so lanes of like length share one.

    Args:
        work: maps operands with leaves (..., width) and the scratch space to results with leaves
            (..., width) and the scratch space for the next chunk. The last chunk is filled up
            with lanes that are not wanted, or are done twice.
        operands: leaves (..., B).
        wanted: bool (B,).
        length: integers (B,), how long a lane will take.
        blank: leaves (..., B), what lanes hold that no chunk holds.
        width: lanes at a time, at most B (static).
        scratch: passed from chunk to chunk, so that large buffers are made once; None is allowed.

    Returns:
        Leaves (..., B): the results of at least all wanted lanes, `blank` elsewhere; and the
        scratch space.
    """
    B = wanted.shape[0]
    order = jnp.argsort(jnp.where(wanted, length, jnp.iinfo(length.dtype).max)).astype(jnp.int32)
    chunks = -(-jnp.sum(wanted, dtype=jnp.int32) // width)

    def do_chunk(i: jax.Array, state: tuple[U, V]) -> tuple[U, V]:
        results, scratch = state
        own = jax.lax.dynamic_slice_in_dim(order, jnp.minimum(i * width, B - width), width)
        done, scratch = work(jax.tree.map(lambda leaf: leaf[..., own], operands), scratch)
        put = jax.tree.map(lambda leaf, new: leaf.at[..., own].set(new), results, done)
        return put, scratch

    return jax.lax.fori_loop(0, chunks, do_chunk, (blank, scratch))
