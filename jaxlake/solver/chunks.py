"""Processing of batches in chunks, whose size depends on the platform.

A lane is one of the B elements of a batch. Only the constants `TEAM_LANES`, `SHARED_SPLITS` and
`EXPANSIONS_BEFORE_TEAM` affect results.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.runtime.triton_backend import has_triton_backend

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")

TEAM_LANES = 4
"""Number of lanes that search one constraint tree as a team."""

SHARED_SPLITS = 6
"""Number of splits at the top of a constraint tree that a team divides among its lanes."""

EXPANSIONS_BEFORE_TEAM = 64
"""Number of expansions of a single lane after which a team takes over."""

NODE_LANES = 8
"""Number of lanes of a kernel that process one node of a team's constraint tree together."""

OCCUPANCY_BLOCK = 32
"""Number of sets of occupied cells that `permutations` expands at once."""


class Kernels(Enum):
    """Target for which the kernels of `jaxlake.solver.kernels` are compiled."""

    GPU = "gpu"
    TPU = "tpu"
    INTERPRETED = "interpreted"  # emulated by XLA operations on any machine, for tests


@dataclass(frozen=True)
class Limits:
    """Number of boards that the solver processes at once. It affects speed and memory only."""

    planned_boards: int  # maximum number of boards in prioritised planning
    tree_lanes: int  # maximum number of constraint-tree nodes, rounded down to a power of two;
    #   kernels are only limited by `loop_bytes`
    joint_boards: int  # maximum number of boards in a joint search; below 64, `dense` searches
    #   block by block
    loop_bytes: int  # memory for the sets of each loop, in bytes; it also limits the boards
    kernels: Kernels | None = None  # target of the Pallas kernels; None uses XLA loops only
    crowded_boards: int = 1  # number of boards that `permutations` examines at once

    def __post_init__(self) -> None:
        numbers = {name: value for name, value in vars(self).items() if name != "kernels"}
        if names := [name for name, value in numbers.items() if value < 1]:
            raise ValueError(f"{names[0]} must be at least 1, got {numbers[names[0]]}")

    def max_items(self, limit: int, bytes_each: int) -> int:
        """Return how many items of `bytes_each` fit into `loop_bytes`, from 1 to `limit`."""
        return max(1, min(limit, self.loop_bytes // bytes_each))


def default_platform() -> str:
    """Return the platform of JAX's default device."""
    # The user may set it globally or by `with jax.default_device(...)`.
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else str(device.platform)


def limits_for(platform: str | None = None, memory_bytes: int = 16 << 30) -> Limits:
    """Return the limits for a platform: few boards on a CPU, many on an accelerator.

    Args:
        platform: Platform name such as "cpu", "gpu" or "tpu". Defaults to the platform of JAX's
            default device.
        memory_bytes: Memory of the accelerator. Each loop may use an eighth of it.

    Returns:
        The limits. `kernels` is None on CPUs, and on GPUs if JAX has no Triton backend for Pallas.
    """
    platform = platform or default_platform()
    if platform == "cpu":
        return Limits(512, 32, 32, 64 << 20)
    kernels = {"gpu": Kernels.GPU, "cuda": Kernels.GPU, "tpu": Kernels.TPU}.get(platform)
    if kernels is Kernels.GPU and not has_triton_backend():
        kernels = None
    return Limits(1 << 16, 1 << 12, 1 << 16, memory_bytes // 8, kernels, 1 << 5)


class BatchMajor(NamedTuple):
    """Leaf (B, F) of `map_chunks`, whose other leaves are (..., B)."""

    values: jax.Array


def map_chunks(
    function: Callable[[T, V], tuple[U, V]],
    operands: T,
    active: jax.Array,
    length: jax.Array,
    defaults: U,
    width: int,
    buffers: V,
    *,
    mostly_active: bool = False,
) -> tuple[U, V]:
    """Apply a function to the active lanes, `width` lanes at a time.

    Args:
        function: Maps operands, leaves (..., width), and buffers to results, leaves (..., width),
            and the buffers for the next chunk.
        operands: Leaves (..., B), or `BatchMajor` leaves.
        active: bool (B,), lanes to process.
        length: integers (B,). Lanes of similar length share a chunk. The last chunk is padded with
            inactive lanes.
        defaults: Leaves (..., B), results of the lanes that are not processed.
        width: Number of lanes per chunk (static).
        buffers: Memory for the first chunk.
        mostly_active: Whether most lanes are active (static). If True, results are written in
            chunk order and sorted at the end.

    Returns:
        Results, leaves (..., B), and the buffers. Inactive lanes have their blank results, or the
        results of the function if they served as padding.
    """
    B = active.shape[0]
    order = _order_by_length(active, length)
    num_chunks = -(-jnp.sum(active, dtype=jnp.int32) // width)

    def process_chunk(i: jax.Array, state: tuple[U, V]) -> tuple[U, V]:
        results, buffers = state
        start = jnp.minimum(i * width, B - width)
        lanes = jax.lax.dynamic_slice_in_dim(order, start, width)
        chunk_results, buffers = function(_take_lanes(operands, lanes), buffers)

        def write(
            leaf: jax.Array | BatchMajor, update: jax.Array | BatchMajor
        ) -> jax.Array | BatchMajor:
            axis = 0 if isinstance(leaf, BatchMajor) else -1
            values, new_values = _get_values(leaf), _get_values(update)
            if mostly_active:
                values = jax.lax.dynamic_update_slice_in_dim(values, new_values, start, axis)
            elif axis == 0:
                values = values.at[lanes].set(new_values, mode="promise_in_bounds")
            else:
                values = values.at[..., lanes].set(new_values, mode="promise_in_bounds")
            return _wrap_like(leaf, values)

        return _map_leaves(write, results, chunk_results), buffers

    initial_results = jax.tree.map(jnp.zeros_like, defaults) if mostly_active else defaults
    results, buffers = jax.lax.fori_loop(0, num_chunks, process_chunk, (initial_results, buffers))
    if not mostly_active:
        return results, buffers
    lane = jnp.arange(B, dtype=jnp.int32)
    rank = jnp.zeros(B, jnp.int32).at[order].set(lane, unique_indices=True)
    is_processed = rank < num_chunks * width

    def fill(
        leaf: jax.Array | BatchMajor, default: jax.Array | BatchMajor
    ) -> jax.Array | BatchMajor:
        mask = is_processed[:, None] if isinstance(leaf, BatchMajor) else is_processed
        return _wrap_like(leaf, jnp.where(mask, _get_values(leaf), _get_values(default)))

    return _map_leaves(fill, _take_lanes(results, rank), defaults), buffers


def _map_leaves(function: Callable[..., Any], *trees: Any) -> Any:
    return jax.tree.map(function, *trees, is_leaf=lambda node: isinstance(node, BatchMajor))


def _get_values(leaf: jax.Array | BatchMajor) -> jax.Array:
    return leaf.values if isinstance(leaf, BatchMajor) else leaf


def _wrap_like(leaf: jax.Array | BatchMajor, values: jax.Array) -> jax.Array | BatchMajor:
    return BatchMajor(values) if isinstance(leaf, BatchMajor) else values


def _take_lanes(tree: T, lanes: jax.Array) -> T:
    def take(leaf: jax.Array | BatchMajor) -> jax.Array | BatchMajor:
        indexer = _get_values(leaf).at
        selection = indexer[lanes] if isinstance(leaf, BatchMajor) else indexer[..., lanes]
        return _wrap_like(leaf, selection.get(mode="promise_in_bounds"))

    return _map_leaves(take, tree)


def order_active_first(active: jax.Array) -> jax.Array:
    """Return `argsort(~active, stable=True)`, int32 (B,), without a sort, which is slow on CPUs."""
    B = active.shape[0]
    lane = jnp.arange(B, dtype=jnp.int32)
    cumulative = jnp.cumsum(active, dtype=jnp.int32)
    rank = jnp.where(active, cumulative - 1, cumulative[-1:] + lane - cumulative)
    return jnp.zeros(B, jnp.int32).at[rank].set(lane, unique_indices=True)


def _order_by_length(active: jax.Array, length: jax.Array) -> jax.Array:
    """Return the lanes, int32 (B,): the active ones by length, then the others."""
    # The sorted numbers encode length and lane, because CPUs sort numbers faster than pairs.
    B = active.shape[0]
    max_rank = np.iinfo(np.int32).max // max(B, 1) - 1
    rank = jnp.where(active, jnp.clip(length.astype(jnp.int32), 0, max_rank - 1), max_rank)
    return jnp.sort(rank * B + jnp.arange(B, dtype=jnp.int32)) % B
