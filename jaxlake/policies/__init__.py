"""Scripted joint policies, their rollouts, and tables over policies and configurations."""

from jaxlake.policies.joint_policy import JointPolicy
from jaxlake.policies.joint_rollout import JointRollout, roll_out, sweep
from jaxlake.policies.plan_following import (
    OptimalPlanner,
    PlanFollowingPolicy,
    Planner,
    optimal_policy,
)
from jaxlake.policies.prioritised_planning import PrioritisedPlanner, prioritised_policy
from jaxlake.policies.random_actions import RandomPolicy
from jaxlake.policies.shortest_path import ShortestPathPolicy

__all__ = [
    "JointPolicy",
    "JointRollout",
    "OptimalPlanner",
    "PlanFollowingPolicy",
    "Planner",
    "PrioritisedPlanner",
    "RandomPolicy",
    "ShortestPathPolicy",
    "optimal_policy",
    "prioritised_policy",
    "roll_out",
    "sweep",
]
