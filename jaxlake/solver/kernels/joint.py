"""The dense joint search for two agents in one launch for many boards, with or without its plans.

Plans need all layers of a search, so that a program has much memory, and much to write. Costs alone
need the last two.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.chunks import Kernels, Widths
from jaxlake.solver.joint_search import (
    Geometry,
    JointOptima,
    PairPlans,
    TwoAgentBoards,
    pack_cells,
)
from jaxlake.solver.kernels.joint_lanes import (
    BOARDS,
    MAX_ROWS,
    Columns,
    Numbers,
    lanes_of,
    memory_rows,
    output_rows,
)
from jaxlake.solver.kernels.joint_program import search
from jaxlake.solver.kernels.lanes import VECTOR_REGISTER, WARP, fits, run_programs


def serves(machine: Kernels | None, horizon: int, board: Geometry) -> Kernels | None:
    """Return what searches boards of this geometry: a kernel, or None."""
    if machine is None or board.pitch > MAX_ROWS + 1:
        return None
    lanes = lanes_of(machine, board)
    registers = _rows(horizon, board, lanes) * -(-lanes // VECTOR_REGISTER[1])
    return machine if fits(machine, registers) else None


def boards_at_once(board: Geometry, widths: Widths, horizon: int | None) -> int:
    """Return how many boards one launch searches; without a horizon it finds no plans."""
    lanes = lanes_of(widths.kernels, board)
    return widths.fitting(widths.joint_boards, 4 * lanes * _rows(horizon, board, lanes))


def search_costs(
    boards: TwoAgentBoards,
    running: jax.Array,
    horizon: int,
    board: Geometry,
    machine: Kernels,
    waitless_cost: jax.Array | None = None,
) -> JointOptima:
    """Search without plans in one launch; arguments are those of `joint_search`."""
    found, _ = _search(boards, running, horizon, board, machine, waitless_cost, plans=False)
    stuck = found.stuck != 0
    return JointOptima(found.sum_of_costs, found.makespan, stuck, found.expansions, None)


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
    T, B = horizon, len(running)
    found, by_row = _search(boards, running, horizon, board, machine, waitless_cost, plans=True)
    actions, heads = jnp.split(by_row, [output_rows(T, by_row.shape[1]).actions])
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


def _search(
    boards: TwoAgentBoards,
    running: jax.Array,
    horizon: int,
    board: Geometry,
    machine: Kernels,
    waitless_cost: jax.Array | None,
    *,
    plans: bool,
) -> tuple[Numbers, jax.Array]:
    """Search: give what is said of each board, and the rows of plans, int32 (rows, lanes, B)."""
    from jax.experimental import pallas as pl  # as slow as all of JAX to import

    waiting, B, kept = waitless_cost is None, len(running), horizon if plans else None
    cost = jnp.zeros_like(running, jnp.int32) if waitless_cost is None else waitless_cost
    (start_0, start_1), (goal_0, goal_1) = boards.starts, boards.goals
    columns = Columns(start_0, start_1, goal_0, goal_1, running, cost)
    words = (*pack_cells(boards.free, board), *columns)
    told = jnp.stack([word.astype(jnp.int32) for word in words], axis=1)
    at_once, lanes = BOARDS[machine], lanes_of(machine, board)
    programs, rows = -(-B // at_once), output_rows(kept, lanes)
    told = jnp.pad(told, [(0, programs * at_once - B), (0, 0)])
    (output,) = run_programs(
        partial(
            search, horizon=horizon, board=board, waiting=waiting, plans=plans, machine=machine
        ),
        machine,
        programs,
        [(told, pl.BlockSpec((at_once, told.shape[1]), lambda i: (i, 0)))],
        [
            (
                jax.ShapeDtypeStruct((rows.total, programs * at_once, lanes), jnp.int32),
                pl.BlockSpec((rows.total, at_once, lanes), lambda i: (0, i, 0)),
            )
        ],
        [((*memory_rows(kept, board), at_once, lanes), jnp.uint32)],
        warps=lanes // WARP,
    )
    by_row = output[:, :B].transpose(0, 2, 1)  # (rows, lanes, B)
    return Numbers(*by_row[0, : len(Numbers._fields)]), by_row[1:]


def _rows(horizon: int | None, board: Geometry, lanes: int) -> int:
    """Return the rows of lanes that a board takes in memory."""
    return int(np.prod(memory_rows(horizon, board))) + output_rows(horizon, lanes).total
