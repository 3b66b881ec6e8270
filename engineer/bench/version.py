"""The frozen benchmark `v1`: three tracks of learners that never change."""

from dataclasses import dataclass

from engineer.bench.learners import Learners, Prior, draw_learners
from engineer.domain import Domain
from engineer.lake import Bounds, lake_domain

VERSION = "v1"
STAGES = 6
"""Number of trained stages per run; the engineer designs all except the first."""

SIZES = {2: (4, 6), 4: (3, 4, 5, 6), 8: (3, 4, 5, 6, 7, 8, 9, 10)}
"""The map sizes of each track, by its number of groups."""

_SEED = 20_260_601


@dataclass(frozen=True)
class Track:
    """One track: an environment with its learners."""

    groups: int
    domain: Domain

    def learners(self, count: int) -> Learners:
        """Return the first `count` learners of the track; raises as `draw_learners`."""
        return draw_learners(Prior(), self.domain, count, STAGES, (_SEED, self.groups))


def get_track(groups: int) -> Track:
    """Return the track of `v1` with the given number of groups.

    Raises:
        ValueError: `groups` is not 2, 4 or 8.
    """
    if groups not in SIZES:
        raise ValueError(f"groups must be one of {', '.join(map(str, SIZES))}, got {groups}")
    bounds = Bounds(
        sizes=SIZES[groups], max_hole_ratio=0.4, max_wait_ratio=0.6, min_share=0.05, edit_steps=3
    )
    # Ignore the generator's acceptance rates, which may change between versions.
    return Track(groups, lake_domain(bounds, acceptance=None))
