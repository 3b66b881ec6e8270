"""Scripted joint policies, their rollouts, and tables over policies and configurations."""

from jaxlake.policies.policy import Policy
from jaxlake.policies.prioritised import PrioritisedPlanner, prioritised_policy
from jaxlake.policies.random import RandomPolicy
from jaxlake.policies.replay import OptimalPlanner, Planner, ReplayPolicy, optimal_policy
from jaxlake.policies.rollout import Rollout, rollout, sweep
from jaxlake.policies.shortest_path import ShortestPathPolicy

__all__ = [
    "OptimalPlanner",
    "Planner",
    "Policy",
    "PrioritisedPlanner",
    "RandomPolicy",
    "ReplayPolicy",
    "Rollout",
    "ShortestPathPolicy",
    "optimal_policy",
    "prioritised_policy",
    "rollout",
    "sweep",
]
