"""Random keys of a run, derived from its seed, a stream and indices such as stage and update.

No draw depends on an earlier one, so a resumed run draws the same numbers as an uninterrupted one.
"""

import jax

from jaxlake.runtime.random_keys import threefry_key

STREAMS = {
    "warm_start": 1,
    "train": 2,
    "sample": 3,
    "design": 4,
    "summary": 5,
    "atlas": 7,
    "pretrain": 8,
    "rehearsal": 9,
    "design_learning": 10,
    "pool": 11,
}
"""The unique number of each stream of random numbers, by name."""


def derive_key(seed: int, stream: str, *indices: int) -> jax.Array:
    """Return the typed JAX key of a run's seed for a stream and indices.

    `stream` is a key of `STREAMS`. The indices identify the draw, such as its stage and update.
    """
    key = jax.random.fold_in(threefry_key(seed), STREAMS[stream])
    for index in indices:
        key = jax.random.fold_in(key, index)
    return key


def derive_seed(seed: int, stream: str, *indices: int) -> int:
    """Return the integer seed below 2**63 for a stream and indices; see `derive_key`."""
    return seed_from_key(derive_key(seed, stream, *indices))


def seed_from_key(key: jax.Array) -> int:
    """Return an integer seed below 2**63 for other libraries from a typed JAX key."""
    high, low = jax.random.key_data(key).tolist()[-2:]
    return ((high << 32) | low) >> 1
