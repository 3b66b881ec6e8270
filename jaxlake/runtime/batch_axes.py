"""Functions of a whole batch that stay one call under `jax.vmap`."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")


def merge_batch_axes(function: Callable[..., T]) -> Callable[..., T]:
    """Give a function of a batch a vmap rule that merges further batch axes into its own.

    The function maps positional arguments with leaves (B, ...) to results with leaves (B, ...).
    Under `jax.vmap` over n elements it is called with leaves (n * B, ...); arguments that are not
    mapped are repeated.
    """
    merged = jax.custom_batching.custom_vmap(function)

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
