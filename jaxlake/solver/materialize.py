"""Storage of intermediate values that XLA would otherwise recompute in every consumer.

On CPUs, XLA drops optimisation barriers before fusion but stores the results of a conditional.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")


def materialize(values: T, opaque_true: jax.Array) -> T:
    """Return the same values, stored before first use (on CPUs only).

    `opaque_true`, bool (), is always True. The compiler must not be able to prove this.
    """
    return jax.lax.platform_dependent(
        values, opaque_true, cpu=_stored, default=lambda same, _: same
    )


def materialize_call(compute: Callable[..., T], opaque_true: jax.Array, *operands: Any) -> T:
    """Return `compute(*operands)`, stored before first use (on CPUs only); do not nest."""

    def stored(opaque_true: jax.Array, *operands: Any) -> T:
        shapes = jax.eval_shape(compute, *operands)

        def zeros(*_: Any) -> T:
            return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        return jax.lax.cond(opaque_true, compute, zeros, *operands)

    def inline(_: jax.Array, *operands: Any) -> T:
        return compute(*operands)

    return jax.lax.platform_dependent(opaque_true, *operands, cpu=stored, default=inline)


def _stored(values: T, opaque_true: jax.Array) -> T:
    return jax.lax.cond(
        opaque_true, lambda same: same, lambda same: jax.tree.map(jnp.zeros_like, same), values
    )
