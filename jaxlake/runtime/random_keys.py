"""Which keys of random numbers the lake takes."""

import jax

_DRAW_FROM_FIRST_KEY = ("rbg", "unsafe_rbg")


def check_kind(key: jax.Array) -> None:
    """Raise a ValueError if a typed PRNG key is of a kind that breaks what the lake promises.

    Under `jax.vmap`, JAX draws with keys of kind `rbg` and `unsafe_rbg` for a whole batch from its
    first key, so boards would depend on the size of the batch and on the number of devices.
    """
    if not jax.dtypes.issubdtype(getattr(key, "dtype", None), jax.dtypes.prng_key):
        return
    kind = str(jax.random.key_impl(key))
    if kind in _DRAW_FROM_FIRST_KEY:
        raise ValueError(
            f"key: got one of kind {kind}, with which JAX draws for a whole batch from its first "
            'key; another kind is needed, such as jax.random.key(0, impl="threefry2x32")'
        )


def threefry_key(seed: int) -> jax.Array:
    """Return a key () of the kind that JAX makes unless the user set another one."""
    return jax.random.key(seed, impl="threefry2x32")
