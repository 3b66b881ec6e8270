"""The lake as an environment to be engineered: its knobs, its words, its evidence."""

from engineer.lake.configuration import Bounds, LakeConfiguration, SizeKnobs
from engineer.lake.domain import lake_domain
from engineer.lake.evidence import lake_evidence
from engineer.lake.feasibility import NearestFeasible

__all__ = [
    "Bounds",
    "LakeConfiguration",
    "NearestFeasible",
    "SizeKnobs",
    "lake_domain",
    "lake_evidence",
]
