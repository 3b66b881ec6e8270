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
from tests.engineer.builders import lake, roomy

SMALL = Bounds(sizes=(3, 4), max_hole_ratio=0.5, max_wait_ratio=0.5, step=0.25)


def make_cell(boards: Mapping[int, int], answers: int = 8, group: str = "3", **knobs: float):
    """Return a cell from the number of boards by their number of valid answers."""
    counts = tuple(boards.get(k, 0) for k in range(answers + 1))
    return AtlasCell(group=group, knobs=knobs or {"hole_ratio": 0.0}, boards=counts)


def random_atlas(
    rng: np.random.Generator, domain: Domain, levels: int = 3, missing: float = 0.0
) -> DesignAtlas:
    """Draw an atlas with random valid rates, in which cells are empty with a probability."""
    cells = []
    for group, knobs in atlas_grid(domain, levels):
        count = 0 if rng.random() < missing else 16
        p = np.clip(rng.random() + 0.3 * rng.standard_normal(count), 0, 1)
        valid = np.bincount(rng.binomial(8, p), minlength=9)
        cells.append(AtlasCell(group=group, knobs=knobs, boards=tuple(valid.tolist())))
    return DesignAtlas(cells=tuple(cells))


def expected_learnability(atlas: DesignAtlas, configuration: Configuration) -> float:
    learnability = atlas.expected_learnability(configuration)
    assert learnability is not None
    return learnability


@pytest.mark.parametrize("answers", [2, 3, 8])
def test_learnability_estimate_is_unbiased(answers):
    for tenths in range(11):
        p = Fraction(tenths, 10)
        mean = sum(
            math.comb(answers, k)
            * p**k
            * (1 - p) ** (answers - k)
            * Fraction(make_cell({k: 1}, answers).learnability).limit_denominator(1000)
            for k in range(answers + 1)
        )
        assert mean == p * (1 - p)


def test_expected_learnability_interpolates_levels():
    valid_counts = {
        "3": {0.0: (1, 2), 0.2: (3, 4)},
        "4": {0.0: (0, 4)},
    }  # valid of 8, without and with waits
    cells = [
        make_cell({k: 10}, group=group, hole_ratio=holes, wait_ratio=float(wait))
        for group, levels in valid_counts.items()
        for holes, pair in levels.items()
        for wait, k in enumerate(pair)
    ]
    atlas = DesignAtlas(cells=tuple(cells))
    learnability = [k * (8 - k) / 56 for k in range(9)]
    # Three quarters of the way from level 0 to 0.2; level 0.0 is the only one of size 4.
    configuration = lake((0.6, 0.15, 0.1), (0.4, 0.3, 0.5))
    size_3 = 0.25 * (0.9 * learnability[1] + 0.1 * learnability[2]) + 0.75 * (
        0.9 * learnability[3] + 0.1 * learnability[4]
    )
    size_4 = 0.5 * learnability[0] + 0.5 * learnability[4]
    assert expected_learnability(atlas, configuration) == pytest.approx(0.6 * size_3 + 0.4 * size_4)
    # Beyond the outermost levels it is constant.
    assert expected_learnability(atlas, lake((1.0, 0.5, 1.0))) == pytest.approx(learnability[4])


def nearest_with_limits(group: str, knobs: Mapping[str, float]) -> Mapping[str, float]:
    """Allow no holes without waits on size 3, and at most a quarter on size 4."""
    if group == "3" and knobs["wait_ratio"] == 0.0:
        return {**knobs, "hole_ratio": 0.0}
    return {**knobs, "hole_ratio": min(knobs["hole_ratio"], 0.25)} if group == "4" else knobs


def test_unmeasured_cells_have_no_value():
    domain = roomy(SMALL)
    full = random_atlas(np.random.default_rng(1), domain)
    cells = [
        cell.model_copy(update={"boards": (0,) * 9})
        if cell.group == "4" and cell.knobs["wait_ratio"]
        else cell
        for cell in full.cells
    ]
    atlas = DesignAtlas(cells=tuple(cells))
    assert cells[-1].learnability is None
    assert atlas.expected_learnability(lake((0.5, 0.25, 0.25), (0.5, 0.25, 0.25))) is None
    assert atlas.expected_learnability(lake((1.0, 0.25, 0.25), (0.0, 0.25, 0.25))) is not None
    assert atlas.expected_learnability(lake((0.5, 0.25, 0.25), (0.5, 0.25, 0.0))) is not None
    assert atlas.expected_learnability(lake((1.0, 0.25, 0.25), sizes=(9,))) is None


def test_lake_atlas_grid_has_pure_waits_and_feasible_holes():
    grid = atlas_grid(
        lake_domain(Bounds(sizes=(2, 3, 5), max_wait_ratio=0.5, max_hole_ratio=0.4)), 4
    )
    holes = {group: sorted({k["hole_ratio"] for g, k in grid if g == group}) for group, _ in grid}
    assert {k["wait_ratio"] for _, k in grid} == {0.0, 1.0}
    assert holes["3"] == holes["5"] == [0.0, 0.15, 0.25, 0.4]
    assert holes["2"] == [0.0, 0.05, 0.15, 0.2]  # from a quarter on there are too few free cells
    assert len(grid) == 2 * (4 + 4 + 4)
    single_level = atlas_grid(
        lake_domain(Bounds(sizes=(3,), max_wait_ratio=0.0, max_hole_ratio=0.0)), 4
    )
    assert single_level == [("3", {"hole_ratio": 0.0, "wait_ratio": 0.0})]
    assert len(atlas_grid(words.DOMAIN, 3)) == 2 * 3 * 3
    limited = dict(atlas_grid(replace(roomy(SMALL), nearest=nearest_with_limits), 3))
    assert {group: knobs["hole_ratio"] for group, knobs in limited.items()} == {"3": 0.5, "4": 0.25}
