"""Whether a kernel gives on this device what plain attention gives: asked once, before it is used.

The kernels were held equal to plain attention on a CPU, and compiled for devices that were not
there. A driver or another kind of device may still make something else of them.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from training.policy.attention import shared_prompt_attention
from training.policy.kernels import PLAIN, Implementation, products_of

TOLERANCE = 0.02
"""Largest difference allowed, as a share of the norm; bfloat16 alone makes about 0.004."""

_PROMPT, _WIDTH, _HEADS = 200, 300, 2  # no multiples of blocks


def largest_difference(implementation: Implementation, *, head_dim: int, group: int) -> float:
    """Return the largest share by which values or gradients differ from plain attention's, float32.

    Two packed rows share a prompt; `group` query heads share each of two key heads.
    """
    rng = np.random.default_rng(0)
    tokens = _PROMPT + 2 * _WIDTH
    shapes = [(1, tokens, heads, head_dim) for heads in (_HEADS * group, _HEADS, _HEADS)]
    shapes.append(shapes[0])  # the slope
    query, key, value, slope = (
        jnp.asarray(rng.standard_normal(shape), jnp.bfloat16) for shape in shapes
    )
    mask = jnp.arange(_PROMPT)[None, None] < _PROMPT - 30
    segments = jnp.stack([jnp.arange(_WIDTH) // 140, jnp.arange(_WIDTH) // 170])[None]
    rows = jnp.zeros((1, 2), jnp.int32)
    wanted = jnp.concatenate([mask.reshape(-1), jnp.ones(2 * _WIDTH, bool)])

    def run(how: Implementation, dtype: jnp.dtype) -> list[np.ndarray]:
        def loss(*tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
            attended = shared_prompt_attention(mask, rows, segments, how)(*tokens)
            attended = jnp.where(wanted[None, :, None, None], attended.astype(jnp.float32), 0)
            return jnp.sum(attended * slope.astype(jnp.float32)), attended

        with products_of(dtype):
            of_all = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))
            (_, attended), slopes = of_all(*(part.astype(dtype) for part in (query, key, value)))
        return [np.asarray(part, np.float32) for part in (attended, *slopes)]

    found = run(implementation, jnp.dtype(jnp.bfloat16))
    expected = run(replace(implementation, kind=PLAIN), jnp.dtype(jnp.float32))
    shares = [
        float(np.linalg.norm(one - other) / np.linalg.norm(other))
        for one, other in zip(found, expected, strict=True)
    ]
    return float(np.max(shares))  # NaN stays NaN


def is_trusted(difference: float) -> bool:
    """Say whether a difference is small enough; NaN is not."""
    return difference <= TOLERANCE
