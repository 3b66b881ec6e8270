"""Chunked processing of large batches, with chunk sizes that depend on the platform.

Results do not depend on these sizes, except on `TEAM_LANES`, `SHARED_SPLITS` and
`EXPANSIONS_BEFORE_TEAM`.
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
"""Lanes of a team that searches one constraint tree together."""

SHARED_SPLITS = 6
"""Splits at the top of a tree that the lanes of its team divide among themselves."""

EXPANSIONS_BEFORE_TEAM = 64
"""Expansions of one lane after which a team takes over."""

NODE_LANES = 8
"""Lanes of a kernel per node of a team's constraint tree; results equal those of a single lane."""

OCCUPANCY_BLOCK = 32
"""Occupancy sets whose moves `permutations` expands at once."""


class Kernels(Enum):
    """Target for which the kernels of `jaxlake.solver.kernels` are compiled."""

    GPU = "gpu"
    TPU = "tpu"
    INTERPRETED = "interpreted"  # emulated by XLA operations on any machine, for tests


@dataclass(frozen=True)
class Widths:
    """Number of boards that the solver processes at once; affects speed and memory only."""

    planned_boards: int  # maximum number of boards in prioritised planning
    tree_lanes: int  # maximum number of constraint-tree nodes, rounded down to a power of two;
    #   kernels hold as many as `loop_bytes` allows
    joint_boards: int  # maximum number of boards in a joint search; below 64, `dense` searches
    #   block by block
    loop_bytes: int  # memory for the sets of each loop; longer plans leave room for fewer boards
    kernels: Kernels | None = None  # use Pallas kernels where available; None: XLA loops
    crowded_boards: int = 1  # number of boards that `permutations` examines at once

    def __post_init__(self) -> None:
        numbers = {name: value for name, value in vars(self).items() if name != "kernels"}
        if wrong := [name for name, value in numbers.items() if value < 1]:
            raise ValueError(f"{wrong[0]} must be at least 1, got {numbers[wrong[0]]}")

    def fitting(self, limit: int, bytes_each: int) -> int:
        """Return how many sets of `bytes_each` fit into a loop: at least one, at most `limit`."""
        return max(1, min(limit, self.loop_bytes // bytes_each))


def default_platform() -> str:
    """Return the platform of JAX's default device."""
    # The user may set it globally or by `with jax.default_device(...)`.
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else str(device.platform)


def widths_for(platform: str | None = None, memory_bytes: int = 16 << 30) -> Widths:
    """Return widths for a platform: few boards for a CPU's cache, many for an accelerator.

    Args:
        platform: Platform name such as "cpu", "gpu" or "tpu". Defaults to the platform of JAX's
            default device.
        memory_bytes: Memory of the accelerator; each loop gets an eighth of it.

    Returns:
        The widths, without kernels on GPUs if JAX has no Triton backend for Pallas.
    """
    platform = platform or default_platform()
    if platform == "cpu":
        return Widths(512, 32, 32, 64 << 20)
    kernels = {"gpu": Kernels.GPU, "cuda": Kernels.GPU, "tpu": Kernels.TPU}.get(platform)
    if kernels is Kernels.GPU and not has_triton_backend():
        kernels = None
    return Widths(1 << 16, 1 << 12, 1 << 16, memory_bytes // 8, kernels, 1 << 5)


class Rows(NamedTuple):
    """Leaf (B, F) of `map_chunks`. All other leaves are (..., B)."""

    values: jax.Array


def map_chunks(
    work: Callable[[T, V], tuple[U, V]],
    operands: T,
    active: jax.Array,
    length: jax.Array,
    blank: U,
    width: int,
    buffers: V,
    *,
    mostly_active: bool = False,
) -> tuple[U, V]:
    """Apply `work` to the active lanes, `width` lanes at a time.

    Any leaf may be `Rows`.

    Args:
        work: Maps operands, leaves (..., width), and buffers to results, leaves (..., width), and
            the buffers for the next chunk.
        operands: Leaves (..., B).
        active: bool (B,), lanes to process.
        length: integers (B,). Lanes of similar length share a chunk; the last chunk is padded with
            inactive lanes.
        blank: Leaves (..., B), results of the lanes that are not processed.
        width: Lanes per chunk (static).
        buffers: Memory for the first chunk.
        mostly_active: Whether most lanes are active (static). If True, results are written in
            chunk order and sorted at the end.

    Returns:
        Leaves (..., B), with the results of at least all active lanes, and the buffers.
    """
    B = active.shape[0]
    order = _order_by_length(active, length)
    chunks = -(-jnp.sum(active, dtype=jnp.int32) // width)

    def do_chunk(i: jax.Array, state: tuple[U, V]) -> tuple[U, V]:
        results, buffers = state
        begin = jnp.minimum(i * width, B - width)
        lanes = jax.lax.dynamic_slice_in_dim(order, begin, width)
        new, buffers = work(_take_lanes(operands, lanes), buffers)

        def write(leaf: jax.Array | Rows, update: jax.Array | Rows) -> jax.Array | Rows:
            axis, values, new = _lane_axis(leaf), _values(leaf), _values(update)
            if mostly_active:
                values = jax.lax.dynamic_update_slice_in_dim(values, new, begin, axis)
            elif axis == 0:
                values = values.at[lanes].set(new, mode="promise_in_bounds")
            else:
                values = values.at[..., lanes].set(new, mode="promise_in_bounds")
            return _wrap_like(leaf, values)

        return _map(write, results, new), buffers

    initial = jax.tree.map(jnp.zeros_like, blank) if mostly_active else blank
    results, buffers = jax.lax.fori_loop(0, chunks, do_chunk, (initial, buffers))
    if not mostly_active:
        return results, buffers
    lane = jnp.arange(B, dtype=jnp.int32)
    place = jnp.zeros(B, jnp.int32).at[order].set(lane, unique_indices=True)
    processed = place < chunks * width

    def fill(leaf: jax.Array | Rows, default: jax.Array | Rows) -> jax.Array | Rows:
        where = processed[:, None] if isinstance(leaf, Rows) else processed
        return _wrap_like(leaf, jnp.where(where, _values(leaf), _values(default)))

    return _map(fill, _take_lanes(results, place), blank), buffers


def _map(function: Callable[..., Any], *trees: Any) -> Any:
    return jax.tree.map(function, *trees, is_leaf=lambda node: isinstance(node, Rows))


def _values(leaf: jax.Array | Rows) -> jax.Array:
    return leaf.values if isinstance(leaf, Rows) else leaf


def _wrap_like(leaf: jax.Array | Rows, values: jax.Array) -> jax.Array | Rows:
    return Rows(values) if isinstance(leaf, Rows) else values


def _lane_axis(leaf: jax.Array | Rows) -> int:
    return 0 if isinstance(leaf, Rows) else -1


def _take_lanes(tree: T, lanes: jax.Array) -> T:
    """Select lanes of leaves (..., B) and of `Rows`."""

    def take(leaf: jax.Array | Rows) -> jax.Array | Rows:
        places = _values(leaf).at
        selection = places[lanes] if isinstance(leaf, Rows) else places[..., lanes]
        return _wrap_like(leaf, selection.get(mode="promise_in_bounds"))

    return _map(take, tree)


def order_active_first(active: jax.Array) -> jax.Array:
    """Return `argsort(~active, stable=True)`, int32 (B,).

    Cumulative sums are faster than sorting on CPUs.
    """
    B = active.shape[0]
    lane = jnp.arange(B, dtype=jnp.int32)
    cumulative = jnp.cumsum(active, dtype=jnp.int32)
    place = jnp.where(active, cumulative - 1, cumulative[-1:] + lane - cumulative)
    return jnp.zeros(B, jnp.int32).at[place].set(lane, unique_indices=True)


def _order_by_length(active: jax.Array, length: jax.Array) -> jax.Array:
    """Return the lanes, int32 (B,): active ones first and sorted by length."""
    # Each number encodes length and lane, because CPUs sort numbers faster than pairs.
    B = active.shape[0]
    last = np.iinfo(np.int32).max // max(B, 1) - 1
    rank = jnp.where(active, jnp.clip(length.astype(jnp.int32), 0, last - 1), last)
    return jnp.sort(rank * B + jnp.arange(B, dtype=jnp.int32)) % B
