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


def generate_lakes(num_agents: int) -> jaxlake.Generated:
    params = jaxlake.lake_params([4, 5], 0.2, 0.2 * (num_agents > 1), num_agents)
    return jaxlake.generate(KEY, params, 64, max_size=5, max_agents=num_agents)


def sweep_lakes(lakes: jaxlake.Generated) -> object:
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], lakes)
    policies = [ShortestPathPolicy()]
    return sweep(KEY, policies, batch.instances, batch.solutions, batch.filled)


def step_lakes(lakes: jaxlake.Generated) -> object:
    """Reset an environment of these boards and take a step."""
    environment, params = LakeEnvironment(), env_params(lakes.instances, filled=lakes.filled)
    observation, state = environment.reset(KEY, params)
    return observation, environment.step(KEY, state, np.array([1, 3], np.int8), params)


@pytest.mark.parametrize("num_agents", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_x64_keeps_dtypes_of_boards_and_solutions(num_agents: int):
    expected = jax.eval_shape(partial(generate_lakes, num_agents))
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # a scatter that cuts its values to fit
        actual = jax.eval_shape(partial(generate_lakes, num_agents))
    assert actual == expected


@pytest.mark.slow
def test_x64_keeps_values_of_boards_and_rollouts():
    def run_all_programs() -> object:
        lakes = generate_lakes(2)
        return jax.device_get((lakes, sweep_lakes(lakes), step_lakes(lakes)))

    expected = run_all_programs()
    with jax.enable_x64(True):
        actual = run_all_programs()
    for expected_leaf, leaf in zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True):
        assert expected_leaf.dtype == leaf.dtype
        np.testing.assert_array_equal(expected_leaf, leaf)
