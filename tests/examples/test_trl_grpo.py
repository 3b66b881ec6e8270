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

STEPS, ANSWERS = 2, 64


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
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
    longest = max(map(len, plan))
    padded = [[*actions, *[0] * (longest - len(actions))] for actions in plan]
    verdict = oracles.check(grid, [list(step) for step in zip(*padded, strict=True)])
    optimum = oracles.least_sum_of_costs(grid)
    return verdict.failure is None and optimum is not None and verdict.sum_of_costs == optimum[0]


def test_logged_rewards_are_completion_scores(run):
    trainer, _, table = run
    rows = {row["prompt"]: row for row in trainer.train_dataset}
    assert len(table) == STEPS * ANSWERS
    for logged in table:
        row = rows[logged["prompt"]]
        expected = score(logged["completion"], row["grid"], row["sum_of_costs"])
        assert logged["lake_reward"] == np.float32(expected.reward)
        assert logged["failure"] == expected.failure.label
        plan = parse_answer(logged["completion"], 2, max_steps=64).plan
        assert (expected.reward == 1.0) == (plan is not None and _is_optimal(row["grid"], plan))
    assert {0.0, 1.0} <= set(table["lake_reward"])


def test_trainer_logs_answer_statuses(run):
    _, history, table = run
    steps = [entry for entry in history if "lake/valid" in entry]
    assert len(steps) == STEPS
    for number, entry in enumerate(steps):
        rows = table.select(range(ANSWERS * number, ANSWERS * (number + 1)))
        valid = np.mean([failure == "none" for failure in rows["failure"]])
        assert entry["lake/valid"] == pytest.approx(valid)
        assert entry["reward"] == pytest.approx(np.mean(rows["lake_reward"]), rel=1e-5)


def test_trainer_changes_weights(run):
    from safetensors.torch import load_file

    before = load_file(ROOT / "training/base_model/model.safetensors")
    trainer, _, _ = run
    name = "model.layers.0.mlp.up_proj.weight"
    after = trainer.model.state_dict()[name].float().cpu()
    assert torch.isfinite(after).all()
    assert not torch.equal(after, before[name].float())
