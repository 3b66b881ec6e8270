"""The time that a dry run forecasts: what an earlier run of the same settings took, scaled."""

import os

import pytest

from jaxlake.command_line.entry import main
from tests.paths import ROOT
from training.run.directory import RunDirectory
from training.run.records import TimingRecord
from training.run.time_estimate import estimated_time
from training.schema import dump, load

TINY = ROOT / "tests/training/tiny.yaml"


def write_run(folder, config, *, update=2.0):
    """Write what an estimate reads of a run: four updates, two validations, ten warm steps."""
    folder.mkdir(parents=True)
    directory = RunDirectory(folder)
    directory.config_file.write_text(dump(config))
    lines = [TimingRecord(phase="warm_start", stage=0, step=10, seconds={"warm_start": 5.0})]
    seconds = {"rollout": update, "update": 1.0}
    lines += [
        TimingRecord(
            phase="train",
            stage=1,
            update=number,
            step=10,
            seconds={"rollout": update, "update": 1.0},
        )
        for number in range(1, 5)
    ]
    for stage, seconds in enumerate((7.0, 9.0)):
        lines.append(
            TimingRecord(phase="validate", stage=stage, step=10, seconds={"validate": seconds})
        )
    directory.timings.write(lines)
    return folder


def estimate_of(config, folder):
    return estimated_time(config, folder / "next", folder)


@pytest.fixture
def config():
    return load(TINY)


def test_phases_are_scaled_by_their_counts(tmp_path, config):
    source = write_run(tmp_path / "earlier", config)
    longer = load(TINY, ["stages.count=5", "seed=3", "warm_start.steps=200"])
    estimate = estimate_of(longer, tmp_path)
    assert estimate is not None
    assert (estimate.source, estimate.updates) == (source, 4)
    assert estimate.seconds == {
        "warm_start": pytest.approx(0.5 * 200),
        "train": pytest.approx(3.0 * 5 * longer.updates_per_stage),
        "validate": pytest.approx(8.0 * 6),
    }
    assert estimate.unknown == ("design",)  # no line says what it takes
    assert estimate.total == pytest.approx(sum(estimate.seconds.values()))


@pytest.mark.parametrize(
    "change", ["model.scratch.hidden_size=128", "grpo.completions=2", "prompt.max_tokens=33"]
)
def test_a_run_of_other_settings_is_no_measure(change, tmp_path, config):
    write_run(tmp_path / "earlier", config)
    assert estimate_of(config, tmp_path) is not None
    assert estimate_of(load(TINY, [change]), tmp_path) is None


def test_a_phase_of_other_settings_is_said_to_be_unknown(tmp_path, config):
    write_run(tmp_path / "earlier", config)
    estimate = estimate_of(load(TINY, ["validation.per_cell=3"]), tmp_path)
    assert estimate is not None
    assert {"warm_start", "train"} == set(estimate.seconds)
    assert estimate.unknown == ("validate", "design")


def test_the_newest_run_is_taken_and_broken_ones_are_passed_over(tmp_path, config):
    for number, name in enumerate(("old", "study/runs/rule/1", "new")):
        timings = write_run(tmp_path / name, config, update=1.0 + number) / "timings.jsonl"
        os.utime(timings, (number, number))
    (tmp_path / "new/config.yaml").write_text("junk: 1")
    estimate = estimate_of(config, tmp_path)
    assert estimate is not None
    assert estimate.seconds["train"] == pytest.approx(
        3.0 * config.stages.count * config.updates_per_stage
    )


def test_a_dry_run_names_its_source_or_says_that_there_is_none(tmp_path, config, capsys):
    arguments = ["run", str(TINY), "--dry-run", "--run-dir", str(tmp_path / "next")]
    assert main(arguments) == 0
    assert "Time: not estimated" in capsys.readouterr().out
    write_run(tmp_path / "earlier", config)
    assert main(arguments) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"It is what {tmp_path / 'earlier'} took (4 updates there)" in printed
    assert "not measured" in printed
