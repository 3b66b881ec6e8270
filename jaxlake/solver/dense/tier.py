"""Tier 6: dense search of the boards that the constraint trees left unsolved."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.board.instance import Instance
from jaxlake.solver.chunks import Widths
from jaxlake.solver.dense import joint
from jaxlake.solver.dense.components import DenseBoards
from jaxlake.solver.dense.joint import DenseAnswers
from jaxlake.solver.solution import Solution, Status

DENSE_BUDGETS = {
    3: ((30, 32), (62, 128), (94, 512)),
    4: ((14, 64), (18, 128), (26, 256), (58, 16384)),
    5: ((14, 1024), (18, 2048), (22, 4096), (26, 16384)),
}
"""Number of replanned agents after which `joint` takes over, by slots and largest component size in
cells or edges. Larger components take longer."""

DENSE_RADIXES = {3: (32, 64, 96), 4: (20, 28, 60), 5: (20, 28)}
"""By slots: radixes of `joint`; a board uses the smallest one that fits."""


def split_by_size(sizes: jax.Array, limits: Sequence[int]) -> list[jax.Array]:
    """Return, per limit, the sizes up to it that exceed the previous limit, bool (B,) each."""
    return [
        (sizes > below) & (sizes <= limit)
        for below, limit in zip([-1, *limits[:-1]], limits, strict=True)
    ]


class ShortestPlans(NamedTuple):
    """Plans of least makespan, including boards whose optimal sum of costs is unknown."""

    proved: jax.Array  # bool (B,)
    makespan: jax.Array  # int16 (B,)
    plan: jax.Array  # int8 (B, T, K)


class TreeResults(NamedTuple):
    """Boards after the search of constraint trees, in batch order."""

    solution: Solution  # leaves (B, ...)
    shortest: ShortestPlans
    bounds: jax.Array  # int32 (2, 2, B), bounds on the least makespan and on the least cost
    remaining: jax.Array  # bool (C, B), boards left for each of the C `DENSE_RADIXES`


def solve_remaining(
    batch: Instance, results: TreeResults, radix_index: int, horizon: int, widths: Widths
) -> TreeResults:
    """Solve the boards that the trees left for one of the radixes (static)."""
    solution, shortest, bounds, remaining = results
    boards = DenseBoards(
        free=jnp.moveaxis(~batch.holes, 0, -1),
        starts=jnp.moveaxis(batch.starts.astype(jnp.int32), 0, -1),
        goals=jnp.moveaxis(batch.goals.astype(jnp.int32), 0, -1),
        mask=batch.agent_mask.T,
        timed=shortest.proved,
        makespans=bounds[0],
        costs=bounds[1],
    )
    radix = DENSE_RADIXES[batch.agent_mask.shape[1]][radix_index]
    answers = joint.solve_dense(boards, remaining[radix_index], horizon, radix, widths)
    return results._replace(solution=_merge_dense_answers(solution, shortest, answers))


def _merge_dense_answers(
    solution: Solution, shortest: ShortestPlans, answers: DenseAnswers
) -> Solution:
    optimal, proved = answers.optimal, answers.optimal | answers.unsolvable
    status = jnp.where(optimal, jnp.int8(Status.OPTIMAL), jnp.int8(Status.UNSOLVABLE))

    timed = shortest.proved[:, None, None]
    makespan = jnp.where(shortest.proved, shortest.makespan, answers.makespan)
    plan, makespan_plan = (jnp.moveaxis(x, -1, 0) for x in (answers.plan, answers.makespan_plan))

    def merge(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(optimal.reshape(-1, *(1,) * (old.ndim - 1)), new, old)

    return Solution(
        status=jnp.where(proved, status, solution.status),
        sum_of_costs=merge(answers.sum_of_costs, solution.sum_of_costs),
        makespan=merge(makespan, solution.makespan),
        needs_wait=merge(answers.needs_wait, solution.needs_wait),
        plan=merge(plan, solution.plan),
        makespan_plan=merge(jnp.where(timed, shortest.plan, makespan_plan), solution.makespan_plan),
        expansions=solution.expansions + answers.layers,
    )
