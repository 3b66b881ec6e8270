"""What boards to make: LakeParams, and how many of each kind that asks for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxlake.board.limits import MAX_AGENTS as MAX_AGENTS
from jaxlake.board.limits import MAX_SIZE as MAX_SIZE
from jaxlake.board.limits import MIN_AGENTS as MIN_AGENTS
from jaxlake.board.limits import MIN_SIZE as MIN_SIZE
from jaxlake.board.limits import ROUNDING, checked_mixture
from jaxlake.board.limits import holes_on_board as holes_on_board
from jaxlake.board.limits import infeasibility as infeasibility
from jaxlake.generator.candidates import multiply_high

_ULP = np.float32(1.2e-7)

_FEW = 1 << 15
"""Boards of which float32 numbers with a guard give the right share of any hundredth."""

_PARTS = 30_000
"""Denominator of decimals, thirds and sixths; its squares are int32 numbers."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LakeParams:
    """A mixture of S cells, each one kind of boards; make a checked one with `lake_params`.

    Every leaf is traced. `jax.vmap` maps over a leading axis of configurations on every leaf.
    """

    size: jax.Array  # int32 (S,), side of the board
    data_ratio: jax.Array  # float32 (S,), share of the boards, normalised where it is used
    hole_ratio: jax.Array  # float32 (S,), share of all size * size cells, 0 to 1
    wait_ratio: jax.Array  # float32 (S,), share of the cell's boards that need a wait, 0 to 1
    num_agents: jax.Array  # int32 (S,), 1 to 5


def lake_params(
    size: int | Sequence[int] | ArrayLike,
    hole_ratio: float | Sequence[float] | ArrayLike = 0.2,
    wait_ratio: float | Sequence[float] | ArrayLike = 0.0,
    num_agents: int | Sequence[int] | ArrayLike = 2,
    data_ratio: float | Sequence[float] | ArrayLike = 1.0,
) -> LakeParams:
    """Make a checked mixture, or arrays of mixtures. Scalars stand for all S cells.

    The fields are those of `LakeParams`: sizes 2 to 32, 1 to 5 agents, ratios of holes and waits 0
    to 1, no waits for a single agent; data ratios are weights of 0 to 1e6, not all of them 0. Cells
    may be infeasible: `generate` reports their boards as missing.

    Arrays (..., S) with leading axes of configurations broadcast as in NumPy, and give leaves of
    the common shape for `jax.vmap`: `lake_params(sizes[:, None], ratios[:, None])` makes one cell
    for each of C configurations from arrays (C,). Under jit and vmap, the values of traced fields
    are not checked.

    Raises:
        ValueError: a value is out of range, or the shapes differ; the message names the field.
    """
    given: dict[str, Any] = {
        "size": size,
        "hole_ratio": hole_ratio,
        "wait_ratio": wait_ratio,
        "num_agents": num_agents,
        "data_ratio": data_ratio,
    }
    traced = {name: jnp.asarray(field) for name, field in given.items() if _is_traced(field)}
    fields = checked_mixture(**given | {name: _stand_in(name, traced[name]) for name in traced})
    shape = np.broadcast_shapes(*(field.shape for field in fields.values()))
    leaves = {
        name: jnp.broadcast_to(traced[name].astype(field.dtype), shape)
        if name in traced
        else jnp.asarray(np.broadcast_to(field, shape))
        for name, field in fields.items()
    }
    return LakeParams(**leaves)


def _is_traced(field: object) -> bool:
    """Return whether the values of a field can't be read here."""
    traced = isinstance(field, jax.core.Tracer)
    return traced or not getattr(field, "is_fully_addressable", True)


_VALID = {"size": 2, "hole_ratio": 0, "wait_ratio": 0, "num_agents": 2, "data_ratio": 1}


def _stand_in(name: str, traced: jax.Array) -> np.ndarray:
    """Return valid values of the shape and the kind of a traced field, which can be checked."""
    kind = np.int32 if jnp.issubdtype(traced.dtype, jnp.integer) else np.float32
    return np.full(traced.shape, _VALID[name], bool if traced.dtype == bool else kind)


def hole_count(size: jax.Array | int, hole_ratio: jax.Array | float) -> jax.Array:
    """Holes on a board: floor(hole_ratio * size * size), guarded so that 0.3 of 100 is 30.

    Ratios are read as float32; a product within 1e-4 below an integer counts as that integer. The
    result is int32, of the shape that the arguments broadcast to; NaN gives -1, which no board has.
    """
    cells = jnp.asarray(size, jnp.int32) ** 2
    share = jnp.asarray(hole_ratio, jnp.float32) * cells.astype(jnp.float32)
    return jnp.where(jnp.isnan(share), -1, jnp.floor(share + ROUNDING)).astype(jnp.int32)


def board_counts(params: LakeParams, n: jax.Array | int) -> jax.Array:
    """Share n boards out over the cells in proportion to data_ratio, by largest remainder.

    A ratio that is negative or no number counts as 0; if none is left, all cells get equal shares.
    The counts, int32 (S,), sum to n. Of equal remainders the earlier cell's is rounded up first.
    """
    ratio = jnp.asarray(params.data_ratio, jnp.float32)
    ratio = jnp.where(jnp.isfinite(ratio) & (ratio > 0), ratio, 0)
    # Scaled first: the sum of large weights must not overflow.
    ratio = ratio / jnp.maximum(jnp.max(ratio), jnp.finfo(jnp.float32).tiny)
    ratio = jnp.where(jnp.any(ratio > 0), ratio, 1)
    exact = ratio / jnp.sum(ratio) * jnp.asarray(n, jnp.float32)
    whole = jnp.floor(exact + _guard(exact))
    remainder = exact - whole
    counts = whole.astype(jnp.int32)
    # The guard may have given one too many away, so the difference can have either sign.
    missing = n - jnp.sum(counts)
    rank = jnp.argsort(jnp.argsort(-remainder, stable=True), stable=True)
    S = ratio.shape[0]
    even, left = jnp.abs(missing) // S, jnp.abs(missing) % S
    up = even + (rank < left)
    down = even + (rank >= S - left)
    return counts + jnp.where(missing >= 0, up, -down).astype(jnp.int32)


def wait_counts(params: LakeParams, counts: jax.Array) -> jax.Array:
    """Boards of each cell that need a wait: wait_ratio * counts, rounded, halves up; int32 (S,).

    A ratio that is the float32 number of a multiple of 1/30,000 stands for that multiple. Up to
    32,768 boards a product counts as a half, too, which is by 1e-4, and 1.2e-7 of itself, below it.
    """
    counts = jnp.asarray(counts, jnp.int32)
    ratio = jnp.clip(jnp.asarray(params.wait_ratio, jnp.float32), 0, 1)
    ratio = jnp.where(jnp.isnan(ratio), 0, ratio)
    product = ratio * counts.astype(jnp.float32)
    waits = jnp.floor(product + jnp.float32(0.5) + _guard(product)).astype(jnp.int32)
    waits = jnp.where(counts <= _FEW, waits, _exact_share(ratio, counts))
    return jnp.clip(waits, 0, counts)


def _exact_share(ratio: jax.Array, counts: jax.Array) -> jax.Array:
    """Ratio * counts, rounded, halves up; int32 (S,), by integers alone."""
    # A ratio is mantissa / 2**scale; where it is 0, or next to it, the scale makes it 0 below.
    bits = jax.lax.bitcast_convert_type(ratio, jnp.uint32)
    mantissa = (bits & 0x7FFFFF) | 0x800000
    scale = 150 - (bits >> 23 & 0xFF).astype(jnp.int32)

    # Twice the product without its fraction, from the two words of mantissa * counts.
    high = multiply_high(mantissa, counts.astype(jnp.uint32))
    low = mantissa * counts.astype(jnp.uint32)
    shift = (scale - 1).astype(jnp.uint32)  # 22 or more
    within = jnp.minimum(shift, 31)
    twice = jnp.where(
        shift < 32,
        (high << (32 - within)) | (low >> within),
        high >> jnp.clip(scale - 33, 0, 31).astype(jnp.uint32),
    )
    by_float = ((twice + 1) >> 1).astype(jnp.int32)

    # The float32 number next to parts / _PARTS differs from it by at most half of 1 / 2**scale.
    scaled = ratio * jnp.float32(_PARTS)
    parts = jnp.round(scaled).astype(jnp.int32)
    shifted = parts.astype(jnp.uint32) << jnp.minimum(scale, 31).astype(jnp.uint32)
    difference = mantissa * jnp.uint32(_PARTS) - jnp.where(scale < 32, shifted, jnp.uint32(0))
    difference = jax.lax.bitcast_convert_type(difference, jnp.int32)  # what 2**32 adds is not near
    near = (parts > 0) & (jnp.abs(scaled - parts) < 0.004) & (jnp.abs(difference) <= _PARTS // 2)
    whole, rest = counts // _PARTS, counts % _PARTS
    by_parts = whole * parts + (rest * parts + _PARTS // 2) // _PARTS
    return jnp.where(near, by_parts, by_float)


def _guard(product: jax.Array) -> jax.Array:
    """By how much a product of a float32 ratio may fall short of what its decimals say."""
    return ROUNDING + product * _ULP
