"""Launch of the kernel that searches constraint trees (`tree_program`)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.bitboard import PITCH, ROW_SHIFT
from jaxlake.solver.chunks import TEAM_LANES, Kernels, Limits, order_active_first
from jaxlake.solver.kernels.lanes import run_programs
from jaxlake.solver.pairs.joint_search import Geometry, geometry, pack_cells
from jaxlake.solver.trees.node import QueryResults, TreeQueries, empty_results

_MAX_ROWS = 16
"""Largest number of rows of a board. Kernels for larger boards take minutes to compile."""

_MAX_HORIZON = 512
"""Longest plan in steps. Each step takes memory in every lane."""


def select_backend(backend: Kernels | None, num_rows: int, horizon: int) -> Kernels | None:
    """Return the backend, or None if the kernel does not support it or the boards."""
    # TPUs cannot gather by lane.
    is_small = num_rows <= _MAX_ROWS and horizon <= _MAX_HORIZON
    return backend if backend is not Kernels.TPU and is_small else None


def search_trees(
    queries: TreeQueries,
    *,
    horizon: int,
    backend: Kernels,
    limits: Limits,
    team: jax.Array | int = 1,
    split: jax.Array | int = 0,
    helpers: int = 1,
) -> QueryResults:
    """Return the result of `trees.search.search_trees`, computed with `helpers` lanes per node."""
    from jax.experimental import pallas as pl  # as slow to import as all of JAX

    from jaxlake.solver.kernels import tree_program
    from jaxlake.solver.kernels.tree_branch import memory_rows
    from jaxlake.solver.kernels.tree_memory import LANES, SCALAR_FIELDS

    (K, Q), T = queries.starts.shape, horizon
    board = geometry(len(queries.free))
    num_nodes = LANES // helpers
    memory_shapes = memory_rows(T, K, board, helpers)
    program_bytes = 4 * num_nodes * sum(int(np.prod(rows)) for rows in memory_shapes)
    num_programs = limits.max_items(-(-Q // (num_nodes // TEAM_LANES)), program_bytes)
    order = order_active_first(queries.active)
    num_active = jnp.sum(queries.active, dtype=jnp.int32)
    settings = jnp.stack([jnp.asarray(x, jnp.int32) for x in (num_active, team, split)])
    scalars = [getattr(queries, name).astype(jnp.int32) for name in SCALAR_FIELDS]
    ends = [_flatten_cells(cells, board) for cells in (queries.starts, queries.goals)]
    bounds = [leaf.astype(jnp.int32) for leaf in (queries.solo_distances, queries.pair_costs)]
    words = [_pack_board(queries.free, board), *ends]
    inputs = [*words, *bounds, queries.staircases, jnp.stack(scalars)]
    padding = -Q % LANES
    inputs = [jnp.pad(x[..., order], [*[(0, 0)] * (x.ndim - 1), (0, padding)]) for x in inputs]

    def pair_with_spec(array: Any) -> tuple[Any, Any]:
        return array, pl.BlockSpec(array.shape, lambda i: (0,) * len(array.shape))

    output_size = Q + padding + LANES
    outputs = [
        jax.ShapeDtypeStruct((len(QueryResults._fields) - 1, output_size), jnp.int32),
        jax.ShapeDtypeStruct((K, T + 1, output_size), jnp.int16),
    ]
    dtypes = [jnp.int32] * (len(memory_shapes) - 2) + [jnp.uint32] * 2
    results, paths = run_programs(
        partial(tree_program.search, board=board, helpers=helpers, barrier=backend is Kernels.GPU),
        backend,
        num_programs,
        list(map(pair_with_spec, (settings, *inputs))),
        list(map(pair_with_spec, outputs)),
        [((*rows, num_nodes), dtype) for rows, dtype in zip(memory_shapes, dtypes, strict=True)],
    )
    inverse_order, defaults = jnp.argsort(order), empty_results(queries, T)
    solved, gave_up, bound, expansions = results[:, inverse_order]
    solved = queries.active & (solved != 0)
    return QueryResults(
        solved=solved,
        gave_up=queries.active & (gave_up != 0),
        bound=jnp.where(queries.active, bound.astype(jnp.int16), defaults.bound),
        expansions=jnp.where(queries.active, expansions, 0),
        paths=jnp.where(solved, _unflatten_cells(paths[..., inverse_order], board), defaults.paths),
    )


def _pack_board(free: jax.Array, board: Geometry) -> jax.Array:
    """Convert bitboards, words (R, B), to sets in the cell numbering of `board`, uint32 (W, B)."""
    columns = np.arange(board.pitch, dtype=np.uint32)[:, None]
    cells = (free.astype(jnp.uint32)[:, None] >> columns) & 1 != 0
    return pack_cells(cells.reshape(board.cells, -1), board)


def _flatten_cells(cells: jax.Array, board: Geometry) -> jax.Array:
    """Convert bitboard cells to the cell numbering of `board`. Absent agents are unchanged."""
    wide = cells.astype(jnp.int32)
    return jnp.where(wide < 0, wide, (wide >> ROW_SHIFT) * board.pitch + (wide & (PITCH - 1)))


def _unflatten_cells(cells: jax.Array, board: Geometry) -> jax.Array:
    """Return the bitboard cells, int16, from which `_flatten_cells` made these."""
    unflattened = (cells // board.pitch << ROW_SHIFT) + cells % board.pitch
    return jnp.where(cells < board.cells, unflattened, cells).astype(jnp.int16)
