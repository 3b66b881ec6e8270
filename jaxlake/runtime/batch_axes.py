"""Batch functions that remain a single call under `jax.vmap`."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")


def merge_batch_axes(function: Callable[..., T]) -> Callable[..., T]:
    """Return a batch function whose vmap rule merges further batch axes into its own.

    Args:
        function: Maps positional arguments with leaves (B, ...) to results with leaves (B, ...).

    Returns:
        The function. Under `jax.vmap` over n elements it receives leaves (n * B, ...); unmapped
        arguments are repeated.
    """
    merged = jax.custom_batching.custom_vmap(_without_varying_axes(function))

    @merged.def_vmap
    def rule(axis_size: int, in_batched: list[Any], *arguments: Any) -> tuple[Any, Any]:
        def flatten(leaf: jax.Array, batched: bool) -> jax.Array:
            wide = leaf if batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
            return wide.reshape(-1, *wide.shape[2:])

        flat = jax.tree.map(flatten, arguments, tuple(in_batched))
        first, batched = jax.tree.leaves(arguments)[0], jax.tree.leaves(in_batched)[0]
        B = first.shape[1 if batched else 0]  # empty results would not reveal it
        split = jax.tree.map(
            lambda leaf: leaf.reshape(axis_size, B, *leaf.shape[1:]), merged(*flat)
        )
        return split, jax.tree.map(lambda _: True, split)

    return merged


def _without_varying_axes(function: Callable[..., T]) -> Callable[..., T]:
    """Return a collective-free function that `jax.shard_map` accepts with `check_vma=True`.

    With that default, JAX requires loop carries to vary over the same device axes on entry and
    on exit.
    """

    def call(*arguments: Any) -> T:
        if not jax.sharding.get_abstract_mesh().manual_axes:
            return function(*arguments)

        def unchecked(*arguments: Any) -> T:
            # In this context, results have types without varying device axes.
            return function(*jax.tree.map(partial(_same_if, np.True_), arguments))

        everywhere = jax.sharding.PartitionSpec()
        results = jax.shard_map(
            unchecked,
            in_specs=everywhere,
            out_specs=everywhere,
            axis_names=frozenset(),
            check_vma=False,
        )(*arguments)
        # The result types do not record that they vary as the arguments do; add that here.
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
