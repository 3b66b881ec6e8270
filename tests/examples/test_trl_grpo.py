"""The TRL example trains a real model on the lake's rewards."""

import numpy as np
import pytest
import torch
from datasets import load_dataset

from benchmarks import oracles
from jaxlake.language.answers import parse_answer
from jaxlake.language.rewards import score
from tests.paths import ROOT

pytestmark = pytest.mark.slow

STEPS, ANSWERS_PER_STEP = 2, 64


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory: pytest.TempPathFactory):
    """Return the trainer after two updates, its log history and its table of completions."""
    from examples.trl_grpo import main

    folder = tmp_path_factory.mktemp("run")
    arguments = ["--steps", str(STEPS), "--boards", "64", "--size", "3", "--output", str(folder)]
    trainer = main(arguments)
    files = [str(path) for path in sorted((folder / "completions").glob("*.parquet"))]
    cache = str(folder / "cache")
    table = load_dataset("parquet", data_files=files, split="train", cache_dir=cache)
    return trainer, trainer.state.log_history, table


def _is_optimal(grid: list[str], plan: tuple[tuple[int, ...], ...]) -> bool:
    """Return whether a plan is valid and optimal according to the oracles."""
    length = max(map(len, plan))
    padded_plan = [[*actions, *[0] * (length - len(actions))] for actions in plan]
    verdict = oracles.check_plan(grid, [list(step) for step in zip(*padded_plan, strict=True)])
    optimum = oracles.least_sum_of_costs(grid)
    return verdict.failure is None and optimum is not None and verdict.sum_of_costs == optimum[0]


def test_logged_rewards_are_completion_scores(trained_run):
    trainer, _, table = trained_run
    rows_by_prompt = {row["prompt"]: row for row in trainer.train_dataset}
    assert len(table) == STEPS * ANSWERS_PER_STEP
    for entry in table:
        row = rows_by_prompt[entry["prompt"]]
        expected = score(entry["completion"], row["grid"], row["sum_of_costs"])
        assert entry["lake_reward"] == np.float32(expected.reward)
        assert entry["failure"] == expected.failure.label
        plan = parse_answer(entry["completion"], 2, max_steps=64).plan
        assert (expected.reward == 1.0) == (plan is not None and _is_optimal(row["grid"], plan))
    assert {0.0, 1.0} <= set(table["lake_reward"])


def test_trainer_logs_answer_statuses(trained_run):
    _, history, table = trained_run
    steps = [entry for entry in history if "lake/valid" in entry]
    assert len(steps) == STEPS
    for step, entry in enumerate(steps):
        rows = table.select(range(ANSWERS_PER_STEP * step, ANSWERS_PER_STEP * (step + 1)))
        valid_rate = np.mean([failure == "none" for failure in rows["failure"]])
        assert entry["lake/valid"] == pytest.approx(valid_rate)
        assert entry["reward"] == pytest.approx(np.mean(rows["lake_reward"]), rel=1e-5)


def test_trainer_changes_weights(trained_run):
    from safetensors.torch import load_file

    base_weights = load_file(ROOT / "training/base_model/model.safetensors")
    trainer, _, _ = trained_run
    name = "model.layers.0.mlp.up_proj.weight"
    weights = trainer.model.state_dict()[name].float().cpu()
    assert torch.isfinite(weights).all()
    assert not torch.equal(weights, base_weights[name].float())
