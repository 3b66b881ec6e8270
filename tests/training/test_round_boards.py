"""A round's training boards: always as many as its budget, whatever the generator can't make."""

import json
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest

from engineer import LakeConfiguration
from training.config import RunConfig, load
from training.errors import UserError
from training.instances import Cell, InstanceSet, cells_of, draw
from training.phases import validate
from training.phases.boards import DrawnBoards, draw_boards, write_boards
from training.phases.context import entropy_for, key_for

MINIATURE = Path(__file__).parents[2] / "configs/miniature.yaml"
SHORT = {3: (0.8, 0.0, 0.5), 4: (0.1, 0.1, 0.1), 5: (0.1, 0.1, 0.1)}
"""Too many 3x3 boards of which half would need a wait: the miniature's budget doesn't find them."""


def lake(sizes: dict[int, tuple[float, float, float]]) -> LakeConfiguration:
    names = ("data_ratio", "hole_ratio", "wait_ratio")
    knobs = {size: dict(zip(names, values, strict=True)) for size, values in sizes.items()}
    return LakeConfiguration.model_validate({"sizes": knobs})


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return load(MINIATURE, ["validation.per_cell=5"])


@pytest.fixture(scope="module")
def validation(config: RunConfig) -> InstanceSet:
    return validate.boards_for(config)


@pytest.fixture(scope="module")
def short(config: RunConfig, validation: InstanceSet) -> DrawnBoards:
    return draw_boards(config, 1, lake(SHORT), validation)


@pytest.fixture(scope="module")
def smallest() -> InstanceSet:
    """All 2x2 boards there are, as a validation set that leaves none to train on."""
    every = Cell(size=2, hole_ratio=0.0, wait_ratio=0.5, count=48, num_agents=2)
    boards, _ = draw(jax.random.key(0), [every], max_size=5, max_candidates=20_000)
    assert len(boards) == 24
    return boards


def asked(config: RunConfig, configuration: LakeConfiguration) -> Counter[int]:
    cells = cells_of(configuration, config.stages.instances, num_agents=2)
    return Counter({cell.size: cell.count for cell in cells})


def sizes_of(boards: InstanceSet) -> Counter[int]:
    return Counter(map(len, boards.grids))


def test_a_round_that_is_short_of_boards_still_has_all_of_each_size(
    config: RunConfig, short: DrawnBoards
) -> None:
    assert len(set(short.boards.grids)) < config.stages.instances == len(short.boards)
    assert sizes_of(short.boards) == asked(config, lake(SHORT))


def test_only_boards_of_the_size_that_is_short_come_again_and_equally_often(
    short: DrawnBoards,
) -> None:
    times = Counter(short.boards.grids)
    of_three = {count for grid, count in times.items() if len(grid) == 3}
    assert max(of_three) - min(of_three) == 1
    assert {count for grid, count in times.items() if len(grid) != 3} == {1}


def test_a_board_that_comes_again_brings_its_own_instance_and_solution(short: DrawnBoards) -> None:
    first: dict[tuple[str, ...], int] = {}
    for row, grid in enumerate(short.boards.grids):
        same = first.setdefault(grid, row)
        for leaf in ("size", "starts", "goals", "holes"):
            values = getattr(short.boards.instances, leaf)
            assert np.array_equal(values[row], values[same])
        plans = short.boards.solutions.plan
        assert np.array_equal(plans[row], plans[same])
    assert len(first) < len(short.boards)


def test_equal_arguments_give_equal_boards_and_another_round_repeats_others(
    config: RunConfig, validation: InstanceSet, short: DrawnBoards
) -> None:
    again = draw_boards(config, 1, lake(SHORT), validation)
    assert again.boards.grids == short.boards.grids
    assert draw_boards(config, 2, lake(SHORT), validation).boards.grids != short.boards.grids


def test_what_could_not_be_made_is_still_told_of_the_distinct_boards(
    short: DrawnBoards, tmp_path: Path
) -> None:
    write_boards(tmp_path, short)
    (shortfall,) = json.loads((tmp_path / "shortfalls.json").read_text())
    assert shortfall["cell"]["size"] == 3
    missing = shortfall["missing_wait"] + shortfall["missing_no_wait"]
    told = json.loads((tmp_path / "environment.json").read_text())["3"]
    assert told["missing"] == missing > 0
    costs = {
        grid: int(cost)
        for grid, cost in zip(
            short.boards.grids, short.boards.solutions.sum_of_costs.tolist(), strict=True
        )
        if len(grid) == 3
    }
    distinct = sum(costs.values()) / len(costs)
    assert told["mean_sum_of_costs"] == pytest.approx(distinct, rel=1e-5)


def test_a_size_of_which_no_board_can_be_made_is_made_up_for_by_all_others(
    config: RunConfig, smallest: InstanceSet
) -> None:
    configuration = lake({2: (0.5, 0.0, 0.0), 4: (0.3, 0.1, 0.1), 5: (0.2, 0.1, 0.1)})
    drawn = draw_boards(config, 1, configuration, smallest)
    assert len(drawn.boards) == config.stages.instances
    assert {fill.cell.size for fill in drawn.fills if not fill.complete} == {2}
    times = Counter(drawn.boards.grids)
    assert len(times) == config.stages.instances // 2
    assert set(times.values()) == {2}
    assert sizes_of(drawn.boards) == {4: 614, 5: 410}


def test_where_nothing_is_short_each_board_comes_once_in_the_seeded_order(
    config: RunConfig, validation: InstanceSet
) -> None:
    initial = config.environment.initial
    drawn = draw_boards(config, 1, initial, validation)
    made, _ = draw(
        key_for(config.seed, "train", 1),
        cells_of(initial, config.stages.instances, num_agents=2),
        max_size=5,
        max_candidates=config.environment.max_candidates,
        exclude=validation.grids,
        substitute=True,
    )
    order = np.random.default_rng(entropy_for(config.seed, "train", 1)).permutation(len(made))
    assert drawn.boards.grids == made.take(order).grids
    assert len(set(drawn.boards.grids)) == config.stages.instances == len(drawn.boards)
    assert drawn.shortfalls == []


def test_where_no_board_at_all_can_be_made_the_round_is_refused(
    config: RunConfig, smallest: InstanceSet
) -> None:
    with pytest.raises(UserError, match="no board could be made: 2x2"):
        draw_boards(config, 1, lake({2: (1.0, 0.0, 0.0)}), smallest)
