"""Mixtures of boards: `LakeParams`, and the number of boards of each component."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxlake.board.limits import ROUNDING_TOLERANCE, validate_lake_params
from jaxlake.generator.candidates import multiply_high

_ULP = np.float32(1.2e-7)

_MAX_FLOAT_COUNT = 1 << 15
"""Number of boards up to which float32 arithmetic with `_tolerance` gives exact hundredths."""

_DENOMINATOR = 30_000
"""Common denominator of decimals, thirds and sixths; its square fits into int32."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LakeParams:
    """Mixture of S components, each one kind of boards; use `lake_params` to create a checked one.

    Every leaf is traced. `jax.vmap` maps over a leading axis of configurations on every leaf.
    """

    size: jax.Array  # int32 (S,), side of the board
    data_ratio: jax.Array  # float32 (S,), share of the boards, normalised on use
    hole_ratio: jax.Array  # float32 (S,), share of all size * size cells, 0 to 1
    wait_ratio: jax.Array  # float32 (S,), share of its boards that need a wait, 0 to 1
    num_agents: jax.Array  # int32 (S,), 1 to 5


def lake_params(
    size: int | Sequence[int] | ArrayLike,
    hole_ratio: float | Sequence[float] | ArrayLike = 0.2,
    wait_ratio: float | Sequence[float] | ArrayLike = 0.0,
    num_agents: int | Sequence[int] | ArrayLike = 2,
    data_ratio: float | Sequence[float] | ArrayLike = 1.0,
) -> LakeParams:
    """Return a checked mixture, or arrays of mixtures. Scalars apply to all S components.

    Components may be infeasible; `generate` reports their boards as missing. Arrays (..., S) with
    leading axes of configurations broadcast as in NumPy and give leaves of the common shape for
    `jax.vmap`: `lake_params(sizes[:, None], ratios[:, None])` creates one component for each of C
    configurations from arrays (C,). Under jit and vmap, traced values are not checked.

    Args:
        size: Side of the board, 2 to 32.
        hole_ratio: Share of all cells that are holes, 0 to 1.
        wait_ratio: Share of the component's boards that need a wait, 0 to 1; 0 for a single agent.
        num_agents: Number of agents, 1 to 5.
        data_ratio: Weight of the component, 0 to 1e6, not 0 for all of them.

    Returns:
        The mixture, with int32 and float32 leaves.

    Raises:
        ValueError: A value is out of range or the shapes differ; the message names the field.
    """
    arguments: dict[str, Any] = {
        "size": size,
        "hole_ratio": hole_ratio,
        "wait_ratio": wait_ratio,
        "num_agents": num_agents,
        "data_ratio": data_ratio,
    }
    tracers = {name: jnp.asarray(field) for name, field in arguments.items() if _is_traced(field)}
    fields = validate_lake_params(
        **arguments | {name: _make_placeholder(name, field) for name, field in tracers.items()}
    )
    shape = np.broadcast_shapes(*(field.shape for field in fields.values()))
    leaves = {
        name: jnp.broadcast_to(tracers[name].astype(field.dtype), shape)
        if name in tracers
        else jnp.asarray(np.broadcast_to(field, shape))
        for name, field in fields.items()
    }
    return LakeParams(**leaves)


def _is_traced(field: object) -> bool:
    """Return whether the values of a field are traced and cannot be read."""
    return any(
        isinstance(leaf, jax.core.Tracer) or not getattr(leaf, "is_fully_addressable", True)
        for leaf in jax.tree.leaves(field)
    )


_VALID_VALUES = {"size": 2, "hole_ratio": 0, "wait_ratio": 0, "num_agents": 2, "data_ratio": 1}


def _make_placeholder(name: str, field: jax.Array) -> np.ndarray:
    """Return valid values with the shape and kind of dtype of a traced field, for the checks."""
    dtype = np.int32 if jnp.issubdtype(field.dtype, jnp.integer) else np.float32
    return np.full(field.shape, _VALID_VALUES[name], bool if field.dtype == bool else dtype)


def hole_count(size: jax.Array | int, hole_ratio: jax.Array | float) -> jax.Array:
    """Return floor(hole_ratio * size * size), with a tolerance for the rounding of float32.

    A product within 1e-4 below an integer counts as that integer, so a ratio of 0.3 of 100 cells
    gives 30.

    Args:
        size: Side of the board, any shape.
        hole_ratio: Share of all cells that are holes, any shape.

    Returns:
        int32 holes per board, of the broadcast shape of the arguments; -1 for NaN, which makes the
        component infeasible.
    """
    num_cells = jnp.asarray(size, jnp.int32) ** 2
    holes = jnp.asarray(hole_ratio, jnp.float32) * num_cells.astype(jnp.float32)
    return jnp.where(jnp.isnan(holes), -1, jnp.floor(holes + ROUNDING_TOLERANCE)).astype(jnp.int32)


def board_counts(params: LakeParams, num_boards: jax.Array | int) -> jax.Array:
    """Return the boards per component, in proportion to data_ratio, by largest remainder.

    Negative and NaN ratios count as 0; if all are 0, components get equal shares. Ties in the
    remainders go to the earlier component.

    Args:
        params: Leaves (S,).
        num_boards: int32 ().

    Returns:
        int32 (S,) counts that sum to `num_boards`.
    """
    ratio = jnp.asarray(params.data_ratio, jnp.float32)
    ratio = jnp.where(jnp.isfinite(ratio) & (ratio > 0), ratio, 0)
    # Scale first: the sum of large weights must not overflow.
    ratio = ratio / jnp.maximum(jnp.max(ratio), jnp.finfo(jnp.float32).tiny)
    ratio = jnp.where(jnp.any(ratio > 0), ratio, 1)
    exact_counts = ratio / jnp.sum(ratio) * jnp.asarray(num_boards, jnp.float32)
    floor_counts = jnp.floor(exact_counts + _tolerance(exact_counts))
    remainder = exact_counts - floor_counts
    counts = floor_counts.astype(jnp.int32)
    # The tolerance may round up one component too many, so the difference can have either sign.
    num_missing = num_boards - jnp.sum(counts)
    rank = jnp.argsort(jnp.argsort(-remainder, stable=True), stable=True)
    S = ratio.shape[0]
    per_component, extra = jnp.abs(num_missing) // S, jnp.abs(num_missing) % S
    increase = per_component + (rank < extra)
    decrease = per_component + (rank >= S - extra)
    return counts + jnp.where(num_missing >= 0, increase, -decrease).astype(jnp.int32)


def wait_counts(params: LakeParams, counts: jax.Array) -> jax.Array:
    """Return the boards per component that need a wait: wait_ratio * counts, rounded half up.

    The float32 number nearest to a multiple of 1/30,000 represents that multiple. Up to 32,768
    boards, a product up to 1e-4 plus 1.2e-7 of itself below a half counts as a half.

    Args:
        params: Leaves (S,).
        counts: int32 (S,), boards of each component.

    Returns:
        int32 (S,).
    """
    counts = jnp.asarray(counts, jnp.int32)
    ratio = jnp.clip(jnp.asarray(params.wait_ratio, jnp.float32), 0, 1)
    ratio = jnp.where(jnp.isnan(ratio), 0, ratio)
    product = ratio * counts.astype(jnp.float32)
    num_waits = jnp.floor(product + jnp.float32(0.5) + _tolerance(product)).astype(jnp.int32)
    num_waits = jnp.where(counts <= _MAX_FLOAT_COUNT, num_waits, _exact_share(ratio, counts))
    return jnp.clip(num_waits, 0, counts)


def _exact_share(ratio: jax.Array, counts: jax.Array) -> jax.Array:
    """Return ratio * counts, rounded half up, int32 (S,), in integer arithmetic."""
    # A ratio is mantissa / 2**scale; for ratios near 0 the scale makes the result 0 below.
    bits = jax.lax.bitcast_convert_type(ratio, jnp.uint32)
    mantissa = (bits & 0x7FFFFF) | 0x800000
    scale = 150 - (bits >> 23 & 0xFF).astype(jnp.int32)

    # Twice the product, rounded down, from the high and low half of mantissa * counts.
    high = multiply_high(mantissa, counts.astype(jnp.uint32))
    low = mantissa * counts.astype(jnp.uint32)
    shift = (scale - 1).astype(jnp.uint32)  # 22 or more
    clipped_shift = jnp.minimum(shift, 31)
    doubled_product = jnp.where(
        shift < 32,
        (high << (32 - clipped_shift)) | (low >> clipped_shift),
        high >> jnp.clip(scale - 33, 0, 31).astype(jnp.uint32),
    )
    from_float = ((doubled_product + 1) >> 1).astype(jnp.int32)

    # The float32 number nearest to multiple / _DENOMINATOR differs from it by at most
    # 1 / 2**(scale + 1).
    scaled_ratio = ratio * jnp.float32(_DENOMINATOR)
    multiple = jnp.round(scaled_ratio).astype(jnp.int32)
    shifted = multiple.astype(jnp.uint32) << jnp.minimum(scale, 31).astype(jnp.uint32)
    difference = mantissa * jnp.uint32(_DENOMINATOR) - jnp.where(scale < 32, shifted, jnp.uint32(0))
    difference = jax.lax.bitcast_convert_type(difference, jnp.int32)  # exact modulo 2**32
    is_multiple = (multiple > 0) & (jnp.abs(scaled_ratio - multiple) < 0.004)
    is_multiple &= jnp.abs(difference) <= _DENOMINATOR // 2
    quotient, remainder = counts // _DENOMINATOR, counts % _DENOMINATOR
    from_multiple = quotient * multiple + (remainder * multiple + _DENOMINATOR // 2) // _DENOMINATOR
    return jnp.where(is_multiple, from_multiple, from_float)


def _tolerance(product: jax.Array) -> jax.Array:
    """Return the rounding tolerance for the product of a float32 ratio and an integer."""
    return ROUNDING_TOLERANCE + product * _ULP
