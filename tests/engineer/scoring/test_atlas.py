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


def cell(boards: Mapping[int, int], answers: int = 8, group: str = "3", **knobs: float):
    """A cell with so many boards by their number of valid answers."""
    counts = tuple(boards.get(k, 0) for k in range(answers + 1))
    return AtlasCell(group=group, knobs=knobs or {"hole_ratio": 0.0}, boards=counts)


def random_atlas(
    rng: np.random.Generator, domain: Domain, levels: int = 3, missing: float = 0.0
) -> DesignAtlas:
    """An atlas of any hardness, of which cells are missing with this probability."""
    cells = []
    for group, knobs in atlas_grid(domain, levels):
        count = 0 if rng.random() < missing else 16
        p = np.clip(rng.random() + 0.3 * rng.standard_normal(count), 0, 1)
        valid = np.bincount(rng.binomial(8, p), minlength=9)
        cells.append(AtlasCell(group=group, knobs=knobs, boards=tuple(valid.tolist())))
    return DesignAtlas(cells=tuple(cells))


def value(atlas: DesignAtlas, configuration: Configuration) -> float:
    found = atlas.expected_learnability(configuration)
    assert found is not None
    return found


@pytest.mark.parametrize("answers", [2, 3, 8])
def test_learnability_estimate_is_unbiased(answers):
    for tenths in range(11):
        p = Fraction(tenths, 10)
        mean = sum(
            math.comb(answers, k)
            * p**k
            * (1 - p) ** (answers - k)
            * Fraction(cell({k: 1}, answers).learnability).limit_denominator(1000)
            for k in range(answers + 1)
        )
        assert mean == p * (1 - p)


def test_expected_learnability_interpolates_levels():
    p = {"3": {0.0: (1, 2), 0.2: (3, 4)}, "4": {0.0: (0, 4)}}  # valid of 8, without and with waits
    cells = [
        cell({k: 10}, group=group, hole_ratio=holes, wait_ratio=float(wait))
        for group, levels in p.items()
        for holes, pair in levels.items()
        for wait, k in enumerate(pair)
    ]
    atlas = DesignAtlas(cells=tuple(cells))
    of = [k * (8 - k) / 56 for k in range(9)]
    # Three quarters of the way from level 0 to 0.2; level 0.0 is the only one of size 4.
    asked = lake((0.6, 0.15, 0.1), (0.4, 0.3, 0.5))
    three = 0.25 * (0.9 * of[1] + 0.1 * of[2]) + 0.75 * (0.9 * of[3] + 0.1 * of[4])
    four = 0.5 * of[0] + 0.5 * of[4]
    assert value(atlas, asked) == pytest.approx(0.6 * three + 0.4 * four)
    # Beyond the outermost levels it is constant.
    assert value(atlas, lake((1.0, 0.5, 1.0))) == pytest.approx(of[4])


def picky(group: str, knobs: Mapping[str, float]) -> Mapping[str, float]:
    """No holes without waits on size 3, at most a quarter on size 4."""
    if group == "3" and knobs["wait_ratio"] == 0.0:
        return {**knobs, "hole_ratio": 0.0}
    return {**knobs, "hole_ratio": min(knobs["hole_ratio"], 0.25)} if group == "4" else knobs


def test_unmeasured_cells_have_no_value():
    domain = roomy(SMALL)
    full = random_atlas(np.random.default_rng(1), domain)
    gone = [
        one.model_copy(update={"boards": (0,) * 9})
        if one.group == "4" and one.knobs["wait_ratio"]
        else one
        for one in full.cells
    ]
    atlas = DesignAtlas(cells=tuple(gone))
    assert gone[-1].learnability is None
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
    without = atlas_grid(lake_domain(Bounds(sizes=(3,), max_wait_ratio=0.0, max_hole_ratio=0.0)), 4)
    assert without == [("3", {"hole_ratio": 0.0, "wait_ratio": 0.0})]
    assert len(atlas_grid(words.DOMAIN, 3)) == 2 * 3 * 3
    of_picky = dict(atlas_grid(replace(roomy(SMALL), nearest=picky), 3))
    assert {group: knobs["hole_ratio"] for group, knobs in of_picky.items()} == {
        "3": 0.5,
        "4": 0.25,
    }
