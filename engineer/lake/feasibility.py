"""Find the nearest knobs for which the lake's generator can make enough boards."""

from collections.abc import Callable
from dataclasses import dataclass

from engineer.domain import InfeasibleError, Knobs
from engineer.lake.configuration import Bounds
from jaxlake.board.limits import infeasibility

Acceptance = Callable[[int, float, float, int], float | None]
"""Maps (size, hole_ratio, wait_ratio, num_agents) to the acceptance rate, the share of random
boards that a set can use, or None if it is unknown."""

MIN_ACCEPTANCE = 1e-3
"""Minimum acceptance rate of a configuration."""


def lookup_acceptance(
    size: int, hole_ratio: float, wait_ratio: float, num_agents: int
) -> float | None:
    """Return `jaxlake.generator.acceptance` of the arguments.

    JAX is imported at the first call, so that configurations can be validated without JAX.
    """
    from jaxlake.generator import acceptance

    return acceptance(size, hole_ratio, wait_ratio, num_agents)


@dataclass(frozen=True)
class NearestFeasible:
    """The lake's `Domain.nearest`.

    The result has the largest hole_ratio, up to the requested one, at which the agents fit on the
    board and some wait_ratio has a sufficient acceptance rate. Its wait_ratio is the nearest value
    with a sufficient rate, or the lower of two equally near values.
    """

    bounds: Bounds  # the grid and the maximum wait_ratio
    num_agents: int = 2
    acceptance: Acceptance | None = lookup_acceptance  # None: do not check acceptance rates

    def __call__(self, group: str, knobs: Knobs) -> Knobs:
        """Return the nearest feasible knobs; raise `InfeasibleError` if there are none."""
        size = int(group)
        requested_hole_ratio, requested_wait_ratio = knobs["hole_ratio"], knobs["wait_ratio"]
        grid = [self.bounds.from_units(steps) for steps in range(self.bounds.units + 1)]
        hole_ratios = [x for x in reversed(grid) if x < requested_hole_ratio]
        wait_ratios = grid[: self.bounds.to_units(self.bounds.max_wait_ratio) + 1]
        wait_ratios.sort(key=lambda x: (round(abs(x - requested_wait_ratio), 9), x))
        for hole_ratio in [requested_hole_ratio, *hole_ratios]:
            if infeasibility(size, hole_ratio, self.num_agents) is not None:
                continue
            for wait_ratio in [requested_wait_ratio, *wait_ratios]:
                if self._is_accepted(size, hole_ratio, wait_ratio):
                    return {**knobs, "hole_ratio": hole_ratio, "wait_ratio": wait_ratio}
        reason = infeasibility(size, 0.0, self.num_agents)
        raise InfeasibleError(reason or f"map size {size}: next to no board can be made")

    def _is_accepted(self, size: int, hole_ratio: float, wait_ratio: float) -> bool:
        if self.acceptance is None:
            return True
        rate = self.acceptance(size, hole_ratio, wait_ratio, self.num_agents)
        return rate is None or rate >= MIN_ACCEPTANCE
