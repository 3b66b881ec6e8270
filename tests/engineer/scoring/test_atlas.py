import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from pydantic import ValidationError

from engineer import AtlasCell, Configuration, DesignAtlas, Domain, InfeasibleError, atlas_grid
from engineer.lake import Bounds, lake_domain
from tests.engineer import words
from tests.engineer.builders import configuration, lake, roomy

SMALL = Bounds(sizes=(3, 4), max_hole_ratio=0.5, max_wait_ratio=0.5, step=0.25)

Chances = Callable[[np.random.Generator, int], np.ndarray]
"""Draws the chances with which some boards are solved."""


def cell(boards: Mapping[int, int], answers: int = 8, group: str = "3", **knobs: float):
    """A cell with so many boards by their number of valid answers."""
    counts = tuple(boards.get(k, 0) for k in range(answers + 1))
    return AtlasCell(group=group, knobs=knobs or {"hole_ratio": 0.0}, boards=counts)


def drawn(rng: np.random.Generator, p: np.ndarray, answers: int = 8, **place):
    valid = rng.binomial(answers, p)
    return cell(
        dict(enumerate(np.bincount(valid, minlength=answers + 1).tolist())), answers, **place
    )


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
    found = atlas.expected(configuration)
    assert found is not None
    return found.value


@pytest.mark.parametrize("answers", [2, 3, 8])
def test_estimate_of_a_board_is_unbiased_for_every_chance(answers):
    for tenths in range(11):
        p = Fraction(tenths, 10)
        mean = sum(
            math.comb(answers, k)
            * p**k
            * (1 - p) ** (answers - k)
            * Fraction(cell({k: 1}, answers).learnability.value).limit_denominator(1000)
            for k in range(answers + 1)
        )
        assert mean == p * (1 - p)


def test_boards_that_are_always_and_never_solved_teach_nothing_together():
    found = cell({0: 32, 8: 32})
    assert found.valid_rate == 0.5
    assert found.learnability.value == 0.0


def test_boards_that_are_all_alike_still_leave_doubt():
    found = cell({0: 64}).learnability
    # With 64 boards at 0, up to 3/64 of all boards may be at 1/4 (the rule of three).
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(0.25 * 3 / 64, rel=0.1)
    assert cell({0: 4}).learnability.high > found.high


WORLDS: dict[str, Chances] = {
    "all alike": lambda rng, count: np.full(count, 0.5),
    "spread": lambda rng, count: rng.beta(2, 2, count),
    "extremes": lambda rng, count: rng.beta(0.3, 0.3, count),
    "mostly unsolved": lambda rng, count: np.where(rng.random(count) < 0.05, 0.5, 0.0),
    "mostly solved": lambda rng, count: np.where(rng.random(count) < 0.1, 0.6, 0.98),
}


def true_mean(world: Chances) -> float:
    p = world(np.random.default_rng(0), 1_000_000)
    return float(np.mean(p * (1 - p)))


@pytest.mark.parametrize("name", WORLDS)
def test_interval_of_a_cell_covers_the_mean_over_all_boards(name):
    world, rng, runs = WORLDS[name], np.random.default_rng(5), 1_000
    truth = true_mean(world)
    found = [drawn(rng, world(rng, 64)).learnability for _ in range(runs)]
    covered = sum(one.low <= truth <= one.high for one in found) / runs
    assert covered >= 0.93
    assert np.mean([one.value for one in found]) == pytest.approx(truth, abs=0.002)
    assert np.mean([one.high - one.low for one in found]) < 0.06  # of a range of 0.25


def test_expected_learnability_mixes_shares_waits_and_neighbouring_levels():
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


def test_a_mixture_has_exactly_the_learnability_of_its_boards():
    rng = np.random.default_rng(3)
    ends = [
        drawn(rng, rng.beta(a, b, 60), hole_ratio=0.0, wait_ratio=w)
        for a, b, w in ((5, 1, 0.0), (1, 5, 1.0))
    ]
    atlas = DesignAtlas(cells=tuple(ends))
    # A third of the boards need a wait: 60 of one kind and 30 of the other, which is half of them.
    halved = ends[1].model_copy(update={"boards": tuple(2 * n for n in ends[0].boards)})
    pooled = [a + b for a, b in zip(halved.boards, ends[1].boards, strict=True)]
    mixed = cell(dict(enumerate(pooled))).learnability.value
    assert atlas.weights("3", {"hole_ratio": 0.0, "wait_ratio": 1 / 3}) == pytest.approx(
        [2 / 3, 1 / 3]
    )
    assert value(atlas, lake((1.0, 0.0, 1 / 3))) == pytest.approx(mixed)


def every_configuration(domain: Domain) -> list[Configuration]:
    """All configurations of a space of two groups."""
    space = domain.space
    grids = [
        [space.from_units(n) for n in range(space.to_units(space.maximum(knob)) + 1)]
        for knob in space.difficulty_knobs
    ]
    points = [
        dict(zip(space.difficulty_knobs, point, strict=True)) for point in itertools.product(*grids)
    ]
    low, high = (space.to_units(limit) for limit in space.limits(space.share))
    one, other = space.groups
    return [
        space.make(
            {
                one: {space.share: space.from_units(n)} | first,
                other: {space.share: space.from_units(space.units - n)} | second,
            }
        )
        for n in range(low, high + 1)
        for first in points
        for second in points
    ]


def can_be_made(domain: Domain, configuration: Configuration) -> bool:
    share = domain.space.share
    for group, knobs in configuration.values().items():
        if knobs[share]:
            try:
                if dict(domain.nearest(group, knobs)) != knobs:
                    return False
            except InfeasibleError:
                return False
    return True


def picky(group: str, knobs: Mapping[str, float]) -> Mapping[str, float]:
    """No holes without waits on size 3, at most a quarter on size 4."""
    if group == "3" and knobs["wait_ratio"] == 0.0:
        return {**knobs, "hole_ratio": 0.0}
    return {**knobs, "hole_ratio": min(knobs["hole_ratio"], 0.25)} if group == "4" else knobs


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("min_share", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("name", ["roomy", "picky", "words"])
def test_best_is_the_largest_of_all_configurations_that_can_be_made(name, min_share, missing):
    bounds = SMALL.model_copy(update={"min_share": min_share})
    domain = {
        "roomy": roomy(bounds),
        "picky": replace(roomy(bounds), nearest=picky),
        "words": replace(
            words.DOMAIN,
            space=words.WordSpace(step=0.2, max_noise=0.4, min_share=min_share // 0.2 / 5),
        ),
    }[name]
    every = [one for one in every_configuration(domain) if can_be_made(domain, one)]
    rng, found = np.random.default_rng(8), 0
    for _ in range(6):
        # Measured everywhere, whether such boards can be made in training or not.
        atlas = random_atlas(rng, replace(domain, nearest=lambda _, knobs: knobs), missing=missing)
        try:
            best = atlas.best(domain)
        except ValueError:
            assert missing
            continue
        found += 1
        assert domain.space.violation(best) is None
        assert domain.space.off_grid(best) is None
        assert can_be_made(domain, best)
        values = [one.value for each in every if (one := atlas.expected(each)) is not None]
        assert value(atlas, best) == pytest.approx(max(values), abs=1e-12)
        for one in every[:: len(every) // 7]:
            regret = atlas.regret(domain, one)
            if regret is not None:
                assert regret.value == pytest.approx(max(values) - value(atlas, one), abs=1e-12)
                assert regret.value >= -1e-12
                assert regret.low <= regret.value <= regret.high
        assert atlas.regret(domain, best).value == pytest.approx(0.0, abs=1e-12)
    assert found


@pytest.mark.parametrize("min_share", [0.0, 0.2])
def test_interval_of_a_regret_covers_that_of_the_true_chances(min_share):
    bounds = Bounds(sizes=(3, 4), max_hole_ratio=0.4, step=0.1, min_share=min_share)
    domain = roomy(bounds)
    grid, rng = atlas_grid(domain, 3), np.random.default_rng(11)
    mean = rng.uniform(0.05, 0.95, len(grid))
    mean[1] = mean[2] = 0.5  # two cells that are equally good: the largest is a matter of luck
    # Enough boards that the truth has no error worth a name.
    truth = DesignAtlas(
        cells=tuple(
            AtlasCell(group=group, knobs=knobs, boards=(0, *(0,) * 7, 0)).model_copy(
                update={
                    "boards": tuple(
                        round(1e9 * math.comb(8, k) * m**k * (1 - m) ** (8 - k)) for k in range(9)
                    )
                }
            )
            for (group, knobs), m in zip(grid, mean, strict=True)
        )
    )
    asked = [
        truth.best(domain),
        *(configuration(lambda most: int(rng.integers(most + 1)), bounds) for _ in range(3)),
    ]
    regrets = [truth.regret(domain, one).value for one in asked]
    covered, widths, runs = np.zeros(len(asked)), [], 60
    for _ in range(runs):
        cells = tuple(
            drawn(rng, np.full(48, m), group=group, **knobs)
            for (group, knobs), m in zip(grid, mean, strict=True)
        )
        atlas = DesignAtlas(cells=cells)
        for number, one in enumerate(asked):
            found = atlas.regret(domain, one)
            covered[number] += found.low - 1e-9 <= regrets[number] <= found.high + 1e-9
            widths.append(found.high - found.low)
    assert (covered / runs >= 0.93).all()
    assert np.mean(widths) < 0.08


def test_a_regret_is_no_matter_of_luck_where_everything_is_equally_good():
    domain, runs = roomy(Bounds(sizes=(3, 4), max_hole_ratio=0.4, step=0.1)), 60
    rng, grid = np.random.default_rng(7), atlas_grid(domain, 5)
    asked = lake((0.5, 0.0, 0.0), (0.5, 0.0, 0.0), sizes=(3, 4))
    seen = 0
    for _ in range(runs):
        cells = [drawn(rng, rng.beta(2, 2, 48), group=group, **knobs) for group, knobs in grid]
        found = DesignAtlas(cells=tuple(cells)).regret(domain, asked)
        assert found.value > 0.0  # the largest of many estimates, whatever is asked for
        seen += found.low > 0.0
    assert seen / runs <= 0.05


def test_upper_end_of_a_regret_is_that_of_the_configuration_with_the_largest_error():
    limits = {"max_hole_ratio": 0.4, "max_wait_ratio": 0.4, "min_share": 0.2}
    domain = roomy(Bounds(sizes=(3, 4), step=0.2, **limits))
    rng = np.random.default_rng(3)
    # So few boards that no configuration can be left out.
    atlas = DesignAtlas(
        cells=tuple(
            drawn(rng, rng.random(int(group)), answers=4, group=group, **knobs)
            for group, knobs in atlas_grid(domain, 3)
        )
    )
    k = np.arange(5)
    pairs = k * (4 - k) / 12  # of n(n-1) = 12 pairs
    variances = []
    for one in atlas.cells:
        boards = [*np.repeat(pairs, one.boards).tolist(), 0.0, 0.25]
        variances.append(np.var(boards, ddof=1) / len(boards))

    def weights(one: Configuration) -> np.ndarray:
        return sum(
            knobs["data_ratio"] * atlas.weights(group, knobs)
            for group, knobs in one.values().items()
        )

    asked = lake((0.4, 0.2, 0.0), (0.6, 0.0, 0.4))
    extremes = [
        one
        for one in every_configuration(domain)
        if {knobs["data_ratio"] for knobs in one.values().values()} == {0.2, 0.8}
    ]
    errors = [
        math.sqrt((weights(one) - weights(asked)) ** 2 @ np.array(variances)) for one in extremes
    ]
    found = atlas.regret(domain, asked)
    assert found.high - found.value == pytest.approx(2.054 * max(errors))


def test_errors_count_also_in_groups_of_which_nothing_may_be_chosen():
    def only_three(group: str, knobs: Mapping[str, float]) -> Mapping[str, float]:
        if group == "4":
            raise InfeasibleError("none")
        return knobs

    domain = roomy(SMALL)
    atlas = random_atlas(np.random.default_rng(6), domain)
    narrow = replace(domain, nearest=only_three)
    asked = lake((0.0, 0.0, 0.0), (1.0, 0.0, 0.0))
    found, own = atlas.regret(narrow, asked), atlas.expected(asked)
    best = atlas.expected(atlas.best(narrow))
    assert atlas.best(narrow).values()["4"]["data_ratio"] == 0.0
    # The best has an error of its own, and so has what was asked for.
    reaches = [(one.high - one.low) / 2 for one in (own, best)]
    assert found.high - found.value >= math.hypot(*reaches)


def test_what_was_not_measured_has_no_value_and_is_not_chosen():
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
    assert gone[-1].valid_rate is None
    assert atlas.expected(lake((0.5, 0.25, 0.25), (0.5, 0.25, 0.25))) is None
    assert atlas.regret(domain, lake((0.5, 0.25, 0.25), (0.5, 0.25, 0.25))) is None
    assert atlas.expected(lake((1.0, 0.25, 0.25), (0.0, 0.25, 0.25))) is not None
    assert atlas.expected(lake((0.5, 0.25, 0.25), (0.5, 0.25, 0.0))) is not None
    assert atlas.expected(lake((1.0, 0.25, 0.25), sizes=(9,))) is None
    assert atlas.best(domain).values()["4"]["wait_ratio"] == 0.0
    nothing = DesignAtlas(
        cells=tuple(
            one.model_copy(update={"boards": (0,) * 9}) if one.group == "4" else one
            for one in full.cells
        )
    )
    best = nothing.best(domain).values()
    assert best["4"]["data_ratio"] == 0.0
    assert best["3"]["data_ratio"] == 1.0
    needed = roomy(SMALL.model_copy(update={"min_share": 0.25}))
    with pytest.raises(ValueError, match=r"map size 4: no instances were measured, but min_share"):
        nothing.best(needed)
    empty = DesignAtlas(
        cells=tuple(one.model_copy(update={"boards": (0,) * 9}) for one in full.cells)
    )
    with pytest.raises(ValueError, match="no instances of any map size were measured"):
        empty.best(domain)


def test_several_configurations_have_the_mean_of_their_values():
    domain = roomy(SMALL)
    atlas = random_atlas(np.random.default_rng(1), domain)
    some = [lake((0.5, 0.25, 0.25), (0.5, 0.0, 0.5)), lake((1.0, 0.5, 0.0), (0.0, 0.0, 0.5))]
    values = [value(atlas, one) for one in some]
    assert atlas.expected(*some).value == pytest.approx(np.mean(values))
    regrets = [atlas.regret(domain, one).value for one in some]
    assert atlas.regret(domain, *some).value == pytest.approx(np.mean(regrets))


def test_an_atlas_survives_its_json_and_its_best_passes_review():
    domain = lake_domain(Bounds(sizes=(3, 4, 5), min_share=0.1, max_hole_ratio=0.4))
    atlas = random_atlas(np.random.default_rng(2), domain, levels=4)
    again = DesignAtlas.model_validate_json(atlas.model_dump_json())
    assert again == atlas
    assert again.best(domain) == atlas.best(domain)
    asked = lake((0.2, 0.1, 0.1), (0.4, 0.3, 0.2), (0.4, 0.0, 1.0))
    assert again.regret(domain, asked) == atlas.regret(domain, asked)
    assert (atlas.count, atlas.rollouts) == (16 * 24, 8 * 16 * 24)


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ([], "at least 1 item"),
        (
            [cell({1: 2}), cell({1: 2}, answers=4, hole_ratio=0.5)],
            "4 answers per board, others have 8",
        ),
        ([cell({1: 2}), cell({1: 2})], "3: its 2 cells are not a whole grid"),
        ([cell({1: 2}), cell({1: 2}, wait_ratio=0.5)], "has other knobs than hole_ratio"),
        (
            [
                cell({1: 1}, hole_ratio=h, wait_ratio=w)
                for h, w in ((0.0, 0.0), (0.0, 1.0), (0.5, 0.0))
            ],
            "its 3 cells are not a whole grid",
        ),
    ],
)
def test_an_atlas_that_is_no_grid_is_refused(cells, told):
    with pytest.raises(ValidationError, match=told):
        DesignAtlas(cells=tuple(cells))


def test_the_lakes_grid_has_both_pure_ends_of_the_waits_and_holes_that_can_be_made():
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
