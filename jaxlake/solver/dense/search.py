"""Tier 6: dense search of the boards that the constraint trees left unsolved."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.board.instance import Instance
from jaxlake.solver.chunks import Limits
from jaxlake.solver.dense import joint
from jaxlake.solver.dense.components import DenseBoards
from jaxlake.solver.dense.joint import DenseResults
from jaxlake.solver.solution import Solution, Status

MAX_EXPANSIONS_BEFORE_DENSE = {
    3: ((30, 32), (62, 128), (94, 512)),
    4: ((14, 64), (18, 128), (26, 256), (58, 16384)),
    5: ((14, 1024), (18, 2048), (22, 4096), (26, 16384)),
}
"""By number of slots: pairs of a component size (see `component_sizes`) and the number of agents
that the tree search may replan on boards up to this size before `dense.joint` takes over."""

DENSE_AXIS_SIZES = {3: (32, 64, 96), 4: (20, 28, 60), 5: (20, 28)}
"""By number of slots: axis sizes of `dense.joint`. A board uses the smallest one that fits."""


def split_by_size(sizes: jax.Array, max_sizes: Sequence[int]) -> list[jax.Array]:
    """Return one mask, bool (B,), per maximum: sizes up to it and above the previous one."""
    return [
        (sizes > previous) & (sizes <= limit)
        for previous, limit in zip([-1, *max_sizes[:-1]], max_sizes, strict=True)
    ]


class ShortestPlans(NamedTuple):
    """Plans of least makespan, also for boards whose optimal sum of costs is unknown."""

    proved: jax.Array  # bool (B,), the makespan is proved to be optimal
    makespan: jax.Array  # int16 (B,)
    plan: jax.Array  # int8 (B, T, K)


class TreeResults(NamedTuple):
    """Results of the search of constraint trees."""

    solution: Solution  # leaves (B, ...)
    shortest: ShortestPlans
    bounds: jax.Array  # int32 (2, 2, B): lower and upper bound on the least makespan, then on the
    #   least sum of costs
    remaining: jax.Array  # bool (C, B), unsolved boards for each of the C `DENSE_AXIS_SIZES`


def solve_remaining(
    batch: Instance, results: TreeResults, size_index: int, horizon: int, limits: Limits
) -> TreeResults:
    """Solve the remaining boards of one of the axis sizes; `size_index` is static."""
    solution, shortest, bounds, remaining = results
    boards = DenseBoards(
        free=jnp.moveaxis(~batch.holes, 0, -1),
        starts=jnp.moveaxis(batch.starts.astype(jnp.int32), 0, -1),
        goals=jnp.moveaxis(batch.goals.astype(jnp.int32), 0, -1),
        agent_mask=batch.agent_mask.T,
        has_makespan=shortest.proved,
        makespan_bounds=bounds[0],
        cost_bounds=bounds[1],
    )
    axis_size = DENSE_AXIS_SIZES[batch.agent_mask.shape[1]][size_index]
    dense_results = joint.solve_dense(boards, remaining[size_index], horizon, axis_size, limits)
    return results._replace(solution=_merge_results(solution, shortest, dense_results))


def _merge_results(solution: Solution, shortest: ShortestPlans, results: DenseResults) -> Solution:
    is_optimal, is_proved = results.optimal, results.optimal | results.unsolvable
    status = jnp.where(is_optimal, jnp.int8(Status.OPTIMAL), jnp.int8(Status.UNSOLVABLE))

    has_makespan = shortest.proved[:, None, None]
    makespan = jnp.where(shortest.proved, shortest.makespan, results.makespan)
    plan, makespan_plan = (jnp.moveaxis(x, -1, 0) for x in (results.plan, results.makespan_plan))

    def merge(new_leaf: jax.Array, old_leaf: jax.Array) -> jax.Array:
        return jnp.where(is_optimal.reshape(-1, *(1,) * (old_leaf.ndim - 1)), new_leaf, old_leaf)

    return Solution(
        status=jnp.where(is_proved, status, solution.status),
        sum_of_costs=merge(results.sum_of_costs, solution.sum_of_costs),
        makespan=merge(makespan, solution.makespan),
        needs_wait=merge(results.needs_wait, solution.needs_wait),
        plan=merge(plan, solution.plan),
        makespan_plan=merge(
            jnp.where(has_makespan, shortest.plan, makespan_plan), solution.makespan_plan
        ),
        expansions=solution.expansions + results.num_sets,
    )
