"""Merging of batch axes, so that a batch function stays a single call under `jax.vmap`."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.runtime.random_keys import is_typed_key

T = TypeVar("T")


def merge_batch_axes(function: Callable[..., T], *, num_shared: int = 0) -> Callable[..., T]:
    """Return a batch function that merges the axes of `jax.vmap` into its batch axis.

    Args:
        function: Maps positional arguments with leaves (B, ...) to results with leaves (B, ...).
        num_shared: Number of its last arguments that have no batch axis, such as weights.

    Returns:
        The function. Under `jax.vmap` over n elements it receives leaves (n * B, ...); unmapped
        arguments are repeated. If shared arguments are mapped, it is called once per element.
    """
    batch_function = jax.custom_batching.custom_vmap(_hide_varying_axes(function))

    @batch_function.def_vmap
    def merge_axes(axis_size: int, in_batched: list[Any], *arguments: Any) -> tuple[Any, Any]:
        num_merged = len(arguments) - num_shared
        if any(jax.tree.leaves(in_batched[num_merged:])):
            return _map_sequentially(batch_function, in_batched, arguments)
        arguments, shared_arguments = arguments[:num_merged], arguments[num_merged:]

        def flatten(leaf: jax.Array, is_batched: bool) -> jax.Array:
            mapped = leaf if is_batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
            return mapped.reshape(-1, *mapped.shape[2:])

        flat_arguments = jax.tree.map(flatten, arguments, tuple(in_batched[:num_merged]))
        first_leaf, is_batched = jax.tree.leaves(arguments)[0], jax.tree.leaves(in_batched)[0]
        B = first_leaf.shape[1 if is_batched else 0]  # reshape cannot infer it for empty results
        results = jax.tree.map(
            lambda leaf: leaf.reshape(axis_size, B, *leaf.shape[1:]),
            batch_function(*flat_arguments, *shared_arguments),
        )
        return results, jax.tree.map(lambda _: True, results)

    return batch_function


def _map_sequentially(
    function: Callable[..., Any], in_batched: list[Any], arguments: tuple[Any, ...]
) -> tuple[Any, Any]:
    """Apply a function to one element of the batched arguments after another."""
    leaves, structure = jax.tree.flatten(arguments)
    flags = jax.tree.leaves(in_batched)

    def call(elements: list[jax.Array]) -> Any:
        remaining_elements = iter(elements)
        pairs = zip(leaves, flags, strict=True)
        call_leaves = [next(remaining_elements) if flag else x for x, flag in pairs]
        return function(*jax.tree.unflatten(structure, call_leaves))

    results = jax.lax.map(call, [x for x, flag in zip(leaves, flags, strict=True) if flag])
    return results, jax.tree.map(lambda _: True, results)


def _hide_varying_axes(function: Callable[..., T]) -> Callable[..., T]:
    """Wrap a function so that it also runs inside `jax.shard_map` with `check_vma=True`.

    With this default of JAX, loop carries must vary over the same device axes on entry and on exit.
    The function must not use collectives.
    """

    def wrapper(*arguments: Any) -> T:
        if not jax.sharding.get_abstract_mesh().manual_axes:
            return function(*arguments)

        def run_unchecked(*arguments: Any) -> T:
            # In this context, results have types without varying device axes.
            return function(*jax.tree.map(partial(_identity_where, np.True_), arguments))

        replicated_spec = jax.sharding.PartitionSpec()
        results = jax.shard_map(
            run_unchecked,
            in_specs=replicated_spec,
            out_specs=replicated_spec,
            axis_names=frozenset(),
            check_vma=False,
        )(*arguments)
        # Make the result types vary over the same device axes as the arguments.
        leaves = map(_get_raw_data, jax.tree.leaves(arguments))
        num_differences = sum(
            (jnp.sum(leaf != leaf.ravel()[:1], dtype=jnp.int32) for leaf in leaves), jnp.int32(0)
        )
        varying_true = num_differences >= 0
        return jax.tree.map(partial(_identity_where, varying_true), results)

    return wrapper


def _identity_where(condition: Any, leaf: jax.Array) -> jax.Array:
    """Return the leaf; its type also varies over the device axes of the condition."""
    if is_typed_key(leaf):
        data = _identity_where(condition, jax.random.key_data(leaf))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    return jnp.where(condition, leaf, leaf)


def _get_raw_data(leaf: jax.Array) -> jax.Array:
    return jax.random.key_data(leaf) if is_typed_key(leaf) else leaf
