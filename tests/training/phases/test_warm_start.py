"""Demonstrations have the configured form; NaN weights are not saved."""

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.paths import TINY
from training.environments.catalogue import get_environment
from training.errors import UserError
from training.phases.warm_start import texts_for_tokenizer, warm_start
from training.policy.policy import load_run_policy, write_random_policy
from training.run.active_run import ActiveRun
from training.run.checkpoints import Checkpoints
from training.run.directory import RunDirectory
from training.schema import load

# Fewer steps than are between two lines of metrics, which hold no NaN either.
NAN_SETTINGS = ["warm_start.steps=4", "warm_start.learning_rate=1e30", "warm_start.warmup_steps=0"]
SMALL_SETTINGS = ["warm_start.instances=16", "warm_start.engineer_batch_size=0"]


def test_warm_start_does_not_save_nonfinite_steps(tmp_path: Path) -> None:
    config = load(TINY, [*NAN_SETTINGS, *SMALL_SETTINGS])
    texts = texts_for_tokenizer(config)
    write_random_policy(tmp_path / "initial", config.model, texts, max_len=512, seed=0)
    policy, params = load_run_policy(tmp_path / "initial", config)
    with closing(Checkpoints(tmp_path / "checkpoints")) as checkpoints:
        run = ActiveRun(config, RunDirectory(tmp_path), checkpoints, policy, None)  # type: ignore[arg-type]
        with pytest.raises(
            UserError, match=r"^metrics of step 4 of the warm start must be finite, got .*nan"
        ):
            warm_start(run, params)
        assert checkpoints.progress() is None


def test_demonstrations_follow_the_style_of_the_prompt() -> None:
    plan = np.array([[4, 0], [0, 3]], np.int8)
    boards: Any = SimpleNamespace(solutions=SimpleNamespace(plan=[plan]))
    text = "Agent 0: RIGHT\nAgent 1: WAIT LEFT"
    demonstrations = {
        style: get_environment(load(TINY, [f"prompt.style={style}"])).demonstrations(boards)
        for style in ("full", "reasoned")
    }
    assert demonstrations == {"full": [text], "reasoned": [f"<answer>\n{text}\n</answer>"]}
