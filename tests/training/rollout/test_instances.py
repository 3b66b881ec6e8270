"""A stage's training boards always fill its budget, even if the generator falls short."""

from collections import Counter

import jax
import numpy as np
import pytest

from engineer.lake import LakeConfiguration
from jaxlake.generator.board_digests import board_digests
from tests.paths import SCRATCH
from training.environments.lake import Lake
from training.errors import UserError
from training.phases.validate import validation_set
from training.rollout.instances import (
    BoardRequest,
    InstanceSet,
    StageBoards,
    draw_boards,
    make_requests,
)
from training.run.seeds import derive_key, derive_seed
from training.schema import load

CONFIG = load(SCRATCH, ["validation.per_cell=5"])
SHORT_RATIOS = {3: (0.8, 0.0, 0.5), 4: (0.1, 0.1, 0.1), 5: (0.1, 0.1, 0.1)}
"""More 3x3 boards that need a wait than this budget finds."""


def make_config(sizes: dict[int, tuple[float, float, float]]) -> LakeConfiguration:
    names = ("data_ratio", "hole_ratio", "wait_ratio")
    ratios = {size: dict(zip(names, values, strict=True)) for size, values in sizes.items()}
    return LakeConfiguration.model_validate({"sizes": ratios})


def draw_stage_boards(
    stage: int, configuration: LakeConfiguration, validation_boards: InstanceSet
) -> StageBoards:
    key, count = derive_key(CONFIG.seed, "train", stage), CONFIG.stages.instances
    return Lake(CONFIG).stage_set(key, configuration, count, validation_boards)


@pytest.fixture(scope="module")
def validation() -> InstanceSet:
    return validation_set(CONFIG)


@pytest.fixture(scope="module")
def short_stage(validation: InstanceSet) -> StageBoards:
    return draw_stage_boards(1, make_config(SHORT_RATIOS), validation)


@pytest.fixture(scope="module")
def smallest_boards() -> InstanceSet:
    """Return all 2x2 boards, a validation set that leaves none to train on."""
    request = BoardRequest(size=2, hole_ratio=0.0, wait_ratio=0.5, count=48, num_agents=2)
    boards, _ = draw_boards(jax.random.key(0), [request], max_size=5, max_candidates=20_000)
    assert len(boards) == 24
    return boards


def list_digests(boards: InstanceSet) -> list[bytes]:
    return board_digests(boards.instances).tolist()


def count_sizes(boards: InstanceSet) -> Counter[int]:
    return Counter(boards.instances.size.tolist())


def test_short_stage_keeps_the_budget_per_size(short_stage: StageBoards) -> None:
    requests = make_requests(make_config(SHORT_RATIOS), CONFIG.stages.instances, num_agents=2)
    counts = {request.size: request.count for request in requests}
    assert count_sizes(short_stage.instances) == counts
    digests = list_digests(short_stage.instances)
    assert len(set(digests)) < CONFIG.stages.instances == len(short_stage.instances)


def test_shortfalls_repeat_boards_of_their_size_equally(short_stage: StageBoards) -> None:
    digests = list_digests(short_stage.instances)
    counts = Counter(digests)
    pairs = list(zip(digests, short_stage.instances.instances.size.tolist(), strict=True))
    repeats = {counts[digest] for digest, size in pairs if size == 3}
    assert max(repeats) - min(repeats) == 1
    assert {counts[digest] for digest, size in pairs if size != 3} == {1}


def test_stage_boards_follow_the_seed(validation: InstanceSet, short_stage: StageBoards) -> None:
    repeated_boards = draw_stage_boards(1, make_config(SHORT_RATIOS), validation).instances
    assert list_digests(repeated_boards) == list_digests(short_stage.instances)
    assert not set(list_digests(repeated_boards)) & set(list_digests(validation))
    next_stage_boards = draw_stage_boards(2, make_config(SHORT_RATIOS), validation).instances
    assert list_digests(next_stage_boards) != list_digests(short_stage.instances)


def test_statistics_describe_distinct_boards(short_stage: StageBoards) -> None:
    (shortfall,) = short_stage.shortfalls
    assert shortfall.size == 3
    statistics = short_stage.statistics["3"]
    assert statistics["missing"] == shortfall.missing_wait + shortfall.missing_no_wait > 0
    indices = np.unique(list_digests(short_stage.instances), return_index=True)[1]
    distinct_boards = short_stage.instances.take(indices)
    costs = distinct_boards.solutions.sum_of_costs[distinct_boards.instances.size == 3]
    assert statistics["mean_sum_of_costs"] == pytest.approx(np.mean(costs), rel=1e-5)


def test_missing_size_is_replaced_by_all_others(smallest_boards: InstanceSet) -> None:
    configuration = make_config({2: (0.5, 0.0, 0.0), 4: (0.3, 0.1, 0.1), 5: (0.2, 0.1, 0.1)})
    stage_boards = draw_stage_boards(1, configuration, smallest_boards)
    assert {report.size for report in stage_boards.draw_reports if report.missing} == {2}
    repeats = Counter(list_digests(stage_boards.instances))
    assert len(repeats) == CONFIG.stages.instances // 2
    assert set(repeats.values()) == {2}
    assert count_sizes(stage_boards.instances) == {4: 614, 5: 410}


def test_complete_stage_has_each_board_once(validation: InstanceSet) -> None:
    initial = CONFIG.environment.initial
    stage_boards = draw_stage_boards(1, initial, validation)
    boards = stage_boards.distinct
    order = np.random.default_rng(derive_seed(CONFIG.seed, "train", 1)).permutation(len(boards))
    assert list_digests(stage_boards.instances) == list_digests(boards.take(order))
    assert len(set(list_digests(boards))) == CONFIG.stages.instances
    assert stage_boards.shortfalls == []


def test_stage_without_boards_is_rejected(smallest_boards: InstanceSet) -> None:
    with pytest.raises(UserError, match="no board could be generated: 2x2"):
        draw_stage_boards(1, make_config({2: (1.0, 0.0, 0.0)}), smallest_boards)
