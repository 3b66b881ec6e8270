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
from tests.examples.base_model.conftest import TINY_RECIPE
from training.errors import UserError
from training.policy.policy import load_policy
from training.schema import ModelConfig, PromptConfig


def read_lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_train_resumes_identically(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loop, "LOG_EVERY", 10)
    full_path, resumed_path = tmp_path / "whole", tmp_path / "stopped"
    assert loop.train(recipe, full_path) == full_path / "model"
    assert loop.train(recipe, resumed_path, stop_after=20) is None
    assert not (resumed_path / "model").exists()
    assert loop.train(recipe, resumed_path) == resumed_path / "model"
    expected, actual = (
        load_file(folder / "model/model.safetensors") for folder in (full_path, resumed_path)
    )
    assert expected.keys() == actual.keys()
    for name, leaf in expected.items():
        assert leaf.dtype == "bfloat16"
        np.testing.assert_array_equal(leaf, actual[name], err_msg=name)
    for name in ("metrics.jsonl", "evaluations.jsonl", "model/tokenizer.json"):
        assert (full_path / name).read_text() == (resumed_path / name).read_text(), name

    lines = read_lines(full_path / "metrics.jsonl")
    assert [line["step"] for line in lines] == [10, 20, 30, 40]
    assert lines[-1]["plan_loss"] < lines[0]["plan_loss"]
    assert lines[-1]["design_loss"] < lines[0]["design_loss"]
    assert lines[-1]["learning_rate"] == pytest.approx(5e-4)
    evaluations = read_lines(full_path / "evaluations.jsonl")
    assert [line["step"] for line in evaluations] == [40, 40]  # before and after rounding
    assert len(evaluations[-1]["valid"]) == 8
    prompt = PromptConfig(max_tokens=48, max_steps=32)
    policy, _ = load_policy(
        full_path / "model",
        ModelConfig(pretrained=str(full_path / "model")),
        prompt,
        length_bucket=16,
    )
    context = "stage next\nn3 valid8 hole swap + learn4 data5 + hole4 = wait3 =\nedits\n"
    assert policy.decode(policy.encode_prompt(context)) == context
    with pytest.raises(UserError, match="holds a training of another recipe"):
        loop.train(recipe.model_copy(update={"seed": 6}), full_path)


def test_command_rejects_unknown_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    recipe_path = tmp_path / "tiny.yaml"
    recipe_path.write_text(yaml.safe_dump(TINY_RECIPE))
    with pytest.raises(SystemExit):
        main([str(recipe_path), "--set", "optimization.learning_rte=1"])
    assert "optimization.learning_rte" in capsys.readouterr().err


def test_optimizer_step_is_orthogonal():
    params = {"kernel": (2, 16, 40), "norm": (2, 16), "embed": (50, 16)}
    keys = iter(jax.random.split(jax.random.key(0), 3))
    gradient = {name: jax.random.normal(next(keys), shape) for name, shape in params.items()}
    # One direction of the kernels is much stronger than all others.
    kernel = gradient["kernel"]
    gradient["kernel"] = kernel + 5.0 * kernel[:, :, :1] * kernel[:, :1, :]
    learning_rate = 0.01
    settings = Optimization(learning_rate=learning_rate, warmup_steps=1, weight_decay=0.0)
    optimizer = loop._make_optimizer(settings)
    updates, _ = optimizer.update(gradient, optimizer.init(gradient), gradient)
    for matrix, update in zip(gradient["kernel"], updates["kernel"], strict=True):
        singular_values = np.linalg.svd(np.asarray(matrix), compute_uv=False)
        assert singular_values[0] > 10 * singular_values[1]
        update_values = np.linalg.svd(np.asarray(update), compute_uv=False)
        assert update_values[0] < 5 * update_values[-1]
        assert np.sqrt(np.mean(np.square(update))) == pytest.approx(0.2 * learning_rate, rel=0.3)
