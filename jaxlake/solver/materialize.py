"""Keep XLA from computing a value again for every element that uses it.

XLA fuses element-wise operations into whatever consumes them, and so computes a value anew for
every element of each consumer: a mask of lanes once for each row, time and agent. On CPUs that is
most of the time of a search, and optimisation barriers are dropped before fusion. What goes through
a conditional is stored.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")


def materialize(values: T, true: jax.Array) -> T:
    """Return the same values, stored in memory before anything uses them (on CPUs only).

    `true` is always True, bool (), but in a way that the compiler can't tell.
    """
    return jax.lax.platform_dependent(values, true, cpu=_stored, default=lambda same, _: same)


def _stored(values: T, true: jax.Array) -> T:
    return jax.lax.cond(
        true, lambda same: same, lambda same: jax.tree.map(jnp.zeros_like, same), values
    )
