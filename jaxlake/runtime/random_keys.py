"""Random keys that the lake accepts."""

import jax

_DRAW_FROM_FIRST_KEY = ("rbg", "unsafe_rbg")


def check_kind(key: jax.Array) -> None:
    """Raise `ValueError` if a typed PRNG key has a kind that breaks reproducibility.

    Under `jax.vmap`, JAX draws for a whole batch from the first key if the keys have kind `rbg` or
    `unsafe_rbg`. Boards would then depend on the batch size and on the number of devices.
    """
    if not jax.dtypes.issubdtype(getattr(key, "dtype", None), jax.dtypes.prng_key):
        return
    kind = str(jax.random.key_impl(key))
    if kind in _DRAW_FROM_FIRST_KEY:
        raise ValueError(
            f"key: got kind {kind}, but JAX draws a whole batch from the first key of that kind; "
            'use another kind, such as jax.random.key(0, impl="threefry2x32")'
        )


def threefry_key(seed: int) -> jax.Array:
    """Return a threefry key (), JAX's default kind, regardless of the user's configuration."""
    return jax.random.key(seed, impl="threefry2x32")
