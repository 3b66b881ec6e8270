"""Measure the attention kernel and compare it with blockwise attention in float32."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.accelerators.measuring import time_calls
from training.policy.attention import make_shared_prompt_attention
from training.policy.kernels import BLOCKWISE, TRITON, AttentionImplementation

NUM_CALLS = 9


def measure_attention(
    prompt: int = 512, rows: int = 8, width: int = 2048, heads: int = 16, head_dim: int = 128
) -> dict[str, Any]:
    """Compute attention and its gradients in bfloat16 with the kernel and blockwise.

    Args:
        prompt: Tokens of the prompt that all rows share.
        rows: Rows, each with two completions.
        width: Tokens of a row.
        heads: Query heads; there are half as many key heads.
        head_dim: Size of a head, 64 or 128.

    Returns:
        Per implementation, the median `seconds` of a call and `errors`: the largest differences
        from float32 relative to the largest value, for the output and the gradients of queries,
        keys and values. Without a GPU, the kernel is interpreted.
    """
    rng = np.random.default_rng(0)
    segments = jnp.broadcast_to((jnp.arange(width) >= width // 3).astype(jnp.int32), (rows, width))
    count = prompt + rows * width
    tokens = [
        jnp.asarray(rng.standard_normal((1, count, K, head_dim)), jnp.float32)
        for K in (heads, heads // 2, heads // 2)
    ]
    cotangents = jnp.asarray(rng.standard_normal((1, count, heads, head_dim)), jnp.float32)

    def compile_attention(kind: str) -> Callable[..., Any]:
        attend = make_shared_prompt_attention(
            jnp.ones((1, 1, prompt), bool),
            jnp.zeros((1, rows), jnp.int32),
            segments[None],
            AttentionImplementation(kind, interpret=jax.default_backend() != "gpu"),
        )

        def loss(*tokens: jax.Array) -> Any:
            outputs = attend(*tokens).astype(jnp.float32)
            return jnp.sum(outputs * cotangents), outputs

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))

    with jax.default_matmul_precision("float32"):
        gradients, outputs = compile_attention(BLOCKWISE)(*tokens)
    expected = [outputs, *gradients]
    rounded_tokens = [token.astype(jnp.bfloat16) for token in tokens]
    record: dict[str, Any] = {}
    for kind in (TRITON, BLOCKWISE):
        executable = compile_attention(kind)
        gradients, outputs = executable(*rounded_tokens)
        errors = [
            float(jnp.max(jnp.abs(result.astype(jnp.float32) - exact)) / jnp.max(jnp.abs(exact)))
            for result, exact in zip([outputs, *gradients], expected, strict=True)
        ]
        seconds = time_calls(lambda call=executable: call(*rounded_tokens), NUM_CALLS)  # type: ignore[misc]
        record[kind] = {"errors": errors, "seconds": float(np.median(seconds))}
    return record
