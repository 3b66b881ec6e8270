"""A design atlas: measurements of learnability p(1-p) on a grid, which score any configuration.

`docs/reading.md` lists the formulas and their assumptions.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from engineer.domain import Domain, Knobs
from engineer.space import Configuration, FrozenModel, Ratio

BoardCount = Annotated[int, Field(ge=0, lt=2**40, strict=True)]
"""Number of boards, bounded so that sums do not overflow."""


class AtlasCell(FrozenModel):
    """The answers to the boards of one group at fixed levels of all knobs."""

    group: str
    knobs: dict[str, Ratio]  # the level of every knob except the share
    boards: tuple[BoardCount, ...] = Field(min_length=3)
    """Numbers of boards with 0, 1, ..., n valid answers of n; all 0 if no board can be made."""

    @property
    def answers(self) -> int:
        """The number of answers per board, n >= 2."""
        return len(self.boards) - 1

    @property
    def count(self) -> int:
        """The number of boards; 0 if no board can be made."""
        return sum(self.boards)

    @property
    def learnability(self) -> float | None:
        """The mean of p(1-p) over boards; None without boards.

        For a board with k of n valid answers, k(n-k) / (n(n-1)) is an unbiased estimate of p(1-p).
        It is the fraction of ordered pairs of answers that consist of a valid and an invalid one.
        """
        if not self.count:
            return None
        n, k = self.answers, np.arange(self.answers + 1)
        return float(np.array(self.boards) @ (k * (n - k) / (n * (n - 1))) / self.count)


class DesignAtlas(FrozenModel):
    """Measured learnability on a grid of cells per group.

    p(1-p) is interpolated linearly between the levels of a knob. This is exact for mixtures
    (`Factor.mixture`) if their pure levels are measured. p(1-p) is constant beyond the outermost
    levels.
    """

    cells: tuple[AtlasCell, ...] = Field(min_length=1)  # a complete grid for each group

    @model_validator(mode="after")
    def _check_grids(self) -> Self:
        answers, knobs = self.cells[0].answers, list(self.cells[0].knobs)
        for cell in self.cells:
            name = f"{cell.group} at {cell.knobs}"
            if cell.answers != answers:
                raise ValueError(f"{name} must have {answers} answers, got {cell.answers}")
            if list(cell.knobs) != knobs:
                raise ValueError(f"{name} must have the knobs {', '.join(knobs)}")
        for group, grid in self._grids.items():
            count = sum(cell.group == group for cell in self.cells)
            if not count == len(grid.rows) == math.prod(map(len, grid.levels)):
                raise ValueError(f"{group}: the {count} cells must form a grid without repetitions")
        return self

    @property
    def answers(self) -> int:
        """The number of answers per board."""
        return self.cells[0].answers

    @property
    def count(self) -> int:
        """The number of boards in all cells."""
        return sum(cell.count for cell in self.cells)

    @property
    def rollouts(self) -> int:
        """The number of answers in all cells."""
        return self.answers * self.count

    def expected_learnability(self, configuration: Configuration) -> float | None:
        """Return the mean of p(1-p) over the instances of a configuration.

        The result is None if the configuration uses unknown groups or cells without boards.
        """
        total_weights = np.zeros(len(self.cells))
        for group, knobs in configuration.values().items():
            share = next(iter(knobs.values()))
            if share > 0.0:
                weights = self.weights(group, knobs)
                if weights is None:
                    return None
                total_weights += share * weights
        return float(total_weights @ np.array([cell.learnability or 0.0 for cell in self.cells]))

    @cached_property
    def _grids(self) -> dict[str, "_Grid"]:
        rows: dict[str, dict[tuple[float, ...], int]] = defaultdict(dict)
        for row, cell in enumerate(self.cells):
            rows[cell.group][tuple(cell.knobs.values())] = row
        return {
            group: _Grid(
                tuple(self.cells[0].knobs),
                tuple(tuple(sorted(set(column))) for column in zip(*cells, strict=True)),
                cells,
            )
            for group, cells in rows.items()
        }

    def weights(self, group: str, knobs: Knobs) -> np.ndarray | None:
        """Return the interpolation weights of all cells for the knobs of a group.

        Returns:
            Float (cells,), which sum to 1. None if the group is unknown or a cell with positive
            weight has no boards.
        """
        if group not in self._grids:
            return None
        weights = np.zeros(len(self.cells))
        for row, weight in self._grids[group].interpolate(knobs):
            if not self.cells[row].count:
                return None
            weights[row] = weight
        return weights


def atlas_grid(domain: Domain, levels: int) -> list[tuple[str, dict[str, float]]]:
    """Return the cells to measure as (group, knobs), in group order.

    Args:
        domain: The environment. Mixture knobs use the levels of their factors up to the first one
            at or above the maximum.
        levels: Maximum number of levels (at least 2) of the other knobs. Levels are evenly spaced
            from 0 to the largest feasible value.
    """
    space, cells = domain.space, []
    mixtures = {
        knob: sorted(factor.levels.values())
        for knob, factor in domain.factors.items()
        if factor.mixture
    }
    for knob, values in mixtures.items():
        num_below = sum(level < space.maximum(knob) for level in values)
        mixtures[knob] = values[: num_below + 1]
    other_knobs = [knob for knob in space.difficulty_knobs if knob not in mixtures]
    for group in space.groups:
        hardest_knobs = {knob: space.maximum(knob) for knob in other_knobs}
        hardest_knobs[space.share] = space.limits(space.share)[1]
        corners = [
            domain.nearest_or_same(group, hardest_knobs | dict(zip(mixtures, corner, strict=True)))
            for corner in itertools.product(*mixtures.values())
        ]
        axes = dict(mixtures)
        for knob in other_knobs:
            max_units = space.to_units(max(corner[knob] for corner in corners))
            steps = np.unique(np.floor(np.linspace(0, max_units, levels) + 0.5))
            axes[knob] = [space.from_units(int(n)) for n in steps]
        for point in itertools.product(*(axes[knob] for knob in space.difficulty_knobs)):
            cells.append((group, dict(zip(space.difficulty_knobs, point, strict=True))))
    return cells


@dataclass(frozen=True)
class _Grid:
    """The cells of one group."""

    knobs: tuple[str, ...]
    levels: tuple[tuple[float, ...], ...]  # ascending levels of each knob
    rows: dict[tuple[float, ...], int]  # index of each cell in the atlas, by its levels

    def interpolate(self, knobs: Knobs) -> list[tuple[int, float]]:
        """Return the cells around a point with their positive weights, which sum to 1."""
        axes = [
            _interpolate_levels(levels, knobs[knob])
            for knob, levels in zip(self.knobs, self.levels, strict=True)
        ]
        return [
            (
                self.rows[tuple(level for level, _ in corner)],
                math.prod(weight for _, weight in corner),
            )
            for corner in itertools.product(*axes)
        ]


def _interpolate_levels(levels: Sequence[float], value: float) -> list[tuple[float, float]]:
    """Return the levels around a value with their positive weights."""
    for low, high in itertools.pairwise(levels):
        if low <= value <= high:
            fraction = (value - low) / (high - low)
            weights = ((low, 1.0 - fraction), (high, fraction))
            return [(level, weight) for level, weight in weights if weight > 0.0]
    return [(min(max(value, levels[0]), levels[-1]), 1.0)]
