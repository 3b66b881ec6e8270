"""Boards by the thousand: what to make, how it is drawn, and what can't be made."""

from jaxlake.generator.feasibility import FeasibilityRow, Stratum, feasibility_map, survey
from jaxlake.generator.feasibility_svg import feasibility_svg
from jaxlake.generator.feasibility_table import acceptance
from jaxlake.generator.generate import MAX_CANDIDATES, Generated, generate, generate_sharded
from jaxlake.generator.params import LakeParams, hole_count, infeasibility, lake_params

__all__ = [
    "MAX_CANDIDATES",
    "FeasibilityRow",
    "Generated",
    "LakeParams",
    "Stratum",
    "acceptance",
    "feasibility_map",
    "feasibility_svg",
    "generate",
    "generate_sharded",
    "hole_count",
    "infeasibility",
    "lake_params",
    "survey",
]
