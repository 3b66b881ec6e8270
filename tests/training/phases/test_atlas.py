"""A run's atlas: its boards, its counts and its use."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxlake.board.limits import holes_on_board
from jaxlake.generator.board_digests import board_digests
from jaxlake.language.prompts import target
from tests.paths import TINY
from tests.training.fake_run import KilledError, StandInSampler, raise_killed, without_vllm
from tests.training.sample_run import CONFIG
from training import loop
from training.audit import audit_run
from training.errors import UserError
from training.phases import atlas as phase
from training.phases.atlas import (
    draw_atlas_boards,
    get_atlas_cells,
    get_or_measure_atlas,
    measure_atlas,
    measure_last_atlas,
    read_atlas,
)
from training.phases.validate import validation_set
from training.rollout.instances import InstanceSet
from training.run.directory import RunDirectory
from training.sampling.sampler import SamplingRequest
from training.schema import RunConfig, load

ATLAS_SETTINGS = {"levels": 2, "boards_per_cell": 6, "answers": 4}


def make_config(**engineer: Any) -> RunConfig:
    return RunConfig.model_validate(CONFIG | {"engineer": {"atlas": ATLAS_SETTINGS} | engineer})


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return make_config()


@pytest.fixture(scope="module")
def validation(config: RunConfig) -> InstanceSet:
    return validation_set(config)


def test_atlas_boards_are_new_and_seeded_by_stage(config, validation):
    cells = get_atlas_cells(config)
    boards, cell_indices = draw_atlas_boards(config, 2, cells, validation)
    assert len(cells) == 3 * 2 * 2
    assert np.bincount(cell_indices).tolist() == [6] * len(cells)
    for row, index in enumerate(cell_indices):
        group, knobs = cells[index]
        grid = "".join(boards.grid(row))
        assert int(boards.instances.size[row]) == int(group)
        assert grid.count("H") == holes_on_board(int(group), knobs["hole_ratio"])
        assert bool(boards.solutions.needs_wait[row]) == (knobs["wait_ratio"] == 1.0)
    repeated_boards, _ = draw_atlas_boards(config, 2, cells, validation)
    later_boards, _ = draw_atlas_boards(config, 3, cells, validation)
    # With the same key, but with these boards as the validation set.
    other_boards, _ = draw_atlas_boards(config, 2, cells, boards)
    digests, repeated_digests, later_digests, validation_digests, other_digests = (
        {tuple(row) for row in np.asarray(board_digests(board_list.instances)).tolist()}
        for board_list in (boards, repeated_boards, later_boards, validation, other_boards)
    )
    assert digests == repeated_digests
    assert digests != later_digests
    assert len(digests) == len(boards)
    assert not digests & validation_digests
    assert not digests & other_digests


class FakePolicy:
    """A policy and its sampler: a board is solved as often as its cell says, by an optimal plan."""

    stop_ids = (0,)

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count_solved: Callable[[int], int]) -> None:
        self.count_solved, self.calls, self.num_syncs = count_solved, [], 0
        draw = phase.draw_atlas_boards

        def record_draw(*arguments: Any) -> Any:
            self.boards, self.cells = draw(*arguments)
            self.rows = iter(range(len(self.boards)))
            return self.boards, self.cells

        monkeypatch.setattr(phase, "draw_atlas_boards", record_draw)

    def encode_board(self, board: object) -> list[int]:
        return [next(self.rows)]

    def sample(self, request: SamplingRequest) -> list[list[Any]]:
        self.calls.append((len(request.prompts), request.n, request.temperature, request.seed))
        return [
            [
                SimpleNamespace(token_ids=(row, index < self.count_solved(int(self.cells[row]))))
                for index in range(request.n)
            ]
            for (row,) in request.prompts
        ]

    def decode(self, token_ids: tuple[int, bool], prompt: Sequence[int]) -> str:
        row, is_solved = token_ids
        return target(np.asarray(self.boards.solutions.plan[row])) if is_solved else "no idea"

    def tensors(self, params: object) -> object:
        return params

    def sync(self, tensors: object) -> None:
        self.num_syncs += 1


@pytest.fixture
def run(config, validation, monkeypatch, tmp_path) -> Any:
    policy = FakePolicy(monkeypatch, lambda cell: cell % 5)
    directory = RunDirectory(tmp_path)
    return SimpleNamespace(config=config, directory=directory, policy=policy, validation=validation)


def test_atlas_counts_valid_answers_per_board(config, validation, monkeypatch):
    policy: Any = FakePolicy(monkeypatch, lambda cell: cell % 5)
    monkeypatch.setattr(phase, "CHUNK", 40)
    atlas = measure_atlas(config, policy, policy, 2, validation)
    for index, cell in enumerate(atlas.cells):
        assert cell.boards == tuple(6 if k == index % 5 else 0 for k in range(5))
    assert [(cell.group, cell.knobs) for cell in atlas.cells] == get_atlas_cells(config)
    assert atlas.rollouts == 12 * 6 * 4
    prompt_counts, answer_counts, temperatures, seeds = zip(*policy.calls, strict=True)
    assert (prompt_counts, set(answer_counts)) == ((10,) * 7 + (2,), {4})
    assert set(temperatures) == {config.sampling.temperature}
    assert len(set(seeds)) == len(seeds)


def test_atlas_leaves_infeasible_cells_empty(monkeypatch):
    config = load(TINY, [f"engineer.atlas={ATLAS_SETTINGS}", "environment.max_candidates=20000"])
    policy: Any = FakePolicy(monkeypatch, lambda cell: 2)
    atlas = measure_atlas(config, policy, policy, 1, validation_set(config))
    counts = {(cell.group, *cell.knobs.values()): cell.count for cell in atlas.cells}
    assert counts["2", 0.0, 1.0] == 0  # no 2x2 board needs a wait
    assert counts["2", 0.0, 0.0] > 0
    assert counts["3", 0.0, 1.0] == 6
    assert atlas.rollouts < 12 * 6 * 4


def test_atlas_is_measured_once_for_its_settings(run, config):
    policy, directory = run.policy, run.directory
    result = SimpleNamespace(stage=1, gate=None)
    state: Any = SimpleNamespace(params=())
    record = get_or_measure_atlas(run, policy, state, [None, result])
    assert (record.stage, record.weights, policy.num_syncs) == (1, 1, 1)
    text = directory.stage(1).atlas.path.read_text()
    policy.count_solved = lambda cell: 0
    assert get_or_measure_atlas(run, policy, state, [None, result]) == record
    assert directory.stage(1).atlas.path.read_text() == text
    assert policy.num_syncs == 1
    other_config = make_config(atlas=ATLAS_SETTINGS | {"levels": 3})
    with pytest.raises(UserError, match=r"stages/1/atlas.json: its cells differ from"):
        read_atlas(directory, other_config, 1)
    shutil.copytree(directory.stage(1).path, directory.stage(2).path)
    with pytest.raises(UserError, match="stage must be 2, got 1"):
        read_atlas(directory, config, 2)
    with pytest.raises(UserError, match=r"atlases/3.json: is missing"):
        read_atlas(directory, config, 3)


@pytest.mark.parametrize(
    ("restored", "weights"), [(None, 2), ("configuration", 2), ("checkpoint", 1)]
)
def test_atlas_names_weights_in_force(restored, weights, run, monkeypatch):
    """If the gate restores a checkpoint after stage 2, training continues from stage 1."""
    synced_params: list[object] = []
    monkeypatch.setattr(run.policy, "sync", synced_params.append)
    gate = SimpleNamespace(restored=restored, reference=1)
    results: Any = [None, None, SimpleNamespace(stage=2, gate=gate)]
    state: Any = SimpleNamespace(params="weights in force")
    assert get_or_measure_atlas(run, run.policy, state, results).weights == weights
    assert synced_params == ["weights in force"]


def test_last_atlas_is_measured_once_outside_the_stage(run, config):
    policy, directory = run.policy, run.directory
    results: Any = [None, None, SimpleNamespace(stage=2, gate=None)]
    measure_last_atlas(run, policy, results)
    record = read_atlas(directory, config, 2)
    assert (record.stage, record.weights) == (2, 2)
    assert record == directory.report_atlas(2).read()  # not one of the stage's files
    policy.count_solved = lambda cell: 0
    measure_last_atlas(run, policy, results)
    assert read_atlas(directory, config, 2) == record
    directory.stage(2).atlas.write(record)  # as learning to design would have
    directory.report_atlas(2).path.unlink()
    measure_last_atlas(run, policy, results)
    assert not directory.report_atlas(2).exists()


@pytest.mark.slow
def test_resumed_run_measures_its_last_atlas(tmp_path, monkeypatch):
    config = load(TINY, [f"engineer.atlas={ATLAS_SETTINGS | {'after_last': True}}"])
    last_stage, measured_weights, measure = config.stages.count, [], phase.measure_atlas

    def record_weights(config: Any, policy: Any, sampler: Any, *arguments: Any) -> Any:
        measured_weights.append(sampler.weights)
        return measure(config, policy, sampler, *arguments)

    directory = RunDirectory(tmp_path)
    with without_vllm():
        monkeypatch.setattr(phase, "measure_atlas", raise_killed)
        with pytest.raises(KilledError):
            loop.run(config, tmp_path)
        assert not directory.finished()
        monkeypatch.setattr(phase, "measure_atlas", record_weights)
        loop.run(config, tmp_path)
        with closing(StandInSampler(directory.stage(last_stage).policy, None)) as sampler:
            assert measured_weights == [sampler.weights]
    assert directory.report_atlas(last_stage).read().weights == last_stage
    assert "<h2>Learnability</h2>" in (tmp_path / "report.html").read_text()
    assert not any(stage.problems for stage in audit_run(tmp_path))
