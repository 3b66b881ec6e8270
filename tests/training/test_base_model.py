"""The shipped base model: complete, reproducible, and able to read contexts."""

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from engineer.synthetic import FACTS
from examples.base_model import train as loop
from examples.base_model.designs import draw_swaps
from examples.base_model.recipe import Recipe
from examples.base_model.scores import ReadingTest
from jaxlake.statistics.intervals import wilson_interval
from tests.paths import ROOT
from training.policy.huggingface import PACKAGED_MODELS, resolve_model
from training.policy.policy import load_policy
from training.run.digests import DIGESTS_FILE
from training.schema import ModelConfig, PromptConfig, SamplingConfig, load_config, read_yaml

FOLDER = PACKAGED_MODELS["jaxlake-base"]
RECIPE = load_config(Recipe, ROOT / "examples/base_model/recipe.yaml", ())


def test_model_files_match_their_hashes():
    lines = dict(
        reversed(line.split("  ")) for line in (FOLDER / DIGESTS_FILE).read_text().splitlines()
    )
    assert lines.keys() == {file.name for file in FOLDER.iterdir()} - {DIGESTS_FILE}
    for name, digest in lines.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name


def test_base_model_is_packaged_by_name():
    assert resolve_model("jaxlake-base") == FOLDER
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())
    data = patterns["tool"]["setuptools"]["package-data"]["training"]
    packaged = {file for pattern in data for file in (ROOT / "training").glob(pattern)}
    assert packaged >= set(FOLDER.iterdir())
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 8 * 2**20


def test_base_model_records_its_configuration():
    made_by = read_yaml(FOLDER / "pretraining.yaml")
    sections = ("scratch", "boards", "designs", "optimization", "goal", "max_tokens", "seed")
    recipe = Recipe.model_validate({"name": "base"} | {name: made_by[name] for name in sections})
    for section in sections:
        assert getattr(recipe, section) == getattr(RECIPE, section), section


@pytest.mark.parametrize("seed", [71, 72])
def test_base_model_reads_every_fact_of_new_contexts(seed):
    policy, params = load_policy(
        FOLDER, ModelConfig(), PromptConfig(style="compact"), length_bucket=16
    )
    pairs = draw_swaps(np.random.default_rng(seed), RECIPE.designs, 48)
    edits_right, flips = ReadingTest(policy, pairs).scores(params)
    assert flips.keys() == set(FACTS)
    assert min(flips.values()) >= 0.9, flips
    assert edits_right >= 0.95


@pytest.mark.slow
def test_base_model_first_steps_are_reproducible(tmp_path: Path):
    """The random weights are bit-identical, and the losses equal up to rounding."""
    rebuilt = tmp_path / "base"
    recipe = RECIPE.model_copy(update={"sampling": SamplingConfig(engine="jax")})
    assert loop.train(recipe, rebuilt, stop_after=loop.LOG_EVERY) is None
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (rebuilt / "initial" / name).read_bytes() == (FOLDER / name).read_bytes()
    line, recorded = (
        json.loads((folder / "metrics.jsonl").read_text().split("\n")[0])
        for folder in (rebuilt, FOLDER)
    )
    assert line["step"] == recorded["step"] == loop.LOG_EVERY
    assert line["plan_loss"] == pytest.approx(recorded["plan_loss"], rel=2e-3)
    assert line["design_loss"] == pytest.approx(recorded["design_loss"], rel=2e-3)


@pytest.mark.vllm
@pytest.mark.slow
def test_base_model_solves_boards_of_every_size(tmp_path: Path):
    """On sizes 3 to 6, neither nothing nor everything is solved.

    A separate process is used because vLLM writes to its process's output streams.
    """
    command = [sys.executable, "-m", "jaxlake", "evaluate", str(ROOT / "configs/miniature.yaml")]
    file = tmp_path / "rates.json"
    command += ["--model", "jaxlake-base", "--output", str(file)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    groups = json.loads(file.read_text())["groups"]
    assert groups.keys() == {"3", "4", "5", "6"}
    for rates in groups.values():
        low, high = wilson_interval(rates["valid"], rates["count"])
        assert high > 0.05, rates
        assert low < 0.85, rates
