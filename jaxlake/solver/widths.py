"""How many boards, lanes and sets of cells the solver works on at a time.

Wider loops use a device better, and narrower ones end earlier. Results do not depend on any of
these numbers, but for `TEAM_LANES`, `SHARED_SPLITS` and `EXPANSIONS_BEFORE_TEAM`, which decide in
what order a constraint tree is searched.
"""

import jax

PLANNED_BOARDS = 512
"""Boards for which prioritised planning plans at a time."""

TREE_LANES = 128
"""Nodes of constraint trees in hand at a time."""

TEAM_LANES = 16
"""Lanes of a team that searches one constraint tree together."""

SHARED_SPLITS = 6
"""Splits at the top of a tree that are shared out among the lanes of its team."""

EXPANSIONS_BEFORE_TEAM = 64
"""Expansions of one lane after which a team takes over."""

OCCUPANCY_BLOCK = 32
"""Sets of occupied cells whose moves `permutations` looks at together."""


def joint_search_lanes(bytes_per_layer: int, layers: int) -> int:
    """Return how many boards one joint search holds, each with so many layers at once.

    They are few enough for the cache of a CPU and many enough to fill an accelerator.
    """
    most, megabytes = (32, 64) if jax.default_backend() == "cpu" else (2048, 4096)
    return max(1, min(most, (megabytes << 20) // (bytes_per_layer * layers)))
