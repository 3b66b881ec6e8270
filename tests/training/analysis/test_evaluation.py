"""A model folder can be evaluated without a run; what is missing is named."""

import gc
import json

import jax
import pytest

from jaxlake.command_line.entry import main
from tests.paths import TINY
from tests.training.stand_in_sampler import StandInSampler
from training.analysis.evaluation import frozen_policy
from training.policy.policy import make_policy
from training.sampling import engines
from training.schema import load


@pytest.mark.slow
def test_evaluate_prints_and_writes_the_rates_of_a_folder(tmp_path, monkeypatch, capsys):
    folder, output = tmp_path / "policy", tmp_path / "rates.json"
    texts = ["Agent 0: UP DOWN LEFT RIGHT WAIT (0, 1) to (2, 3)"] * 4
    make_policy(folder, load(TINY).model, texts, max_len=512, seed=0)
    monkeypatch.setattr(engines, "VllmSampler", StandInSampler)
    assert main(["evaluate", str(TINY), "--model", str(folder), "--output", str(output)]) == 0
    rates = json.loads(output.read_text())
    total = rates["total"]
    assert rates["model"] == str(folder)
    assert total["count"] == sum(row["count"] for row in rates["groups"].values()) > 0
    assert 0 < total["valid"] == total["count"] - sum(total["failures"].values())
    printed = capsys.readouterr().out
    assert "map size" in printed
    assert "valid (CSR)" in printed
    (last,) = (line for line in printed.splitlines() if line.split()[1:2] == ["all"])
    assert f"{100 * total['isr']:.1f}" in last


@pytest.mark.slow
def test_only_the_engine_keeps_weights_while_it_answers(tmp_path):
    settings = ["sampling.engine=jax", "sampling.dtype=bfloat16"]
    config = load(TINY, [*settings, "model.scratch.hidden_size=72"])  # no other test's weights
    folder = tmp_path / "policy"
    make_policy(folder, config.model, ["Agent 0: UP (0, 1)"] * 4, max_len=512, seed=0)
    with frozen_policy(config, folder):
        gc.collect()
        dtypes = [str(one.dtype) for one in jax.live_arrays() if 72 in one.shape]
    assert set(dtypes) == {"bfloat16"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", str(TINY), "--model", "{tmp}/absent"], ["absent"]),
        (["evaluate", str(TINY), "--model", "{tmp}"], ["config.json"]),
        (["evaluate", str(TINY), "--run-dir", "{tmp}"], ["is not a run's directory"]),
        (["evaluate", str(TINY), "--model", "x", "--stage", "1"], ["--stage", "--run-dir"]),
        (["report", "{tmp}"], ["{tmp}"]),
        (["run", str(TINY), "--run-dir", "{tmp}/occupied"], ["not empty"]),
    ],
)
def test_what_is_missing_is_named(arguments, words, tmp_path, capsys):
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "thesis.tex").touch()
    assert main([argument.format(tmp=tmp_path) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert all(word.format(tmp=tmp_path) in error for word in words)


def test_a_model_that_is_missing_is_named_before_a_run_claims_its_directory(tmp_path, capsys):
    command = ["run", str(TINY), "--run-dir", str(tmp_path / "run")]
    assert main([*command, "--set", "model.pretrained=/nowhere"]) == 2
    said = capsys.readouterr()
    assert "model '/nowhere': no such folder" in said.err
    assert said.out == ""
    assert not (tmp_path / "run").exists()
