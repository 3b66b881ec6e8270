"""The atlas of a stage that is over: read or measured with its weights, scored and drawn."""

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engineer import AtlasCell, DesignAtlas
from jaxlake.command_line.entry import main
from tests.training.analysis.pages import page_of
from tests.training.sample_run import CONFIG, write_sample_run
from training.analysis import atlas as analysis
from training.phases.atlas import cells_of
from training.run.directory import RunDirectory
from training.run.records import AtlasRecord
from training.schema import RunConfig


def some_atlas(config: RunConfig, seed: int = 0) -> DesignAtlas:
    rng = np.random.default_rng(seed)
    return DesignAtlas(
        cells=tuple(
            AtlasCell(
                group=group,
                knobs=knobs,
                boards=tuple(np.bincount(rng.binomial(8, rng.random(), 20), minlength=9).tolist()),
            )
            for group, knobs in cells_of(config)
        )
    )


@pytest.fixture
def run(run_copy: Path) -> Path:
    for stage in range(4):
        (run_copy / f"stages/{stage}/policy").mkdir(exist_ok=True)
    return run_copy


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
    """The folders of weights that were loaded, and the stages that were measured with them."""
    loaded: list[tuple[Path, int]] = []

    @contextmanager
    def frozen_policy(config: RunConfig, folder: Path) -> Iterator[tuple[Path, None]]:
        yield folder, None

    def measure(
        config: RunConfig, policy: Any, sampler: object, stage: int, validation: object
    ) -> DesignAtlas:
        loaded.append((policy, stage))
        return some_atlas(config, stage)

    monkeypatch.setattr(analysis, "frozen_policy", frozen_policy)
    monkeypatch.setattr(analysis, "measure_atlas", measure)
    return loaded


def atlas_command(run: Path, stage: int, *more: str) -> int:
    return main(["engineer", "atlas", str(run), "--stage", str(stage), *more])


def test_an_atlas_is_measured_once_with_the_weights_in_force(run, measured, tmp_path, capsys):
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file in files:
        assert atlas_command(run, 2, "--json", str(file)) == 0
    directory = RunDirectory(run)
    assert measured == [(directory.stage(2).policy, 2)]
    assert files[0].read_text() == files[1].read_text()
    assert not directory.stage(2).atlas.exists()  # it is no part of what the stage left
    config, record = directory.config(), directory.later_atlas(2).read()
    assert record == AtlasRecord(stage=2, weights=2, atlas=some_atlas(config, 2))
    out = json.loads(files[0].read_text())
    assert (out["stage"], out["weights"], len(out["cells"])) == (2, 2, 3 * 4 * 2)
    printed = capsys.readouterr().out
    assert str(record.atlas.cells[0].learnability) in printed


def test_of_a_stage_that_was_taken_back_the_weights_before_it_are_measured(
    tmp_path, measured, capsys
):
    environment = copy.deepcopy(CONFIG["environment"])
    environment["bounds"]["max_hole_ratio"] = 0.25
    gate = {"gate": {"rollback": "checkpoint"}}
    config = RunConfig.model_validate(CONFIG | {"environment": environment, "engineer": gate})
    run = write_sample_run(tmp_path / "run", config, skill=(0.3, 0.9, 0.1, 0.9))
    directory = RunDirectory(run)
    assert directory.stage(2).gate.read().restored == "checkpoint"
    for stage in range(4):
        directory.stage(stage).policy.mkdir()
    assert atlas_command(run, 2, "--json", str(tmp_path / "out.json")) == 0
    assert measured == [(directory.stage(1).policy, 2)]
    assert directory.later_atlas(2).read().weights == 1
    assert "Atlas of stage 2, weights of stage 1:" in capsys.readouterr().out
    # What the gate will say is known before it has spoken.
    directory.later_atlas(2).path.unlink()
    directory.stage(2).gate.path.unlink()
    assert analysis.stage_atlas(run, 2).weights == 1
    assert measured == [(directory.stage(1).policy, 2)] * 2


def test_stage_0_has_the_atlas_of_what_the_run_began_with(run, measured, tmp_path):
    assert atlas_command(run, 0, "--json", str(tmp_path / "zero.json")) == 0
    directory = RunDirectory(run)
    assert measured == [(directory.stage(0).policy, 0)]
    out = json.loads((tmp_path / "zero.json").read_text())
    assert (out["stage"], out["weights"]) == (0, 0)


def test_an_atlas_that_the_run_measured_is_read(run, measured):
    directory = RunDirectory(run)
    own = AtlasRecord(stage=1, weights=1, atlas=some_atlas(directory.config(), 9))
    directory.stage(1).atlas.write(own)
    assert analysis.stage_atlas(run, 1) == own
    assert measured == []
    assert not directory.later_atlas(1).exists()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda run: None, r"--stage: got 9, allowed are the stages with a validation: 0, 1, 2, 3"),
        (lambda run: shutil.rmtree(run / "stages/2/policy"), "stages/2/policy: is missing, it"),
        (
            lambda run: (
                RunDirectory(run)
                .later_atlas(2)
                .write(
                    AtlasRecord(stage=1, weights=1, atlas=some_atlas(RunDirectory(run).config()))
                )
            ),
            "atlases/2.json: stage: got 1, it stands for stage 2",
        ),
        (
            lambda run: (run / "atlases").mkdir() or (run / "atlases/2.json").write_text("{}"),
            "atlases/2.json: stage: required, but missing",
        ),
    ],
)
def test_what_can_not_be_measured_is_told(
    run: Path, measured: object, capsys: Any, damage: Callable[[Path], object], told: str
):
    damage(run)
    assert atlas_command(run, 9 if "--stage" in told else 2) == 2
    error = capsys.readouterr().err
    assert told.lower() in error.lower()


@pytest.mark.slow
def test_the_report_draws_the_atlas_of_each_stage_that_has_one(run, measured):
    assert "What could be learned" not in page_of(run).text
    assert atlas_command(run, 2) == 0
    assert "What could be learned" in page_of(run).text
    file = RunDirectory(run).later_atlas(2)
    cells = [one.model_copy(update={"boards": (0,) * 9}) for one in file.read().atlas.cells]
    file.write(file.read().model_copy(update={"atlas": DesignAtlas(cells=tuple(cells))}))
    assert "What could be learned" in page_of(run).text  # though no board could be made
    file.path.write_text(file.path.read_text().replace("wait_ratio", "meteors"))
    assert "atlases/2.json: atlas: knobs: got hole_ratio and meteors" in page_of(run).text
