"""Spaces: samples are uniform and respect bounds and dtypes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake.environment import Box, Discrete, Tree


def test_joint_actions_are_uniform_and_independent():
    space = Box(0, 4, (3,), jnp.int8)
    samples = jax.vmap(space.sample)(jax.random.split(jax.random.key(0), 25_000))
    assert samples.dtype == jnp.int8
    assert samples.shape == (25_000, 3)
    joint_actions = np.asarray(samples, int) @ [25, 5, 1]
    counts = np.bincount(joint_actions, minlength=125)
    # Chi-square with 124 degrees of freedom is above 190 once in ten thousand.
    assert ((counts - 200) ** 2 / 200).sum() < 190


@pytest.mark.parametrize(
    "space",
    [
        Box(-3, 3, (4, 2), jnp.int8),
        Box(0, 1, (50,), bool),
        Box(0, 2**10 - 1, (30,), jnp.uint32),
        Box(0, 2**32 - 1, (30,), jnp.uint32),
        Box(0, 2**31 - 1, (30,), jnp.int32),
        Box(-1.0, 2.0, (30,), jnp.float32),
    ],
)
def test_space_samples_are_contained_and_diverse(space):
    samples = jax.vmap(space.sample)(jax.random.split(jax.random.key(1), 20))
    assert samples.dtype == space.dtype
    assert all(bool(space.contains(value)) for value in samples)
    values = np.asarray(samples, np.float64)
    extent = space.high - space.low
    assert values.min() <= space.low + extent / 20
    assert values.max() >= space.high - extent / 20


def test_spaces_exclude_other_shapes_dtypes_and_values():
    space = Box(0, 4, (2,), jnp.int8)
    assert space.contains(jnp.array([0, 4], jnp.int8))
    assert not space.contains(jnp.array([0, 5], jnp.int8))
    assert not space.contains(jnp.array([-1, 0], jnp.int8))
    assert not space.contains(jnp.array([0, 4], jnp.int32))
    assert not space.contains(jnp.array([0, 4, 4], jnp.int8))
    tree = Tree({"a": space, "b": Box(0, 1, (), bool)})
    value = tree.sample(jax.random.key(0))
    assert tree.contains(value)
    assert not tree.contains({"a": value["a"]})
    assert not tree.contains(value | {"a": value["a"] + jnp.int8(5)})


def test_discrete_space_contains_all_integer_types():
    space = Discrete(5)
    for member in (4, np.int64(4), np.uint8(4), jnp.int32(4)):
        assert space.contains(member)
    for non_member in (5, -1, 4.0, True, [4], None, np.array([4])):
        assert not space.contains(non_member)
