"""The lake as an environment of the engineer."""

from engineer.lake.configuration import Bounds, LakeConfiguration, SizeKnobs
from engineer.lake.domain import lake_domain
from engineer.lake.feasibility import NearestFeasible

__all__ = ["Bounds", "LakeConfiguration", "NearestFeasible", "SizeKnobs", "lake_domain"]
