"""Storage of intermediate values that XLA on CPUs would otherwise recompute in every consumer.

XLA removes optimization barriers before it fuses operations on CPUs, but it stores the results of a
conditional. The functions therefore compute values inside a conditional that is always true.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")


def materialize(values: T, opaque_true: jax.Array) -> T:
    """Return the same values; on CPUs, store them first.

    Args:
        values: Pytree of arrays.
        opaque_true: bool (), always True in a way that the compiler cannot prove.
    """
    return jax.lax.platform_dependent(values, opaque_true, cpu=_store, default=lambda x, _: x)


def materialize_call(compute: Callable[..., T], opaque_true: jax.Array, *operands: Any) -> T:
    """Return `compute(*operands)`; on CPUs, store the results first. Calls must not be nested."""

    def run_and_store(opaque_true: jax.Array, *operands: Any) -> T:
        shapes = jax.eval_shape(compute, *operands)

        def make_zeros(*_: Any) -> T:
            return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        return jax.lax.cond(opaque_true, compute, make_zeros, *operands)

    def run(_: jax.Array, *operands: Any) -> T:
        return compute(*operands)

    return jax.lax.platform_dependent(opaque_true, *operands, cpu=run_and_store, default=run)


def _store(values: T, opaque_true: jax.Array) -> T:
    return jax.lax.cond(opaque_true, lambda x: x, lambda x: jax.tree.map(jnp.zeros_like, x), values)
