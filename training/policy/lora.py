"""LoRA (Hu et al. 2021, arXiv 2106.09685): adapters of low rank beside kernels that are frozen.

A kernel W, (in, out), acts as W + alpha / rank * A B, with A (in, rank) and B (rank, out). The
factors are parameters of the decoder's layers, of a type of their own, so that one pytree holds the
frozen weights and the learned ones. `trainable` gives what an optimizer sees and a checkpoint
holds, `with_trainable` puts it back. Without adapters both give the weights themselves.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from training.policy.decoder import Decoder
from training.policy.parameters import (
    LORA_A,
    LORA_B,
    parameter_shapes,
    parameter_shardings,
)
from training.policy.precision import products_of
from training.processes import place
from training.schema import Lora


class Adapter(nnx.Param[jax.Array]):
    """A factor of a kernel's adapter, float32: (N, in, rank) or (N, rank, out)."""


def add_adapters(model: Decoder, lora: Lora, *, seed: int) -> None:
    """Give a decoder adapters, in place; it computes what it did before.

    A is uniform within 1 / sqrt(in), as in Hugging Face's PEFT, and follows from the seed and the
    kernel's name; B is 0. They are placed as `parameter_shardings` says.
    """
    shapes = parameter_shapes(model.config, lora)
    shardings = {} if model.mesh is None else parameter_shardings(model.config, model.mesh, lora)
    for target in lora.targets:
        for ending in (LORA_A, LORA_B):
            path = f"layers.{target}{ending}"
            value = np.zeros(shapes[path], np.float32)
            if ending == LORA_A:
                bound = shapes[path][1] ** -0.5
                rng = np.random.default_rng([seed, *target.encode()])
                value = rng.uniform(-bound, bound, shapes[path]).astype(np.float32)
            setattr(model.layers, target + ending, Adapter(place(value, shardings.get(path))))
    model.lora = lora


def remove_adapters(model: Decoder) -> None:
    """Take the adapters from a decoder, in place: what is left are the frozen weights."""
    for target in () if model.lora is None else model.lora.targets:
        for ending in (LORA_A, LORA_B):
            delattr(model.layers, target + ending)
    model.lora = None


def trainable(params: Any) -> Any:
    """Return the adapters among the weights of a decoder; all weights if there are none."""
    adapters = nnx.filter_state(params, Adapter) if isinstance(params, nnx.State) else None
    return adapters or params


def with_trainable(params: Any, learned: Any) -> Any:
    """Return the weights with other adapters, or with other weights if they have none.

    `learned` is like `trainable(params)`.
    """
    return learned if trainable(params) is params else nnx.merge_state(params, learned)


def frozen(params: Any) -> Any:
    """Return the weights beside the adapters, which nothing changes; None if all are learned."""
    if trainable(params) is params:
        return None
    return nnx.filter_state(params, nnx.Not(Adapter))


def merge_factors(
    kernel: jax.Array, narrow: jax.Array, wide: jax.Array, scale: float | jax.Array
) -> jax.Array:
    """Return kernel + scale * narrow @ wide, in the kernel's dtype: what the adapter makes of it.

    They are (in, out), (in, rank) and (rank, out).
    """
    with products_of(jnp.float32):
        merged = kernel.astype(jnp.float32) + scale * (narrow @ wide)
    return merged.astype(kernel.dtype)
