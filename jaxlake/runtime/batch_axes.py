"""Functions of a whole batch that stay one call under `jax.vmap`."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")


def merge_batch_axes(function: Callable[..., T]) -> Callable[..., T]:
    """Give a function of a batch a vmap rule that merges further batch axes into its own.

    The function maps positional arguments with leaves (B, ...) to results with leaves (B, ...).
    Under `jax.vmap` over n elements it is called with leaves (n * B, ...); arguments that are not
    mapped are repeated.
    """
    merged = jax.custom_batching.custom_vmap(_without_varying_axes(function))

    @merged.def_vmap
    def rule(axis_size: int, in_batched: list[Any], *arguments: Any) -> tuple[Any, Any]:
        def flatten(leaf: jax.Array, batched: bool) -> jax.Array:
            wide = leaf if batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
            return wide.reshape(-1, *wide.shape[2:])

        flat = jax.tree.map(flatten, arguments, tuple(in_batched))
        first, batched = jax.tree.leaves(arguments)[0], jax.tree.leaves(in_batched)[0]
        B = first.shape[1 if batched else 0]  # not to be told from the results of no elements
        split = jax.tree.map(
            lambda leaf: leaf.reshape(axis_size, B, *leaf.shape[1:]), merged(*flat)
        )
        return split, jax.tree.map(lambda _: True, split)

    return merged


def _without_varying_axes(function: Callable[..., T]) -> Callable[..., T]:
    """Let `jax.shard_map` with its default, `check_vma=True`, take a function without collectives.

    There JAX asks loops to begin with values that vary over devices where they end with some.
    """

    def call(*arguments: Any) -> T:
        if not jax.sharding.get_abstract_mesh().manual_axes:
            return function(*arguments)

        def unchecked(*arguments: Any) -> T:
            # Here, what an operation returns has a type that names no device axes.
            return function(*jax.tree.map(partial(_same_if, np.True_), arguments))

        everywhere = jax.sharding.PartitionSpec()
        results = jax.shard_map(
            unchecked,
            in_specs=everywhere,
            out_specs=everywhere,
            axis_names=frozenset(),
            check_vma=False,
        )(*arguments)
        # The types of the results don't say that they vary as the arguments do; this adds it.
        leaves = map(_as_numbers, jax.tree.leaves(arguments))
        varies = sum((jnp.sum(leaf != leaf[:1], dtype=jnp.int32) for leaf in leaves), jnp.int32(0))
        return jax.tree.map(partial(_same_if, varies >= 0), results)

    return call


def _same_if(condition: Any, leaf: jax.Array) -> jax.Array:
    if _is_key(leaf):
        data = _same_if(condition, jax.random.key_data(leaf))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    return jnp.where(condition, leaf, leaf)


def _as_numbers(leaf: jax.Array) -> jax.Array:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _is_key(leaf: jax.Array) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
