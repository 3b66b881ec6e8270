"""The lake's programs are unchanged with JAX's 64-bit types enabled."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxlake
from jaxlake.environment import LakeEnvironment
from jaxlake.environment.params import env_params
from jaxlake.policies import ShortestPathPolicy, sweep

KEY = jax.random.key(3)


def generate(slots: int) -> jaxlake.Generated:
    params = jaxlake.lake_params([4, 5], 0.2, 0.2 * (slots > 1), slots)
    return jaxlake.generate(KEY, params, 64, max_size=5, max_agents=slots)


def sweep_lakes(lakes: jaxlake.Generated) -> object:
    one_cell = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], lakes)
    policies = [ShortestPathPolicy()]
    return sweep(KEY, policies, one_cell.instances, one_cell.solutions, one_cell.filled)


def step_lakes(lakes: jaxlake.Generated) -> object:
    """Reset an environment of these boards and take a step."""
    env, params = LakeEnvironment(), env_params(lakes.instances, filled=lakes.filled)
    observation, state = env.reset(KEY, params)
    return observation, env.step(KEY, state, np.array([1, 3], np.int8), params)


@pytest.mark.parametrize("slots", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_x64_keeps_dtypes_of_boards_and_solutions(slots: int):
    usual = jax.eval_shape(partial(generate, slots))
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # a scatter that cuts its values to fit
        wide = jax.eval_shape(partial(generate, slots))
    assert wide == usual


@pytest.mark.slow
def test_x64_keeps_values_of_boards_and_rollouts():
    def run_all_programs() -> object:
        lakes = generate(2)
        return jax.device_get((lakes, sweep_lakes(lakes), step_lakes(lakes)))

    usual = run_all_programs()
    with jax.enable_x64(True):
        wide = run_all_programs()
    for narrow_leaf, wide_leaf in zip(jax.tree.leaves(usual), jax.tree.leaves(wide), strict=True):
        assert narrow_leaf.dtype == wide_leaf.dtype
        np.testing.assert_array_equal(narrow_leaf, wide_leaf)
