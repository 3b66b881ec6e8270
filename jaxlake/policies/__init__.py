"""Scripted joint policies, their rollouts, and tables over policies and configurations."""

from jaxlake.policies.catalogue import policy_of as policy_of
from jaxlake.policies.joint_rollout import JointPolicy as JointPolicy
from jaxlake.policies.joint_rollout import JointRollout as JointRollout
from jaxlake.policies.joint_rollout import roll_out as roll_out
from jaxlake.policies.joint_rollout import sweep as sweep
from jaxlake.policies.plan_following import PlanFollowingPolicy as PlanFollowingPolicy
from jaxlake.policies.plan_following import Planner as Planner
from jaxlake.policies.plan_following import optimal_policy as optimal_policy
from jaxlake.policies.plan_following import prioritised_policy as prioritised_policy
from jaxlake.policies.reactive import RandomPolicy as RandomPolicy
from jaxlake.policies.reactive import ShortestPathPolicy as ShortestPathPolicy
