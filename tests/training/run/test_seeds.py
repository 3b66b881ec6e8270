"""Keys and seeds depend only on the run's seed and the place."""

import jax

from training.run.seeds import derive_key, derive_seed


def test_derive_key_is_independent_of_the_default_prng():
    key, seed = derive_key(7, "pool", 2), derive_seed(7, "pool", 2)
    with jax.default_prng_impl("rbg"):
        assert (jax.random.key_data(derive_key(7, "pool", 2)) == jax.random.key_data(key)).all()
        assert derive_seed(7, "pool", 2) == seed
