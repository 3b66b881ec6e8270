"""The dense joint search for two agents with its plans, in one launch for many boards."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.chunks import Kernels, Widths
from jaxlake.solver.joint_search import Geometry, PairPlans, TwoAgentBoards, pack_cells
from jaxlake.solver.kernels.joint_lanes import Columns, Numbers, memory_rows, output_rows
from jaxlake.solver.kernels.joint_program import search
from jaxlake.solver.kernels.lanes import VECTOR_REGISTER, WARP, fits, run_programs

_MAX_ROWS = 16
"""Rows of the largest board, as of the other kernels: 512 lanes with 9 words of cells each."""

_BOARDS = {Kernels.GPU: 1, Kernels.TPU: VECTOR_REGISTER[0], Kernels.INTERPRETED: 32}
"""Boards of one program."""


def serves(machine: Kernels | None, horizon: int, board: Geometry) -> Kernels | None:
    """Return what searches boards of this geometry: a kernel, or None."""
    if machine is None or board.pitch > _MAX_ROWS + 1:
        return None
    lanes = _lanes(machine, board)
    registers = _rows(horizon, board, lanes) * -(-lanes // VECTOR_REGISTER[1])
    return machine if fits(machine, registers) else None


def boards_at_once(board: Geometry, widths: Widths, horizon: int) -> int:
    """Return how many boards one launch searches."""
    lanes = _lanes(widths.kernels, board)
    return widths.fitting(widths.joint_boards, 4 * lanes * _rows(horizon, board, lanes))


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
    from jax.experimental import pallas as pl  # as slow as all of JAX to import

    T, waiting, B = horizon, waitless_cost is None, len(running)
    cost = jnp.zeros_like(running, jnp.int32) if waitless_cost is None else waitless_cost
    (start_0, start_1), (goal_0, goal_1) = boards.starts, boards.goals
    columns = Columns(start_0, start_1, goal_0, goal_1, running, cost)
    words = (*pack_cells(boards.free, board), *columns)
    told = jnp.stack([word.astype(jnp.int32) for word in words], axis=1)
    at_once, lanes = _BOARDS[machine], _lanes(machine, board)
    programs, rows = -(-B // at_once), output_rows(T, lanes)
    told = jnp.pad(told, [(0, programs * at_once - B), (0, 0)])
    (output,) = run_programs(
        partial(search, horizon=T, board=board, waiting=waiting, machine=machine),
        machine,
        programs,
        [(told, pl.BlockSpec((at_once, told.shape[1]), lambda i: (i, 0)))],
        [
            (
                jax.ShapeDtypeStruct((rows.total, programs * at_once, lanes), jnp.int32),
                pl.BlockSpec((rows.total, at_once, lanes), lambda i: (0, i, 0)),
            )
        ],
        [((*memory_rows(T, board), at_once, lanes), jnp.uint32)],
        warps=lanes // WARP,
    )
    by_row = output[:, :B].transpose(0, 2, 1)  # (rows, lanes, B)
    numbers, actions, heads = jnp.split(by_row, np.cumsum(rows[:2]))
    found = Numbers(*numbers[0, : len(Numbers._fields)])
    actions = actions.reshape(-1, B)
    pairs = heads.reshape(2, -1, B)[:, :T]
    both_act = jnp.stack([pairs // 5, pairs % 5], axis=2)  # (plans, T, agents, B)
    length = found.spent - found.retirement
    # Action c of the one that walks alone leads from cost c - 1 to c, and each takes one step.
    step = np.arange(T)[:, None]
    alone = (step >= found.retirement) & (step < length)
    on_foot = jnp.take_along_axis(actions, jnp.where(alone, step + 1 + found.retirement, 0), axis=0)
    walker = np.arange(2)[:, None] == found.walker
    tail = jnp.where(walker & alone[:, None], on_foot[:, None], 0)
    plan = (tail + both_act[0]).astype(jnp.int8)
    return PairPlans(
        sum_of_costs=found.sum_of_costs,
        makespan=found.makespan,
        stuck=found.stuck != 0,
        expansions=found.expansions,
        length=length,
        plan=plan,
        makespan_plan=jnp.where(found.head > 0, both_act[1].astype(jnp.int8), plan),
    )


def _lanes(machine: Kernels | None, board: Geometry) -> int:
    """Return the lanes of a board: one for each cell, and empty ones to step into off the board."""
    least = VECTOR_REGISTER[1] if machine is Kernels.TPU else WARP
    return max(least, 1 << (board.cells + board.pitch - 1).bit_length())


def _rows(horizon: int, board: Geometry, lanes: int) -> int:
    """Return the rows of lanes that a board takes in memory."""
    return int(np.prod(memory_rows(horizon, board))) + output_rows(horizon, lanes).total
