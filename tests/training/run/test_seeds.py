"""Keys and seeds depend only on the run's seed and the place."""

import jax

from training.run.seeds import key_for, seed_for


def test_run_is_independent_of_the_default_prng():
    key, seed = key_for(7, "pool", 2), seed_for(7, "pool", 2)
    with jax.default_prng_impl("rbg"):
        assert (jax.random.key_data(key_for(7, "pool", 2)) == jax.random.key_data(key)).all()
        assert seed_for(7, "pool", 2) == seed
