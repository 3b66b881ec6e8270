"""Board generation: mixtures, candidates, sets of solved boards and their feasibility."""

from jaxlake.board.limits import infeasibility as infeasibility
from jaxlake.generator.board_parts import part_of as part_of
from jaxlake.generator.feasibility import FeasibilityRow as FeasibilityRow
from jaxlake.generator.feasibility import KindSurvey as KindSurvey
from jaxlake.generator.feasibility import acceptance as acceptance
from jaxlake.generator.feasibility import feasibility_map as feasibility_map
from jaxlake.generator.feasibility import survey as survey
from jaxlake.generator.generation import MAX_CANDIDATES as MAX_CANDIDATES
from jaxlake.generator.generation import Generated as Generated
from jaxlake.generator.generation import generate as generate
from jaxlake.generator.generation import generate_sharded as generate_sharded
from jaxlake.generator.mixture import LakeParams as LakeParams
from jaxlake.generator.mixture import hole_count as hole_count
from jaxlake.generator.mixture import lake_params as lake_params
