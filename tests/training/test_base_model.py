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
from examples.base_model import train as pretraining
from examples.base_model.designs import draw_swaps
from examples.base_model.recipe import Recipe
from examples.base_model.scores import EvidenceTest
from jaxlake.statistics.intervals import wilson_interval
from tests.paths import ROOT
from training.policy.huggingface import PACKAGED_MODELS, resolve_model
from training.policy.policy import load_policy
from training.run.digests import DIGESTS_FILE
from training.schema import ModelConfig, PromptConfig, SamplingConfig, load_config, read_yaml

BASE_MODEL = PACKAGED_MODELS["jaxlake-base"]
RECIPE = load_config(Recipe, ROOT / "examples/base_model/recipe.yaml", ())


def test_model_files_match_their_hashes():
    digests = dict(
        reversed(line.split("  ")) for line in (BASE_MODEL / DIGESTS_FILE).read_text().splitlines()
    )
    assert digests.keys() == {file.name for file in BASE_MODEL.iterdir()} - {DIGESTS_FILE}
    for name, digest in digests.items():
        assert hashlib.sha256((BASE_MODEL / name).read_bytes()).hexdigest() == digest, name


def test_base_model_is_packaged_by_name():
    assert resolve_model("jaxlake-base") == BASE_MODEL
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = pyproject["tool"]["setuptools"]["package-data"]["training"]
    packaged_files = {file for pattern in patterns for file in (ROOT / "training").glob(pattern)}
    assert packaged_files >= set(BASE_MODEL.iterdir())
    assert sum(file.stat().st_size for file in BASE_MODEL.iterdir()) < 8 * 2**20


def test_base_model_records_its_configuration():
    fields = read_yaml(BASE_MODEL / "pretraining.yaml")
    sections = ("scratch", "boards", "designs", "optimization", "goal", "max_tokens", "seed")
    recipe = Recipe.model_validate({"name": "base"} | {name: fields[name] for name in sections})
    for section in sections:
        assert getattr(recipe, section) == getattr(RECIPE, section), section


@pytest.mark.parametrize("seed", [71, 72])
def test_base_model_reads_every_fact_of_new_contexts(seed):
    policy, params = load_policy(
        BASE_MODEL, ModelConfig(), PromptConfig(style="compact"), length_bucket=16
    )
    pairs = draw_swaps(np.random.default_rng(seed), RECIPE.designs, 48)
    edit_accuracy, flip_rates = EvidenceTest(policy, pairs).compute_scores(params)
    assert flip_rates.keys() == set(FACTS)
    assert min(flip_rates.values()) >= 0.9, flip_rates
    assert edit_accuracy >= 0.95


@pytest.mark.slow
def test_base_model_first_steps_are_reproducible(tmp_path: Path):
    """The random weights are bit-identical, and the losses equal up to rounding."""
    run_dir = tmp_path / "base"
    recipe = RECIPE.model_copy(update={"sampling": SamplingConfig(engine="jax")})
    assert pretraining.train(recipe, run_dir, stop_after=pretraining.LOG_EVERY) is None
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (run_dir / "initial" / name).read_bytes() == (BASE_MODEL / name).read_bytes()
    record, expected = (
        json.loads((folder / "metrics.jsonl").read_text().split("\n")[0])
        for folder in (run_dir, BASE_MODEL)
    )
    assert record["step"] == expected["step"] == pretraining.LOG_EVERY
    assert record["plan_loss"] == pytest.approx(expected["plan_loss"], rel=2e-3)
    assert record["design_loss"] == pytest.approx(expected["design_loss"], rel=2e-3)


@pytest.mark.vllm
@pytest.mark.slow
def test_base_model_solves_boards_of_every_size(tmp_path: Path):
    """On sizes 3 to 6, neither nothing nor everything is solved.

    A separate process is used because vLLM writes to its process's output streams.
    """
    command = [sys.executable, "-m", "jaxlake", "evaluate", str(ROOT / "configs/miniature.yaml")]
    rates_file = tmp_path / "rates.json"
    command += ["--model", "jaxlake-base", "--output", str(rates_file)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    groups = json.loads(rates_file.read_text())["groups"]
    assert groups.keys() == {"3", "4", "5", "6"}
    for rates in groups.values():
        lower_bound, upper_bound = wilson_interval(rates["valid"], rates["count"])
        assert upper_bound > 0.05, rates
        assert lower_bound < 0.85, rates
