"""An interrupted training ends like an uninterrupted one, and its model loads."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml
from safetensors.flax import load_file

from examples.base_model import train as loop
from examples.base_model.__main__ import main
from examples.base_model.recipe import Optimization, Recipe
from tests.examples.base_model.conftest import TINY
from training.errors import UserError
from training.policy.policy import load_policy
from training.schema import ModelConfig, PromptConfig


def read_lines(file: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow
def test_train_resumes_identically(tiny: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loop, "LOG_EVERY", 10)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert loop.train(tiny, whole) == whole / "model"
    assert loop.train(tiny, stopped, stop_after=20) is None
    assert not (stopped / "model").exists()
    assert loop.train(tiny, stopped) == stopped / "model"
    expected, actual = (
        load_file(folder / "model/model.safetensors") for folder in (whole, stopped)
    )
    assert expected.keys() == actual.keys()
    for name, leaf in expected.items():
        assert leaf.dtype == "bfloat16"
        np.testing.assert_array_equal(leaf, actual[name], err_msg=name)
    for name in ("metrics.jsonl", "evaluations.jsonl", "model/tokenizer.json"):
        assert (whole / name).read_text() == (stopped / name).read_text(), name

    lines = read_lines(whole / "metrics.jsonl")
    assert [line["step"] for line in lines] == [10, 20, 30, 40]
    assert lines[-1]["plan_loss"] < lines[0]["plan_loss"]
    assert lines[-1]["design_loss"] < lines[0]["design_loss"]
    assert lines[-1]["learning_rate"] == pytest.approx(5e-4)
    evaluations = read_lines(whole / "evaluations.jsonl")
    assert [folder["step"] for folder in evaluations] == [40, 40]  # before and after rounding
    assert len(evaluations[-1]["valid"]) == 8
    prompt = PromptConfig(max_tokens=48, max_steps=32)
    policy, _ = load_policy(
        whole / "model", ModelConfig(pretrained=str(whole / "model")), prompt, length_bucket=16
    )
    text = "stage next\nn3 valid8 hole swap + learn4 data5 + hole4 = wait3 =\nedits\n"
    assert policy.decode(policy.encode_prompt(text)) == text
    with pytest.raises(UserError, match="holds a training of another recipe"):
        loop.train(tiny.model_copy(update={"seed": 6}), whole)


def test_command_rejects_unknown_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(TINY))
    with pytest.raises(SystemExit):
        main([str(recipe), "--set", "optimization.learning_rte=1"])
    assert "optimization.learning_rte" in capsys.readouterr().err


def test_optimizer_step_is_orthogonal():
    params = {"kernel": (2, 16, 40), "norm": (2, 16), "embed": (50, 16)}
    keys = iter(jax.random.split(jax.random.key(0), 3))
    gradient = {name: jax.random.normal(next(keys), shape) for name, shape in params.items()}
    # One direction of the kernels is much stronger than all others.
    kernel = gradient["kernel"]
    gradient["kernel"] = kernel + 5.0 * kernel[:, :, :1] * kernel[:, :1, :]
    rate = 0.01
    settings = Optimization(learning_rate=rate, warmup_steps=1, weight_decay=0.0)
    optimizer = loop._optimizer(settings)
    updates, _ = optimizer.update(gradient, optimizer.init(gradient), gradient)
    for before, after in zip(gradient["kernel"], updates["kernel"], strict=True):
        strengths = np.linalg.svd(np.asarray(before), compute_uv=False)
        assert strengths[0] > 10 * strengths[1]
        moved = np.linalg.svd(np.asarray(after), compute_uv=False)
        assert moved[0] < 5 * moved[-1]
        assert np.sqrt(np.mean(np.square(after))) == pytest.approx(0.2 * rate, rel=0.3)
