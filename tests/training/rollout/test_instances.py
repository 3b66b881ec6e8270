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
SHORT = {3: (0.8, 0.0, 0.5), 4: (0.1, 0.1, 0.1), 5: (0.1, 0.1, 0.1)}
"""Too many 3x3 boards of which half would need a wait: this budget doesn't find them."""


def lake(sizes: dict[int, tuple[float, float, float]]) -> LakeConfiguration:
    names = ("data_ratio", "hole_ratio", "wait_ratio")
    ratios = {size: dict(zip(names, values, strict=True)) for size, values in sizes.items()}
    return LakeConfiguration.model_validate({"sizes": ratios})


def drawn_boards(
    stage: int, configuration: LakeConfiguration, validation: InstanceSet
) -> StageBoards:
    key, count = derive_key(CONFIG.seed, "train", stage), CONFIG.stages.instances
    return Lake(CONFIG).stage_set(key, configuration, count, validation)


@pytest.fixture(scope="module")
def validation() -> InstanceSet:
    return validation_set(CONFIG)


@pytest.fixture(scope="module")
def short(validation: InstanceSet) -> StageBoards:
    return drawn_boards(1, lake(SHORT), validation)


@pytest.fixture(scope="module")
def smallest() -> InstanceSet:
    """All 2x2 boards there are, as a validation set that leaves none to train on."""
    request = BoardRequest(size=2, hole_ratio=0.0, wait_ratio=0.5, count=48, num_agents=2)
    boards, _ = draw_boards(jax.random.key(0), [request], max_size=5, max_candidates=20_000)
    assert len(boards) == 24
    return boards


def digests_of(boards: InstanceSet) -> list[bytes]:
    return board_digests(boards.instances).tolist()


def sizes_of(boards: InstanceSet) -> Counter[int]:
    return Counter(boards.instances.size.tolist())


def test_short_stage_keeps_the_budget_per_size(short: StageBoards) -> None:
    requests = make_requests(lake(SHORT), CONFIG.stages.instances, num_agents=2)
    assert sizes_of(short.instances) == {request.size: request.count for request in requests}
    assert len(set(digests_of(short.instances))) < CONFIG.stages.instances == len(short.instances)


def test_shortfalls_repeat_boards_of_their_size_equally(short: StageBoards) -> None:
    digests = digests_of(short.instances)
    counts = Counter(digests)
    pairs = list(zip(digests, short.instances.instances.size.tolist(), strict=True))
    times = {counts[digest] for digest, size in pairs if size == 3}
    assert max(times) - min(times) == 1
    assert {counts[digest] for digest, size in pairs if size != 3} == {1}


def test_stage_boards_follow_from_the_seed(validation: InstanceSet, short: StageBoards) -> None:
    again = drawn_boards(1, lake(SHORT), validation).instances
    assert digests_of(again) == digests_of(short.instances)
    assert not set(digests_of(again)) & set(digests_of(validation))
    next_stage = drawn_boards(2, lake(SHORT), validation).instances
    assert digests_of(next_stage) != digests_of(short.instances)


def test_statistics_describe_distinct_boards(short: StageBoards) -> None:
    (shortfall,) = short.shortfalls
    assert shortfall.size == 3
    statistics = short.statistics["3"]
    assert statistics["missing"] == shortfall.missing_wait + shortfall.missing_no_wait > 0
    rows = np.unique(digests_of(short.instances), return_index=True)[1]
    distinct = short.instances.take(rows)
    of_three = distinct.solutions.sum_of_costs[distinct.instances.size == 3]
    assert statistics["mean_sum_of_costs"] == pytest.approx(np.mean(of_three), rel=1e-5)


def test_missing_size_is_replaced_by_all_others(smallest: InstanceSet) -> None:
    configuration = lake({2: (0.5, 0.0, 0.0), 4: (0.3, 0.1, 0.1), 5: (0.2, 0.1, 0.1)})
    drawn = drawn_boards(1, configuration, smallest)
    assert {report.size for report in drawn.draw_reports if report.missing} == {2}
    times = Counter(digests_of(drawn.instances))
    assert len(times) == CONFIG.stages.instances // 2
    assert set(times.values()) == {2}
    assert sizes_of(drawn.instances) == {4: 614, 5: 410}


def test_complete_stage_has_each_board_once(validation: InstanceSet) -> None:
    initial = CONFIG.environment.initial
    drawn = drawn_boards(1, initial, validation)
    distinct = drawn.distinct
    order = np.random.default_rng(derive_seed(CONFIG.seed, "train", 1)).permutation(len(distinct))
    assert digests_of(drawn.instances) == digests_of(distinct.take(order))
    assert len(set(digests_of(distinct))) == CONFIG.stages.instances
    assert drawn.shortfalls == []


def test_stage_without_boards_is_rejected(smallest: InstanceSet) -> None:
    with pytest.raises(UserError, match="no board could be generated: 2x2"):
        drawn_boards(1, lake({2: (1.0, 0.0, 0.0)}), smallest)
