"""How boards lie in the lanes of a kernel's programs, and how a kernel is launched."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton

from jaxlake.solver.chunks import Kernels

Row = tuple[int, ...]
"""The leading axes of an array whose last two are the lanes of a program."""


_LANES = {Kernels.GPU: (1, 32), Kernels.TPU: (8, 128), Kernels.INTERPRETED: (8, 128)}
"""The lanes of one program: a warp of a GPU, a vector register of a TPU."""

_VMEM_BYTES = 100 << 20
"""On-chip memory that a program may take on a TPU."""


def launch(
    kernel: Callable[..., None],
    machine: Kernels,
    inputs: Sequence[jax.Array],
    outputs: Sequence[tuple[Row, Any]],
    scratch: Sequence[tuple[Row, Any]],
) -> list[jax.Array]:
    """Run a kernel over boards: inputs (..., B) to outputs (..., B).

    The kernel gets references (..., *lanes) to inputs, outputs and memory of its own, in
    this order. Outputs and memory are leading axes and dtypes. The last program is filled up with
    boards of zeros.
    """
    lanes = _LANES[machine]
    B = inputs[0].shape[-1]
    count = lanes[0] * lanes[1]
    programs = -(-B // count)

    def in_lanes(array: jax.Array) -> jax.Array:
        padded = jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, programs * count - B)])
        return padded.reshape(*array.shape[:-1], programs * lanes[0], lanes[1])

    def spec(rows: Row) -> Any:
        return pl.BlockSpec((*rows, *lanes), lambda i: (*(0,) * len(rows), i, 0))

    def shape(rows: Row, dtype: Any) -> Any:
        return jax.ShapeDtypeStruct((*rows, programs * lanes[0], lanes[1]), dtype)

    # Triton has no memory of its own to offer: there it is one more output, in the caches.
    own = machine is Kernels.TPU
    written = [*outputs, *([] if own else scratch)]
    options: dict[str, Any] = {}
    if machine is Kernels.TPU:
        options["compiler_params"] = pltpu.CompilerParams(vmem_limit_bytes=_VMEM_BYTES)
        options["scratch_shapes"] = [pltpu.VMEM((*rows, *lanes), dtype) for rows, dtype in scratch]
    elif machine is Kernels.GPU:
        options["compiler_params"] = triton.CompilerParams(num_warps=1, num_stages=1)
    else:
        options["interpret"] = True
    results = pl.pallas_call(
        kernel,
        grid=(programs,),
        in_specs=[spec(array.shape[:-1]) for array in inputs],
        out_specs=[spec(rows) for rows, _ in written],
        out_shape=[shape(rows, dtype) for rows, dtype in written],
        **options,
    )(*map(in_lanes, inputs))
    return [array.reshape(*array.shape[:-2], -1)[..., :B] for array in results[: len(outputs)]]


def fits(machine: Kernels, words_per_board: int) -> bool:
    """Tell whether the memory of a program is there, input and output being held twice."""
    rows, columns = _LANES[machine]
    return machine is not Kernels.TPU or 8 * words_per_board * rows * columns <= _VMEM_BYTES


def flag(condition: jax.Array) -> jax.Array:
    """Turn bool into int32: what loops carry from round to round."""
    return jnp.where(condition, jnp.int32(1), jnp.int32(0))


def any_lane(condition: jax.Array) -> jax.Array:
    """Tell, as a scalar bool, whether a condition holds in some lane."""
    return jnp.max(flag(condition)) > 0


def bit(position: jax.Array | int) -> jax.Array:
    """Return the word in which only this bit, 0 to 31, is set."""
    return jnp.uint32(1) << jnp.asarray(position).astype(jnp.uint32)


def union(words: Sequence[jax.Array]) -> jax.Array:
    """Return the union of sets."""
    united = words[0]
    for word in words[1:]:
        united = united | word
    return united


NOTHING = np.uint32(0)
"""The empty word."""
