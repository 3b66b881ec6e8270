"""The nearest knobs of which a stage's sums can all be different."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from engineer.domain import InfeasibleError, Knobs
from engineer.sums.configuration import DigitKnobs, SumsBounds
from engineer.sums.generator import existing, group_quotas
from engineer.sums.instance import Kind, Sum


@dataclass(frozen=True)
class NearestPossible:
    """A `Domain.nearest`: other carries or operands until enough different sums exist.

    Only 45 sums of two one-digit numbers have a carry, so a large share of them can't be had. Among
    equally near knobs the easier ones are taken, then those with fewer third operands.

    Args:
        bounds: the grid and the largest ratios.
        instances: sums of a whole stage.
        held_out: sums that a stage may not use.
    """

    bounds: SumsBounds
    instances: int
    held_out: frozenset[Sum] = frozenset()

    def __call__(self, group: str, knobs: Knobs) -> Knobs:
        """The nearest possible knobs of a group; those that are possible come back as they are.

        Raises:
            InfeasibleError: the group's share asks for more sums than can be had in any way.
        """
        digits, asked = int(group), DigitKnobs(**knobs)
        room = self._room(digits)
        for candidate in self._by_distance(asked):
            if all(self._fits(digits, count, candidate, room) for count in self._counts(asked)):
                return candidate.model_dump()
        raise InfeasibleError(
            f"{self.bounds.group_label} {digits}: data_ratio {asked.data_ratio:g} asks for"
            f" {max(self._counts(asked))} different sums, which its carry_ratio and third_ratio"
            f" can't be set to: {sum(room.values())} can be had"
        )

    def _room(self, digits: int) -> dict[Kind, int]:
        held = Counter(one.kind for one in self.held_out)
        kinds = (Kind(digits, operands, c) for operands in (2, 3) for c in (False, True))
        return {kind: existing(kind) - held[kind] for kind in kinds}

    def _counts(self, knobs: DigitKnobs) -> tuple[int, int]:
        """The group's instances: which of both it is depends on the shares of the others."""
        exact = knobs.data_ratio * self.instances
        return math.floor(exact + 1e-9), math.ceil(exact - 1e-9)

    def _fits(self, digits: int, count: int, knobs: DigitKnobs, room: dict[Kind, int]) -> bool:
        asked = group_quotas(digits, count, knobs)
        return all(quota <= room[kind] for kind, quota in asked.items())

    def _by_distance(self, asked: DigitKnobs) -> Iterator[DigitKnobs]:
        yield asked
        carries, thirds = (self._grid(knob) for knob in self.bounds.difficulty_knobs)
        pairs = ((carry, third) for carry in carries for third in thirds)
        for carry, third in sorted(pairs, key=lambda pair: _order(asked, *pair)):
            yield asked.model_copy(update={"carry_ratio": carry, "third_ratio": third})

    def _grid(self, knob: str) -> list[float]:
        most = self.bounds.to_units(self.bounds.maximum(knob))
        return [self.bounds.from_units(steps) for steps in range(most + 1)]


def _order(asked: DigitKnobs, carry: float, third: float) -> tuple[float, float, float]:
    distance = abs(carry - asked.carry_ratio) + abs(third - asked.third_ratio)
    return round(distance, 9), round(carry + third, 9), third
