"""Random keys of a run, derived from its seed, a stream and a place in the run.

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
"""The purposes of random numbers, each with a unique number."""


def derive_key(seed: int, stream: str, *place: int) -> jax.Array:
    """Return the typed JAX key for a stream and a place.

    The stream is a key of `STREAMS`, and the place is, for example, (stage, update).
    """
    key = jax.random.fold_in(threefry_key(seed), STREAMS[stream])
    for number in place:
        key = jax.random.fold_in(key, number)
    return key


def derive_seed(seed: int, stream: str, *place: int) -> int:
    """Return the integer seed below 2**63 for a stream and a place; see `derive_key`."""
    return seed_from_key(derive_key(seed, stream, *place))


def seed_from_key(key: jax.Array) -> int:
    """Return an integer seed below 2**63 for other libraries from a typed JAX key."""
    high, low = jax.random.key_data(key).tolist()[-2:]
    return ((high << 32) | low) >> 1
