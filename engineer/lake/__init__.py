"""The lake behind the engineer's interface: its knobs and its words."""

from engineer.lake.configuration import Bounds, LakeConfiguration, SizeKnobs
from engineer.lake.domain import lake_domain
from engineer.lake.feasibility import NearestFeasible

__all__ = [
    "Bounds",
    "LakeConfiguration",
    "NearestFeasible",
    "SizeKnobs",
    "lake_domain",
]
