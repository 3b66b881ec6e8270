"""Random keys that the lake accepts."""

from typing import Any

import jax
import numpy as np

_DRAW_FROM_FIRST_KEY = ("rbg", "unsafe_rbg")


def check_typed(key: Any) -> None:
    """Raise `TypeError` or `ValueError` unless `key` is one typed PRNG key."""
    if not _is_typed(key):
        got = f"{key.dtype} {key.shape}" if hasattr(key, "dtype") else type(key).__name__
        raise TypeError(f"key: got {got}, a typed key is needed, such as jax.random.key(0)")
    if key.shape:
        raise ValueError(f"key: got shape {key.shape}, one key is needed (jax.vmap maps over more)")


def check_key(key: Any) -> None:
    """Check that `key` is one typed PRNG key of a kind that keeps draws reproducible.

    Under `jax.vmap`, JAX draws for a whole batch from the first key if the keys have kind `rbg` or
    `unsafe_rbg`. Boards would then depend on the batch size and on the number of devices.

    Raises:
        TypeError: `key` is not a typed key.
        ValueError: `key` holds several keys, or has kind `rbg` or `unsafe_rbg`.
    """
    check_typed(key)
    kind = str(jax.random.key_impl(key))
    if kind in _DRAW_FROM_FIRST_KEY:
        raise ValueError(
            f"key: got kind {kind}, but JAX draws a whole batch from the first key of that kind; "
            'use another kind, such as jax.random.key(0, impl="threefry2x32")'
        )


def typed_key(key: jax.Array) -> jax.Array:
    """Return a raw key, as scripts for gymnax and JaxMARL pass it, as a typed one."""
    return jax.random.wrap_key_data(key) if getattr(key, "dtype", None) == np.uint32 else key


def _is_typed(key: Any) -> bool:
    return jax.dtypes.issubdtype(getattr(key, "dtype", None), jax.dtypes.prng_key)


def threefry_key(seed: int) -> jax.Array:
    """Return a threefry key (), JAX's default kind, regardless of the user's configuration."""
    return jax.random.key(seed, impl="threefry2x32")
