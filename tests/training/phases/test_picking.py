"""Picking boards by the largest p(1-p), and resuming a run that does."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.paths import TINY
from tests.training.fake_run import without_vllm
from tests.training.update_records import make_update
from training import loop
from training.errors import UserError
from training.phases.picking import compute_selection_cost, draw_pool, get_stage_instances
from training.phases.validate import validation_set
from training.rollout.instances import InstanceSet
from training.run.directory import RunDirectory
from training.run.records import PicksRecord
from training.schema import RunConfig


def make_config(method: str, **changes: Any) -> RunConfig:
    tree = yaml.safe_load(TINY.read_text())
    picking = {"method": method, "pool": 60} | changes
    tree["engineer"] |= {"kind": "fixed", "picking": picking, "atlas": {"answers": 4}}
    return RunConfig.model_validate(tree)


def list_texts(boards: InstanceSet) -> list[str]:
    return ["\n".join(boards.grid(row)) for row in range(len(boards))]


@pytest.fixture(scope="module")
def validation() -> InstanceSet:
    return validation_set(make_config("sfl"))


def test_sfl_picks_half_solved_boards(validation, tmp_path: Path):
    config = make_config("sfl")
    directory, initial = RunDirectory(tmp_path), config.environment.initial
    pool = draw_pool(config, config.engineer.picking, 1, validation)
    assert len(pool) >= 30
    assert len(set(list_texts(pool))) == len(pool)
    assert not set(list_texts(pool)) & set(list_texts(validation))
    best_rows = np.arange(5, 5 + 60 // 4)
    counts = np.where(np.arange(len(pool)) % 3, 4, 0)
    counts[best_rows] = 2
    stage = directory.stage(1)
    stage.picks.path.parent.mkdir(parents=True)
    stage.picks.write(PicksRecord(stage=1, answers=4, valid=tuple(counts.tolist())))
    boards = get_stage_instances(config, directory, 1, initial, validation)
    board_counts = Counter(list_texts(boards.instances))
    assert sum(board_counts.values()) == config.stages.instances
    selected_counts = [board_counts[list_texts(pool)[row]] for row in best_rows]
    # Half of 32 boards are selected; the others are random boards of the pool.
    assert min(selected_counts) >= 1
    assert sum(selected_counts) >= 16
    assert set(board_counts) <= set(list_texts(pool))
    num_boards = sum(report.count for report in boards.draw_reports)
    assert num_boards == len(set(board_counts)) == len(boards.distinct)
    assert sum(values["missing"] for values in boards.statistics.values()) == 0
    repeated_boards = get_stage_instances(config, directory, 1, initial, validation)
    assert list_texts(repeated_boards.instances) == list_texts(boards.instances)
    assert compute_selection_cost(stage).probe_rollouts == 4 * len(pool)

    stage.picks.write(PicksRecord(stage=1, answers=4, valid=(1, 2)))
    with pytest.raises(UserError, match=r"valid must have .* boards, got 2"):
        get_stage_instances(config, directory, 1, initial, validation)


def test_plr_replays_the_most_learnable_boards(validation, tmp_path: Path):
    config = make_config("plr", pool=16)
    directory, initial = RunDirectory(tmp_path), config.environment.initial
    first_boards = get_stage_instances(config, directory, 1, initial, validation)
    trained_texts = list_texts(first_boards.instances)
    counts_by_text = dict.fromkeys(trained_texts, 4)
    learnable_texts = list(dict.fromkeys(trained_texts))[3:7]
    counts_by_text |= dict.fromkeys(learnable_texts, 2)
    valid_counts = [counts_by_text[text] for text in trained_texts]
    valid_counts[trained_texts.index(learnable_texts[0])] = 2
    for update in range(4):
        valid = tuple(valid_counts[8 * update : 8 * update + 8])
        directory.metrics.append(make_update(1, update + 1, board_valid=valid))
    second_boards = get_stage_instances(config, directory, 2, initial, validation)
    assert len(second_boards.instances) == config.stages.instances
    board_counts = Counter(list_texts(second_boards.instances))
    assert min(board_counts[text] for text in learnable_texts) >= 2
    pool = set(list_texts(draw_pool(config, config.engineer.picking, 2, validation)))
    assert set(board_counts) <= pool | set(learnable_texts)

    directory.metrics.write([record for record in directory.metrics.read() if record.update < 4])
    with pytest.raises(UserError, match="must have 32 boards up to stage 1, got 24"):
        get_stage_instances(config, directory, 2, initial, validation)


def test_picking_requires_a_fixed_configuration():
    tree = yaml.safe_load(TINY.read_text())
    tree["engineer"] |= {"kind": "rule", "picking": {"method": "plr"}}
    with pytest.raises(ValueError, match="picking must be null unless kind is fixed"):
        RunConfig.model_validate(tree)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sfl", "plr"])
def test_ledger_counts_answers_to_the_pool(method: str, tmp_path: Path):
    with without_vllm():
        loop.run(make_config(method), tmp_path)
    stage = RunDirectory(tmp_path).stage(2)
    spent = stage.decision.read().spent
    assert spent.probe_rollouts == compute_selection_cost(stage).probe_rollouts
    assert (spent.probe_rollouts > 0) == (method == "sfl")
