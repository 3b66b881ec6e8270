"""Convert solutions to fields of JSON records and data sets."""

from typing import Any

import numpy as np

from jaxlake.language.prompts import action_names
from jaxlake.solver import Solution, Status

OPTIMA = ("sum_of_costs", "makespan", "needs_wait", "plan", "makespan_plan")


def optimum_fields(solution: Solution, num_agents: int | None = None) -> dict[str, Any]:
    """Return the optima of an OPTIMAL solution, with its plan as trimmed action names.

    Args:
        solution: the solution, unbatched.
        num_agents: number of agents, in the first slots; None if all slots are used.
    """
    return {
        "sum_of_costs": int(solution.sum_of_costs),
        "makespan": int(solution.makespan),
        "needs_wait": bool(solution.needs_wait),
        "plan": action_names(np.asarray(solution.plan)[:, :num_agents]),
    }


def solution_fields(solution: Solution, num_agents: int) -> dict[str, Any]:
    """Return all fields of a solution; optima and plans are None unless it is OPTIMAL."""
    fields: dict[str, Any] = {"status": Status(int(solution.status)).name}
    if solution.status == Status.OPTIMAL:
        plan = np.asarray(solution.makespan_plan)[:, :num_agents]
        fields |= optimum_fields(solution, num_agents) | {"makespan_plan": action_names(plan)}
    else:
        fields |= dict.fromkeys(OPTIMA)
    return fields | {"expansions": int(solution.expansions)}
