"""Every random number of a run follows from its seed, a stream and a place in the run.

So a resumed run draws what an uninterrupted one does, and no draw depends on an earlier one.
"""

from __future__ import annotations

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
"""What random numbers are used for, and the number that tells its keys apart."""


def key_for(seed: int, stream: str, *place: int) -> jax.Array:
    """Return the typed JAX key for a stream of a run at a place such as (stage, update)."""
    key = jax.random.fold_in(threefry_key(seed), STREAMS[stream])
    for number in place:
        key = jax.random.fold_in(key, number)
    return key


def seed_for(seed: int, stream: str, *place: int) -> int:
    """Return the seed for NumPy and vLLM at such a place: an integer below 2**63."""
    return seed_of(key_for(seed, stream, *place))


def seed_of(key: jax.Array) -> int:
    """Return the seed for NumPy and others that a typed JAX key stands for: below 2**63."""
    high, low = jax.random.key_data(key).tolist()[-2:]
    return ((high << 32) | low) >> 1
