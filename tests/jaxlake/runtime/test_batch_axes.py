"""Functions of a whole batch under `jax.vmap` and `jax.shard_map`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.runtime.batch_axes import merge_batch_axes

MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",))
ROWS = jax.sharding.PartitionSpec("rows")
on_devices = partial(jax.shard_map, mesh=MESH, in_specs=ROWS, out_specs=ROWS)


@merge_batch_axes
def _doubled(keys, values):
    """Double values (B,) in a loop that begins with a constant, and return the keys."""
    zeros = jnp.zeros(values.shape, values.dtype)
    return keys, jax.lax.fori_loop(0, 2, lambda _, total: total + values, zeros)


def test_merge_batch_axes_works_under_shard_map():
    keys, values = jax.random.split(jax.random.key(0), (4, 3)), np.arange(12.0).reshape(4, 3)
    same, doubled = jax.jit(on_devices(jax.vmap(_doubled)))(keys, values)
    assert (same == keys).all()
    assert np.array_equal(doubled, 2 * values)
