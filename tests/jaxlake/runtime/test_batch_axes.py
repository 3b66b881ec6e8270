"""Batch functions under `jax.vmap` and `jax.shard_map`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.runtime.batch_axes import merge_batch_axes

MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",))
ROWS = jax.sharding.PartitionSpec("rows")
shard_rows = partial(jax.shard_map, mesh=MESH, in_specs=ROWS, out_specs=ROWS)


@merge_batch_axes
def _double(keys, values):
    """Return the keys and twice the values (B,), computed in a loop."""
    zeros = jnp.zeros(values.shape, values.dtype)
    return keys, jax.lax.fori_loop(0, 2, lambda _, total: total + values, zeros)


def test_merge_batch_axes_supports_shard_map():
    keys, values = jax.random.split(jax.random.key(0), (4, 3)), np.arange(12.0).reshape(4, 3)
    returned_keys, doubled = jax.jit(shard_rows(jax.vmap(_double)))(keys, values)
    assert (returned_keys == keys).all()
    assert np.array_equal(doubled, 2 * values)


def test_merge_batch_axes_keeps_shared_arguments_whole():
    scale = merge_batch_axes(lambda values, factor: factor * values, num_shared=1)
    values, factors = np.arange(12.0).reshape(4, 3), np.arange(4.0)
    assert np.array_equal(jax.vmap(scale, (0, None))(values, 2.0), 2 * values)
    assert np.array_equal(jax.vmap(scale)(values, factors), factors[:, None] * values)
    scale_shards = shard_rows(lambda values, factor: scale(values, factor[0]))
    assert np.array_equal(jax.jit(scale_shards)(values, jnp.full(1, 3.0)), 3 * values)
