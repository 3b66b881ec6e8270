"""Rewards, advantages and entropy of rollouts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxlake.language.prompts import target
from tests.paths import TINY
from tests.training.small_lakes import draw_small_lakes, write_untrained_policy
from training.phases.grpo_update import make_rollout_batch
from training.policy.policy import load_run_policy
from training.rollout.instances import InstanceSet
from training.rollout.rollout import Rollout, roll_out, rollout_metrics, rollout_request
from training.run.active_run import ActiveRun
from training.run.directory import RunDirectory
from training.sampling.sampler import Completion, SamplingRequest
from training.schema import load


class ScriptedSampler:
    """A sampler that answers each prompt with given completions."""

    def __init__(self, groups: list[list[Completion]]) -> None:
        self._groups = groups

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        assert [request.n] * len(request.prompts) == [len(group) for group in self._groups]
        return self._groups


@pytest.fixture(scope="module")
def boards() -> InstanceSet:
    return draw_small_lakes(4)


@pytest.fixture(scope="module")
def folder(boards: InstanceSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained_policy(tmp_path_factory.mktemp("policy"), boards)


def open_run(folder: Path, boards: InstanceSet, *overrides: str) -> tuple[ActiveRun, Any]:
    settings = ["grpo.prompts_per_update=4", "prompt.max_tokens=100"]
    config = load(TINY, [*settings, *overrides])
    policy, params = load_run_policy(folder, config)
    directory_and_checkpoints: Any = RunDirectory(folder), None
    return ActiveRun(config, *directory_and_checkpoints, policy, boards), params


def make_rollout(run: ActiveRun, groups: list[list[Completion]]) -> Rollout:
    sampler: Any = ScriptedSampler(groups)
    request = rollout_request(run, run.validation, seed=0)
    return roll_out(run, sampler, run.validation, request, seconds={})


def make_unreadable(
    run: ActiveRun, length: int, logprobs: Any = -3.0, truncated: bool = False
) -> Completion:
    """Return an unreadable answer of `length` tokens."""
    ids = run.policy.tokenizer.encode("no idea", add_special_tokens=False) * length
    token_logprobs = np.broadcast_to(np.float32(logprobs), length)
    return Completion(tuple(ids[:length]), token_logprobs, truncated=truncated)


def test_advantages_include_the_length_penalty(folder: Path, boards: InstanceSet) -> None:
    """An optimal plan is paid 1, what can't be read 0; the last 40 of 100 tokens cost up to 0.5."""
    penalty_settings = ["reward.overlong_buffer=40", "reward.overlong_penalty=0.5"]
    run, params = open_run(folder, boards, *penalty_settings, "grpo.divide_by_std=false")
    completions = [make_unreadable(run, length) for length in (72, 80, 100)]
    groups = []
    for plan in boards.solutions.plan:
        ids = tuple(run.policy.encode_answer(target(plan)))
        assert len(ids) <= 60
        groups.append([Completion(ids, np.full(len(ids), -3, np.float32), False), *completions])
    rollout = make_rollout(run, groups)
    np.testing.assert_allclose(rollout.rewards, [[1.0, -0.15, -0.25, -0.5]] * 4, atol=1e-6)
    np.testing.assert_allclose(rollout.overlong, [[0.0, 0.15, 0.25, 0.5]] * 4, atol=1e-6)
    batch = make_rollout_batch(run, params, rollout)
    for row in range(16):  # the mean of a group is 0.025
        row_advantages = batch.advantages[batch.groups.completions == row]
        assert row_advantages == pytest.approx([0.975, -0.175, -0.275, -0.525][row % 4], abs=1e-6)
    metrics = rollout_metrics(run, rollout)
    assert metrics["reward_mean"] == metrics["by_group"]["3"].reward == 0.025
    assert metrics["overlong_penalty"] == 0.225


def test_entropy_is_the_mean_over_tokens(folder: Path, boards: InstanceSet) -> None:
    run, _ = open_run(folder, boards)
    group = [
        make_unreadable(run, 1, -1.0),
        make_unreadable(run, 2, [-2.0, -3.0]),
        make_unreadable(run, 4, [-4.0, -4.0, -4.0, -6.0], truncated=True),
        make_unreadable(run, 1, -0.5),
    ]
    metrics = rollout_metrics(run, make_rollout(run, [group] * 4))
    # 24.5 nats over 8 tokens; the mean of the completions' means would be 2.125.
    assert metrics["entropy"] == 3.0625
    assert metrics["completion_length"] == 2.0
    assert metrics["truncated_share"] == 0.25
    assert metrics["zero_variance_share"] == 1.0
    assert "overlong_penalty" not in metrics


def test_roll_out_rewards_only_plans_after_thinking(folder: Path, boards: InstanceSet) -> None:
    run, _ = open_run(folder, boards, "prompt.template='{board}<think>'")
    groups = []
    for plan in boards.solutions.plan:
        texts = [f"Maybe\n{target(plan)}", f"Maybe</think>\n{target(plan)}"] * 2
        ids = [tuple(run.policy.encode_answer(text)) for text in texts]
        groups.append(
            [
                Completion(token_ids, np.zeros(len(token_ids), np.float32), False)
                for token_ids in ids
            ]
        )
    np.testing.assert_array_equal(make_rollout(run, groups).rewards, [[0.0, 1.0] * 2] * 4)
