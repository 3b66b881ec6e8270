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
    buffers: V,
) -> tuple[U, V]:
    """Do some work for the wanted lanes, `width` of them at a time; the others cost nothing.

    A loop runs until its slowest lane is done, so lanes of similar length share one: `length`,
    integers (B,), estimates how long each will take.

    `work` maps operands, leaves (..., width), and the buffers to results, leaves (..., width), and
    the buffers for the next chunk, so that they are allocated once; None is allowed. The last
    chunk is filled up with lanes that are not wanted, or are done twice. Gives leaves (..., B), the
    results of at least all wanted lanes and elsewhere `blank`, and the buffers.
    """
    B = wanted.shape[0]
    order = jnp.argsort(jnp.where(wanted, length, jnp.iinfo(length.dtype).max)).astype(jnp.int32)
    chunks = -(-jnp.sum(wanted, dtype=jnp.int32) // width)

    def do_chunk(i: jax.Array, state: tuple[U, V]) -> tuple[U, V]:
        results, buffers = state
        lanes = jax.lax.dynamic_slice_in_dim(order, jnp.minimum(i * width, B - width), width)
        new, buffers = work(jax.tree.map(lambda leaf: leaf[..., lanes], operands), buffers)
        put = jax.tree.map(lambda leaf, done: leaf.at[..., lanes].set(done), results, new)
        return put, buffers

    return jax.lax.fori_loop(0, chunks, do_chunk, (blank, buffers))
