"""Launches of Pallas kernels, and operations on sets of cells inside them.

A kernel runs as many programs. Each program processes a vector of lanes at once. Functions that
return bool (lanes) or words give one result per lane.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.chunks import Kernels

Shape = tuple[int, ...]
"""Shape without the last two axes, which are the lanes of a program."""

CellSet = list[jax.Array]
"""Set of cells in each lane: cell m is bit m % 32 of word m // 32."""

EMPTY_WORD = np.uint32(0)
"""Word in which no bit is set."""

WARP = 32
"""Number of lanes of a GPU warp."""

VECTOR_REGISTER = (8, 128)
"""Shape of a TPU vector register."""

_LANES = {
    Kernels.GPU: (1, WARP),
    Kernels.TPU: VECTOR_REGISTER,
    Kernels.INTERPRETED: VECTOR_REGISTER,
}
"""Shape of the lanes of a program that holds one board per lane."""

_VMEM_BYTES = 100 << 20
"""On-chip memory of a program on a TPU, in bytes."""


def launch(
    kernel: Callable[..., None],
    backend: Kernels,
    inputs: Sequence[jax.Array],
    outputs: Sequence[tuple[Shape, Any]],
    scratch: Sequence[tuple[Shape, Any]],
) -> list[jax.Array]:
    """Run a kernel with one board per lane.

    Args:
        kernel: Called with references (..., *lanes) to the inputs, outputs and scratch memory.
        backend: Target of the compilation.
        inputs: Arrays (..., B).
        outputs: Shape without B, and dtype, of each output.
        scratch: Shape without B, and dtype, of each memory buffer.

    Returns:
        Outputs (..., B).
    """
    from jax.experimental import pallas as pl  # as slow to import as all of JAX

    lanes = _LANES[backend]
    B = inputs[0].shape[-1]
    num_lanes = lanes[0] * lanes[1]
    num_programs = -(-B // num_lanes)

    def pad_to_lanes(array: jax.Array) -> jax.Array:
        padded = jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, num_programs * num_lanes - B)])
        return padded.reshape(*array.shape[:-1], num_programs * lanes[0], lanes[1])

    def make_block(shape: Shape) -> Any:
        return pl.BlockSpec((*shape, *lanes), lambda i: (*(0,) * len(shape), i, 0))

    def make_struct(shape: Shape, dtype: Any) -> Any:
        return jax.ShapeDtypeStruct((*shape, num_programs * lanes[0], lanes[1]), dtype)

    results = run_programs(
        kernel,
        backend,
        num_programs,
        [(pad_to_lanes(array), make_block(array.shape[:-1])) for array in inputs],
        [(make_struct(shape, dtype), make_block(shape)) for shape, dtype in outputs],
        [((*shape, *lanes), dtype) for shape, dtype in scratch],
    )
    return [array.reshape(*array.shape[:-2], -1)[..., :B] for array in results]


def run_programs(
    kernel: Callable[..., None],
    backend: Kernels,
    num_programs: int,
    inputs: Sequence[tuple[jax.Array, Any]],
    outputs: Sequence[tuple[Any, Any]],
    scratch: Sequence[tuple[tuple[int, ...], Any]],
    warps: int = 1,
) -> list[jax.Array]:
    """Run the programs of a kernel and return its outputs.

    Args:
        kernel: Called with references to the blocks of the inputs and outputs, and to the scratch
            memory.
        backend: Target of the compilation.
        num_programs: Number of programs.
        inputs: Arrays, each with its `BlockSpec`.
        outputs: `jax.ShapeDtypeStruct` of each output, with its `BlockSpec`.
        scratch: Shape and dtype of each memory buffer of a program.
        warps: Number of warps per program on a GPU.
    """
    from jax.experimental import pallas as pl  # as slow to import as all of JAX

    options: dict[str, Any] = {}
    all_outputs = list(outputs)
    if backend is Kernels.TPU:
        from jax.experimental.pallas import tpu as pltpu

        options["compiler_params"] = pltpu.CompilerParams(vmem_limit_bytes=_VMEM_BYTES)
        options["scratch_shapes"] = [pltpu.VMEM(shape, dtype) for shape, dtype in scratch]
    else:
        # Triton has no scratch memory. An additional output, which stays in the caches, serves.
        def make_block(shape: tuple[int, ...]) -> Any:
            return pl.BlockSpec((None, *shape), lambda i: (i, *(0,) * len(shape)))

        all_outputs += [
            (jax.ShapeDtypeStruct((num_programs, *shape), dtype), make_block(shape))
            for shape, dtype in scratch
        ]
    if backend is Kernels.GPU:
        from jax.experimental.pallas import triton

        options["compiler_params"] = triton.CompilerParams(num_warps=warps, num_stages=1)
    if backend is Kernels.INTERPRETED:
        options["interpret"] = True
    results = pl.pallas_call(
        kernel,
        grid=(num_programs,),
        in_specs=[spec for _, spec in inputs],
        out_specs=[spec for _, spec in all_outputs],
        out_shape=[shape for shape, _ in all_outputs],
        **options,
    )(*(array for array, _ in inputs))
    return list(results[: len(outputs)])


def fits(backend: Kernels, num_registers: int) -> bool:
    """Return whether a program has memory for this many registers and for a copy of each."""
    register_bytes = 4 * int(np.prod(VECTOR_REGISTER))
    return backend is not Kernels.TPU or 2 * num_registers * register_bytes <= _VMEM_BYTES


def to_int32(condition: jax.Array) -> jax.Array:
    """Convert bool to int32, the dtype of loop carries."""
    return jnp.where(condition, jnp.int32(1), jnp.int32(0))


def any_lane(condition: jax.Array) -> jax.Array:
    """Return whether a condition holds in any lane, bool ()."""
    return jnp.max(to_int32(condition)) > 0


def bit(position: jax.Array | int) -> jax.Array:
    """Return the word in which only this bit, 0 to 31, is set."""
    return jnp.uint32(1) << jnp.asarray(position).astype(jnp.uint32)


def reduce_or(words: Sequence[jax.Array]) -> jax.Array:
    """Return the bitwise OR of all words."""
    result = words[0]
    for word in words[1:]:
        result = result | word
    return result


def single_cell(cell: jax.Array, num_words: int) -> CellSet:
    """Return the set with only this cell, or the empty set if the cell is off the board."""
    index, mask = cell >> 5, bit(cell & 31)
    return [jnp.where(index == w, mask, EMPTY_WORD) for w in range(num_words)]


def intersect(a: Sequence[jax.Array], b: Sequence[jax.Array]) -> CellSet:
    """Return the intersection of two sets."""
    return [x & y for x, y in zip(a, b, strict=True)]


def unite(*sets: Sequence[jax.Array]) -> CellSet:
    """Return the union of any number of sets."""
    return [reduce_or(words) for words in zip(*sets, strict=True)]


def subtract(a: Sequence[jax.Array], b: Sequence[jax.Array]) -> CellSet:
    """Return the difference of two sets."""
    return [x & ~y for x, y in zip(a, b, strict=True)]


def select(condition: jax.Array, cells: Sequence[jax.Array]) -> CellSet:
    """Return `cells` in lanes where `condition` is True, and the empty set in other lanes."""
    return [jnp.where(condition, word, EMPTY_WORD) for word in cells]


def intersects(a: Sequence[jax.Array], b: Sequence[jax.Array]) -> jax.Array:
    """Return whether two sets intersect, bool (lanes)."""
    return reduce_or(intersect(a, b)) != 0


def shift(cells: Sequence[jax.Array], delta: int) -> CellSet:
    """Add `delta` to the number of each cell. Cells beyond the words are lost."""
    count, bit_shift = divmod(abs(delta), 32)
    W, no_cells = len(cells), cells[0] ^ cells[0]

    def word(w: int) -> jax.Array:
        return cells[w] if 0 <= w < W else no_cells

    sign = 1 if delta > 0 else -1
    if bit_shift == 0:
        return [word(w - sign * count) for w in range(W)]
    near, far = np.uint32(bit_shift), np.uint32(32 - bit_shift)
    if delta > 0:
        return [(word(w - count) << near) | (word(w - count - 1) >> far) for w in range(W)]
    return [(word(w + count) >> near) | (word(w + count + 1) << far) for w in range(W)]
