"""Layout of boards and sets of cells in the lanes of a program, and kernel launches."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.chunks import Kernels

Row = tuple[int, ...]
"""Leading axes of an array whose last two axes are the lanes of a program."""

Words = list[jax.Array]
"""Set of cells: cell m is bit m % 32 of word m // 32. Each word is a vector of lanes."""

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
"""Shape of the lanes of one program, for programs with one board per lane."""

_VMEM_BYTES = 100 << 20
"""On-chip memory that a program may use on a TPU, in bytes."""


def launch(
    kernel: Callable[..., None],
    backend: Kernels,
    inputs: Sequence[jax.Array],
    outputs: Sequence[tuple[Row, Any]],
    scratch: Sequence[tuple[Row, Any]],
) -> list[jax.Array]:
    """Run a kernel over boards, one per lane, from inputs (..., B) to outputs (..., B).

    The kernel receives references (..., *lanes) to inputs, outputs and scratch memory, in this
    order. `outputs` and `scratch` list leading axes and dtypes.
    """
    from jax.experimental import pallas as pl  # as slow to import as all of JAX

    lanes = _LANES[backend]
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

    results = run_programs(
        kernel,
        backend,
        programs,
        [(in_lanes(array), spec(array.shape[:-1])) for array in inputs],
        [(shape(rows, dtype), spec(rows)) for rows, dtype in outputs],
        [((*rows, *lanes), dtype) for rows, dtype in scratch],
    )
    return [array.reshape(*array.shape[:-2], -1)[..., :B] for array in results]


def run_programs(
    kernel: Callable[..., None],
    backend: Kernels,
    programs: int,
    inputs: Sequence[tuple[jax.Array, Any]],
    outputs: Sequence[tuple[Any, Any]],
    memory: Sequence[tuple[Row, Any]],
    warps: int = 1,
) -> list[jax.Array]:
    """Run the programs of a kernel and return its outputs.

    `inputs` are arrays and `outputs` shapes, each with the block of one program. `memory` lists
    shapes and dtypes per program.
    """
    # Imported lazily because it takes as long as all of JAX and is unused on CPUs.
    from jax.experimental import pallas as pl

    options: dict[str, Any] = {}
    all_outputs = list(outputs)
    if backend is Kernels.TPU:
        from jax.experimental.pallas import tpu as pltpu

        options["compiler_params"] = pltpu.CompilerParams(vmem_limit_bytes=_VMEM_BYTES)
        options["scratch_shapes"] = [pltpu.VMEM(rows, dtype) for rows, dtype in memory]
    else:
        # Triton has no scratch memory, so it is an additional output that stays in the caches.
        def block(rows: Row) -> Any:
            return pl.BlockSpec((None, *rows), lambda i: (i, *(0,) * len(rows)))

        all_outputs += [
            (jax.ShapeDtypeStruct((programs, *rows), dtype), block(rows)) for rows, dtype in memory
        ]
    if backend is Kernels.GPU:
        from jax.experimental.pallas import triton

        options["compiler_params"] = triton.CompilerParams(num_warps=warps, num_stages=1)
    if backend is Kernels.INTERPRETED:
        options["interpret"] = True
    results = pl.pallas_call(
        kernel,
        grid=(programs,),
        in_specs=[spec for _, spec in inputs],
        out_specs=[spec for _, spec in all_outputs],
        out_shape=[shape for shape, _ in all_outputs],
        **options,
    )(*(array for array, _ in inputs))
    return list(results[: len(outputs)])


def fits(backend: Kernels, registers: int) -> bool:
    """Return whether a program has room for this many registers; values being moved count twice."""
    bytes_each = 4 * int(np.prod(VECTOR_REGISTER))
    return backend is not Kernels.TPU or 2 * registers * bytes_each <= _VMEM_BYTES


def to_int32(condition: jax.Array) -> jax.Array:
    """Convert bool to int32, the dtype of loop carries."""
    return jnp.where(condition, jnp.int32(1), jnp.int32(0))


def any_lane(condition: jax.Array) -> jax.Array:
    """Return whether a condition holds in any lane, as a scalar bool."""
    return jnp.max(to_int32(condition)) > 0


def bit(position: jax.Array | int) -> jax.Array:
    """Return the word in which only the given bit, 0 to 31, is set."""
    return jnp.uint32(1) << jnp.asarray(position).astype(jnp.uint32)


def union(words: Sequence[jax.Array]) -> jax.Array:
    """Return the union of sets."""
    result = words[0]
    for word in words[1:]:
        result = result | word
    return result


def single_cell(cell: jax.Array, words: int) -> Words:
    """Return the set with only this cell, or the empty set if the cell is off the board."""
    word, inside = cell >> 5, bit(cell & 31)
    return [jnp.where(word == w, inside, EMPTY_WORD) for w in range(words)]


def intersect(a: Sequence[jax.Array], b: Sequence[jax.Array]) -> Words:
    """Return the intersection of two sets."""
    return [x & y for x, y in zip(a, b, strict=True)]


def unite(*sets: Sequence[jax.Array]) -> Words:
    """Return the union of any number of sets."""
    return [union(words) for words in zip(*sets, strict=True)]


def subtract(a: Sequence[jax.Array], b: Sequence[jax.Array]) -> Words:
    """Return the difference of two sets."""
    return [x & ~y for x, y in zip(a, b, strict=True)]


def select(condition: jax.Array, cells: Sequence[jax.Array]) -> Words:
    """Return the set in the lanes where bool (lanes) is True, and the empty set elsewhere."""
    return [jnp.where(condition, word, EMPTY_WORD) for word in cells]


def intersects(a: Sequence[jax.Array], b: Sequence[jax.Array]) -> jax.Array:
    """Return whether two sets intersect, as bool (lanes)."""
    return union(intersect(a, b)) != 0


def shift(cells: Sequence[jax.Array], delta: int) -> Words:
    """Shift cells by `delta`; cells beyond the words are lost."""
    count, bits = divmod(abs(delta), 32)
    W, empty = len(cells), cells[0] ^ cells[0]

    def word(w: int) -> jax.Array:
        return cells[w] if 0 <= w < W else empty

    sign = 1 if delta > 0 else -1
    if bits == 0:
        return [word(w - sign * count) for w in range(W)]
    near, far = np.uint32(bits), np.uint32(32 - bits)
    if delta > 0:
        return [(word(w - count) << near) | (word(w - count - 1) >> far) for w in range(W)]
    return [(word(w + count) >> near) | (word(w + count + 1) << far) for w in range(W)]
