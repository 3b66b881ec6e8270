"""The dense joint search for two agents with its plans, in one launch for many boards."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.chunks import Kernels, Widths
from jaxlake.solver.joint_search import Geometry, PairPlans, TwoAgentBoards, pack_cells
from jaxlake.solver.kernels.joint_program import Numbers, memory_rows, search
from jaxlake.solver.kernels.lanes import Row, fits, launch

_MAX_WORDS = 4
"""Words of the largest board, 10 x 10: larger ones fill the registers and compile for minutes."""


def serves(machine: Kernels | None, horizon: int, board: Geometry) -> Kernels | None:
    """Return what searches boards of this geometry: a kernel, or None."""
    small = board.words <= _MAX_WORDS
    return machine if machine and small and fits(machine, _words(horizon, board)) else None


def boards_at_once(board: Geometry, widths: Widths, horizon: int) -> int:
    """Return how many boards one launch searches."""
    return widths.fitting(widths.joint_boards, 4 * _words(horizon, board))


def search_pairs(
    boards: TwoAgentBoards,
    running: jax.Array,
    horizon: int,
    board: Geometry,
    machine: Kernels,
    waitless_cost: jax.Array | None = None,
) -> PairPlans:
    """Search and find plans in one launch; arguments are those of `joint_search`.

    With a `waitless_cost` there is no makespan and no plan for it, and plans have no waits.
    """
    T, waiting = horizon, waitless_cost is None
    cost = jnp.zeros_like(running, jnp.int32) if waitless_cost is None else waitless_cost
    kernel = partial(search, horizon=T, board=board, waiting=waiting)
    lanes = (running.astype(jnp.int32)[None], cost.astype(jnp.int32)[None])
    inputs = [pack_cells(boards.free, board), boards.starts, boards.goals, *lanes]
    outputs = [(rows, jnp.int32) for rows in _output_rows(T)]
    scratch = [(rows, jnp.uint32) for rows in memory_rows(T, board)]
    numbers, actions, heads = launch(kernel, machine, inputs, outputs, scratch)
    found = Numbers(*numbers)
    length = found.spent - found.retirement
    # Action c of the one that walks alone leads from cost c - 1 to c, and each takes one step.
    step = np.arange(T)[:, None]
    alone = (step >= found.retirement) & (step < length)
    on_foot = jnp.take_along_axis(actions, jnp.where(alone, step + 1 + found.retirement, 0), axis=0)
    walker = np.arange(2)[:, None] == found.walker
    tail = jnp.where(walker & alone[:, None], on_foot[:, None], 0)
    plan = (tail + heads[0]).astype(jnp.int8)
    return PairPlans(
        sum_of_costs=found.sum_of_costs,
        makespan=found.makespan,
        stuck=found.stuck != 0,
        expansions=found.expansions,
        length=length,
        plan=plan,
        makespan_plan=jnp.where(found.head > 0, heads[1].astype(jnp.int8), plan),
    )


def _output_rows(horizon: int) -> list[Row]:
    return [(len(Numbers._fields),), (2 * horizon + 2,), (2, horizon, 2)]


def _words(horizon: int, board: Geometry) -> int:
    """Return the words of memory that one board takes."""
    rows = [*_output_rows(horizon), *memory_rows(horizon, board)]
    return sum(int(np.prod(one)) for one in rows)
