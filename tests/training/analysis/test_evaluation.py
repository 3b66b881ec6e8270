"""A model folder can be evaluated without a run; errors name missing files."""

import gc
import json

import jax
import pytest

from jaxlake.command_line.entry import main
from tests.paths import TINY
from tests.training.fake_run import StandInSampler
from training.analysis.evaluation import open_frozen_policy
from training.policy.policy import write_random_policy
from training.sampling import engines
from training.schema import load


@pytest.mark.slow
def test_evaluate_prints_and_writes_rates(tmp_path, monkeypatch, capsys):
    folder, output = tmp_path / "policy", tmp_path / "rates.json"
    texts = ["Agent 0: UP DOWN LEFT RIGHT WAIT (0, 1) to (2, 3)"] * 4
    write_random_policy(folder, load(TINY).model, texts, max_len=512, seed=0)
    monkeypatch.setattr(engines, "VllmSampler", StandInSampler)
    assert main(["evaluate", str(TINY), "--model", str(folder), "--output", str(output)]) == 0
    rates = json.loads(output.read_text())
    total = rates["total"]
    assert rates["model"] == str(folder)
    assert total["count"] == sum(row["count"] for row in rates["groups"].values()) > 0
    assert 0 < total["valid"] == total["count"] - sum(total["failures"].values())
    stdout = capsys.readouterr().out
    assert "map size" in stdout
    assert "valid (CSR)" in stdout
    (total_line,) = (line for line in stdout.splitlines() if line.split()[1:2] == ["all"])
    assert f"{100 * total['isr']:.1f}" in total_line


@pytest.mark.slow
def test_evaluate_takes_several_samples_per_instance(tmp_path, monkeypatch, capsys):
    folder, output = tmp_path / "policy", tmp_path / "rates.json"
    texts = ["Agent 0: UP DOWN LEFT RIGHT WAIT (0, 1) to (2, 3)"] * 4
    write_random_policy(folder, load(TINY).model, texts, max_len=512, seed=0)
    monkeypatch.setattr(engines, "VllmSampler", StandInSampler)
    command = ["evaluate", str(TINY), "--model", str(folder), "--output", str(output)]
    assert main([*command, "--samples", "4", "--set", "validation.temperature=1"]) == 0
    total = json.loads(output.read_text())["total"]
    rates = {k: share for k, (share, _, _) in total["pass_at"].items()}
    assert total["count"] == 4 * 63  # boards that the lake can make
    assert list(rates) == ["1", "2", "4"]
    assert rates["1"] == pytest.approx(total["valid"] / total["count"], abs=1e-6)
    assert rates["1"] < rates["2"] < rates["4"]
    stdout = capsys.readouterr().out
    assert "pass@4" in stdout
    assert "of 252 answers are readable" in stdout


@pytest.mark.slow
def test_evaluate_keeps_weights_only_in_the_engine(tmp_path):
    settings = ["sampling.engine=jax", "sampling.dtype=bfloat16"]
    config = load(TINY, [*settings, "model.scratch.hidden_size=72"])  # no other test's weights
    folder = tmp_path / "policy"
    write_random_policy(folder, config.model, ["Agent 0: UP (0, 1)"] * 4, max_len=512, seed=0)
    with open_frozen_policy(config, folder):
        gc.collect()
        dtypes = [str(array.dtype) for array in jax.live_arrays() if 72 in array.shape]
    assert set(dtypes) == {"bfloat16"}
