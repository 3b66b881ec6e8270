"""Boards by the thousand: what to make, how it is drawn, and what can't be made."""

from jaxlake.generator.feasibility import (
    FeasibilityRow,
    KindSurvey,
    acceptance,
    feasibility_map,
    survey,
)
from jaxlake.generator.generation import MAX_CANDIDATES, Generated, generate, generate_sharded
from jaxlake.generator.mixture import LakeParams, hole_count, infeasibility, lake_params

__all__ = [
    "MAX_CANDIDATES",
    "FeasibilityRow",
    "Generated",
    "KindSurvey",
    "LakeParams",
    "acceptance",
    "feasibility_map",
    "generate",
    "generate_sharded",
    "hole_count",
    "infeasibility",
    "lake_params",
    "survey",
]
