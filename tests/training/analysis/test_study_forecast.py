"""The paper's studies load, and their dry run forecasts what can be counted by hand."""

import re
from pathlib import Path

import pytest

from jaxlake.command_line.entry import main
from tests.paths import ROOT
from training.analysis.study.config import load_study
from training.analysis.study.forecast import amounts, rounds_of
from training.run.forking import same_first_round

FIVE = ["failure_breakdown", "training_details", "history", "summary", "guideline"]
FILES = ["study_paper.yaml", "study_paper_small.yaml"]


@pytest.mark.parametrize("name", FILES)
def test_the_paper_s_study_has_its_arms_and_its_dry_run_prints_a_forecast(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = ROOT / "configs" / name
    study = load_study(path, seeds=[1])
    configs = {run.engineer: study.config_of(run, Path("policy")) for run in study.runs}
    assert set(configs) == {
        *("fixed_random", "checkpoint", "base", "hard_only", "easy_to_hard"),
        *(f"without_{block}" for block in FIVE),
    }
    for block in FIVE:
        left = [one for one in FIVE if one != block]
        assert list(configs[f"without_{block}"].engineer.blocks) == left
    assert list(configs["checkpoint"].engineer.blocks) == FIVE
    fixed, checkpoint = configs["fixed_random"], configs["checkpoint"]
    assert fixed.environment.initial != checkpoint.environment.initial
    assert all(config.prompt.max_tokens >= 2048 for config in configs.values())
    assert all(config.engineer.training_rollouts for config in configs.values())
    alike = [one for one in configs.values() if same_first_round(one, checkpoint)]
    assert len(alike) == 9

    command = ["study", str(path), "--seeds", "1", "--dry-run", "--study-dir", str(tmp_path)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    forecast = study.config.forecast
    assert forecast is not None
    stages, validations = 10 * 3 - 8, 10 * 4 - 2 * 8
    assert rounds_of(study, Path("policy")) == (stages, validations)
    base = study.warm_start
    instances = stages * base.updates_per_stage * base.grpo.prompts_per_update
    boards = base.validation.cells * base.validation.per_cell
    answers = instances * 8 + validations * boards
    assert re.search(rf"training instances .* {instances:,} ", printed)
    assert re.search(rf"tokens of answers .* {answers * forecast.answer_tokens:,.0f} ", printed)
    sampling = answers * forecast.answer_tokens / forecast.sampling_tokens_per_second / 3600
    assert re.search(rf"hours of sampling .* {sampling:,.1f} ", printed)
    every = amounts(base, forecast, stages=stages, validations=validations)
    assert every.hours == pytest.approx((sampling + every.update_hours) * 1.2)
    assert re.search(rf"GPU hours .* {every.hours * forecast.devices:,.1f} ", printed)
    assert "Forecast: nothing of it was measured" in printed
    assert f"updates at {forecast.mfu:.0%} of 989 TFLOP/s" in " ".join(printed.split())


def test_the_small_study_is_forecast_to_take_a_day_on_its_gpu():
    study = load_study(ROOT / "configs/study_paper_small.yaml")
    forecast = study.config.forecast
    assert forecast is not None
    stages, validations = rounds_of(study, Path("policy"))
    every = amounts(study.warm_start, forecast, stages=stages, validations=validations)
    assert forecast.devices == 1
    assert 12 < every.hours <= 24


def test_operations_of_updates_scale_as_they_are_counted():
    study = load_study(ROOT / "configs/study_paper.yaml")
    forecast = study.config.forecast
    assert forecast is not None
    one = amounts(study.warm_start, forecast, stages=1, validations=0)
    # 6 operations for each of about 3.6 billion weights of layers, and for the head's 0.39.
    tokens = 4000 * 8 * forecast.answer_tokens
    least = 6 * 4.0e9 * tokens / (989e12 * 8 * forecast.mfu) / 3600
    assert 1.0 < one.update_hours / least < 1.4
    assert one.instances == 4000
