"""Checks and conversions of random keys."""

from typing import Any

import jax
import numpy as np

_BATCH_DEPENDENT_KINDS = ("rbg", "unsafe_rbg")


def check_typed_key(key: Any) -> None:
    """Raise `TypeError` or `ValueError` unless `key` is one typed PRNG key."""
    if not is_typed_key(key):
        kind = f"{key.dtype} {key.shape}" if hasattr(key, "dtype") else type(key).__name__
        raise TypeError(f"key must be a typed key such as jax.random.key(0), got {kind}")
    if key.shape:
        raise ValueError(f"key must have shape (), got {key.shape}; use jax.vmap for several keys")


def check_key(key: Any) -> None:
    """Check that `key` is one typed PRNG key of a kind that keeps draws reproducible.

    Under `jax.vmap`, JAX draws for a whole batch from the first key if the keys have kind `rbg` or
    `unsafe_rbg`. Boards would then depend on the batch size and on the number of devices.

    Raises:
        TypeError: `key` is not a typed key.
        ValueError: `key` holds several keys, or has kind `rbg` or `unsafe_rbg`.
    """
    check_typed_key(key)
    kind = str(jax.random.key_impl(key))
    if kind in _BATCH_DEPENDENT_KINDS:
        raise ValueError(
            f"key must be of a kind with independent draws under jax.vmap, got {kind}; use "
            'jax.random.key(0, impl="threefry2x32")'
        )


def to_typed_key(key: jax.Array) -> jax.Array:
    """Convert a raw key, which scripts for gymnax and JaxMARL may pass, to a typed key."""
    return jax.random.wrap_key_data(key) if getattr(key, "dtype", None) == np.uint32 else key


def is_typed_key(value: Any) -> bool:
    """Return whether a value is an array of typed PRNG keys."""
    return jax.dtypes.issubdtype(getattr(value, "dtype", None), jax.dtypes.prng_key)


@jax.jit
def fold_in_each(key: jax.Array, indices: jax.Array) -> jax.Array:
    """Return the keys `jax.random.fold_in(key, i)` for all i in `indices`, (n,)."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, indices)


def threefry_key(seed: int) -> jax.Array:
    """Return a threefry key (), whichever kind of key is JAX's default."""
    return jax.random.key(seed, impl="threefry2x32")
