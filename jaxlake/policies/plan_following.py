"""Policies that plan once and then follow the plan."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxlake.dynamics import Action
from jaxlake.instance import Instance
from jaxlake.solver import DEFAULT_HORIZON, solve

Planner = Callable[[jax.Array, Instance], jax.Array]
"""(key, instance) -> plan int8 (T, K); negative entries count as WAIT."""


@dataclass(frozen=True)
class PlanFollowingPolicy:
    """Follows the plan that a planner makes at the start, and waits after its last step.

    The plan is never changed: where a conflict policy holds an agent back, the others go on.
    """

    planner: Planner

    def start(self, key: jax.Array, instance: Instance) -> jax.Array:
        """The plan, int8 (T, K)."""
        plan = jnp.asarray(self.planner(key, instance), jnp.int8)
        return jnp.maximum(plan, jnp.int8(Action.WAIT))

    def act(
        self,
        key: jax.Array,
        instance: Instance,
        positions: jax.Array,
        time: jax.Array,
        memory: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        """See `JointPolicy.act`."""
        T = memory.shape[0]
        row = memory[jnp.minimum(time, T - 1)]
        return jnp.where(time < T, row, jnp.int8(Action.WAIT)), memory


@dataclass(frozen=True)
class OptimalPlanner:
    """The plan of `solve` with the least sum of costs, or of least makespan; WAIT without one."""

    horizon: int = DEFAULT_HORIZON
    makespan: bool = False

    def __call__(self, key: jax.Array, instance: Instance) -> jax.Array:
        """Plan int8 (horizon, K)."""
        solution = solve(instance, horizon=self.horizon)
        return solution.makespan_plan if self.makespan else solution.plan


def optimal_policy(
    horizon: int = DEFAULT_HORIZON, *, makespan: bool = False
) -> PlanFollowingPolicy:
    """Carry out an optimal plan; agents of boards without one, or with none found, wait."""
    return PlanFollowingPolicy(OptimalPlanner(horizon, makespan))
