"""Design atlases: estimates, interpolation and grids."""

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from engineer import AtlasCell, Configuration, DesignAtlas, Domain, atlas_grid
from engineer.lake import Bounds, lake_domain
from tests.engineer import words
from tests.engineer.builders import from_rows, make_lake

SMALL_BOUNDS = Bounds(sizes=(3, 4), max_hole_ratio=0.5, max_wait_ratio=0.5, step=0.25)


def make_cell(boards: Mapping[int, int], num_answers: int = 8, group: str = "3", **knobs: float):
    """Return a cell from the number of boards by their number of valid answers."""
    counts = tuple(boards.get(k, 0) for k in range(num_answers + 1))
    return AtlasCell(group=group, knobs=knobs or {"hole_ratio": 0.0}, boards=counts)


def random_atlas(
    rng: np.random.Generator, domain: Domain, num_levels: int = 3, missing_rate: float = 0.0
) -> DesignAtlas:
    """Draw an atlas with random valid rates, in which cells are empty with a probability."""
    cells = []
    for group, knobs in atlas_grid(domain, num_levels):
        count = 0 if rng.random() < missing_rate else 16
        valid_rates = np.clip(rng.random() + 0.3 * rng.standard_normal(count), 0, 1)
        valid_counts = np.bincount(rng.binomial(8, valid_rates), minlength=9)
        cells.append(AtlasCell(group=group, knobs=knobs, boards=tuple(valid_counts.tolist())))
    return DesignAtlas(cells=tuple(cells))


def expected_learnability(atlas: DesignAtlas, configuration: Configuration) -> float:
    learnability = atlas.expected_learnability(configuration)
    assert learnability is not None
    return learnability


@pytest.mark.parametrize("num_answers", [2, 3, 8])
def test_learnability_estimate_is_unbiased(num_answers):
    for tenths in range(11):
        p = Fraction(tenths, 10)
        mean = sum(
            math.comb(num_answers, k)
            * p**k
            * (1 - p) ** (num_answers - k)
            * Fraction(make_cell({k: 1}, num_answers).learnability).limit_denominator(1000)
            for k in range(num_answers + 1)
        )
        assert mean == p * (1 - p)


def test_expected_learnability_interpolates_levels():
    valid_counts = {
        "3": {0.0: (1, 2), 0.2: (3, 4)},
        "4": {0.0: (0, 4)},
    }  # valid of 8, without and with waits
    cells = [
        make_cell({k: 10}, group=group, hole_ratio=holes, wait_ratio=float(needs_wait))
        for group, levels in valid_counts.items()
        for holes, counts in levels.items()
        for needs_wait, k in enumerate(counts)
    ]
    atlas = DesignAtlas(cells=tuple(cells))
    learnability = [k * (8 - k) / 56 for k in range(9)]
    # Three quarters of the way from level 0 to 0.2; level 0.0 is the only one of size 4.
    configuration = from_rows((0.6, 0.15, 0.1), (0.4, 0.3, 0.5))
    size_3 = 0.25 * (0.9 * learnability[1] + 0.1 * learnability[2]) + 0.75 * (
        0.9 * learnability[3] + 0.1 * learnability[4]
    )
    size_4 = 0.5 * learnability[0] + 0.5 * learnability[4]
    assert expected_learnability(atlas, configuration) == pytest.approx(0.6 * size_3 + 0.4 * size_4)
    # Beyond the outermost levels it is constant.
    assert expected_learnability(atlas, from_rows((1.0, 0.5, 1.0))) == pytest.approx(
        learnability[4]
    )


def limit_holes(group: str, knobs: Mapping[str, float]) -> Mapping[str, float]:
    """Allow no holes without waits on size 3, and at most a quarter on size 4."""
    if group == "3" and knobs["wait_ratio"] == 0.0:
        return {**knobs, "hole_ratio": 0.0}
    return {**knobs, "hole_ratio": min(knobs["hole_ratio"], 0.25)} if group == "4" else knobs


def test_unmeasured_cells_have_no_learnability():
    domain = make_lake(SMALL_BOUNDS)
    full_atlas = random_atlas(np.random.default_rng(1), domain)
    cells = [
        cell.model_copy(update={"boards": (0,) * 9})
        if cell.group == "4" and cell.knobs["wait_ratio"]
        else cell
        for cell in full_atlas.cells
    ]
    atlas = DesignAtlas(cells=tuple(cells))
    assert cells[-1].learnability is None
    assert atlas.expected_learnability(from_rows((0.5, 0.25, 0.25), (0.5, 0.25, 0.25))) is None
    assert atlas.expected_learnability(from_rows((1.0, 0.25, 0.25), (0.0, 0.25, 0.25))) is not None
    assert atlas.expected_learnability(from_rows((0.5, 0.25, 0.25), (0.5, 0.25, 0.0))) is not None
    assert atlas.expected_learnability(from_rows((1.0, 0.25, 0.25), sizes=(9,))) is None


def test_lake_atlas_grid_has_pure_waits_and_feasible_holes():
    grid = atlas_grid(
        lake_domain(Bounds(sizes=(2, 3, 5), max_wait_ratio=0.5, max_hole_ratio=0.4)), 4
    )
    ratios = {group: sorted({k["hole_ratio"] for g, k in grid if g == group}) for group, _ in grid}
    assert {k["wait_ratio"] for _, k in grid} == {0.0, 1.0}
    assert ratios["3"] == ratios["5"] == [0.0, 0.15, 0.25, 0.4]
    assert ratios["2"] == [0.0, 0.05, 0.15, 0.2]  # from a quarter on there are too few free cells
    assert len(grid) == 2 * (4 + 4 + 4)
    single_level_grid = atlas_grid(
        lake_domain(Bounds(sizes=(3,), max_wait_ratio=0.0, max_hole_ratio=0.0)), 4
    )
    assert single_level_grid == [("3", {"hole_ratio": 0.0, "wait_ratio": 0.0})]
    assert len(atlas_grid(words.DOMAIN, 3)) == 2 * 3 * 3
    limits = dict(atlas_grid(replace(make_lake(SMALL_BOUNDS), nearest=limit_holes), 3))
    assert {group: knobs["hole_ratio"] for group, knobs in limits.items()} == {"3": 0.5, "4": 0.25}
