"""A user's reward function applies to rollouts and validation records."""

import numpy as np
import pytest

from jaxlake.language.prompts import target
from tests.paths import TINY
from tests.training.small_lakes import draw_small_lakes
from training.environments.catalogue import get_environment
from training.environments.protocol import JudgedTexts
from training.errors import UserError
from training.rollout.instances import InstanceSet
from training.schema import load

HOOKS = "tests.training.hooks"


@pytest.fixture(scope="module")
def boards() -> InstanceSet:
    lakes = draw_small_lakes(20)
    row = int(np.flatnonzero(lakes.solutions.sum_of_costs >= 3)[0])
    return lakes.take([row] * 4)


@pytest.fixture(scope="module")
def texts(boards: InstanceSet) -> list[str]:
    plan = target(boards.solutions.plan[0])
    late_plan = plan.replace("Agent 0: ", "Agent 0: WAIT ").replace("Agent 1: ", "Agent 1: WAIT ")
    return [f"It works because.\n{plan}", late_plan, "Agent 0: WAIT WAIT\nAgent 1: WAIT", "?"]


def judge_texts(boards: InstanceSet, texts: list[str], *settings: str) -> JudgedTexts:
    return get_environment(load(TINY, settings)).judge(boards, texts)


def test_reward_function_receives_configured_rewards(boards: InstanceSet, texts: list[str]):
    settings = ["reward.optimal=0.9", "reward.valid=0.3", "reward.parsed=0.1"]
    expected = judge_texts(boards, texts, *settings).scores
    scores = judge_texts(boards, texts, *settings, f"reward.function={HOOKS}:same_reward").scores
    assert expected.rewards.tolist() == np.float32([0.9, 0.3, 0.1, 0]).tolist()
    assert scores.rewards.tobytes() == expected.rewards.tobytes()
    assert scores.rewards.dtype == expected.rewards.dtype


def test_reward_function_receives_text_board_and_score(boards: InstanceSet, texts: list[str]):
    setting = f"reward.function={HOOKS}:bonus"
    judged_texts = judge_texts(boards, texts, setting)
    expected = judge_texts(boards, texts)
    np.testing.assert_allclose(judged_texts.scores.rewards, [4.25, 3.6, 3 + 2 / 64, 3])
    np.testing.assert_array_equal(judged_texts.scores.valid, expected.scores.valid)
    episodes = get_environment(load(TINY, [setting])).episodes(boards, texts, judged_texts)
    assert [episode.reward for episode in episodes] == [4.25, 3.6, 3.03125, 3.0]


@pytest.mark.parametrize("name", ["no_reward", "overflowing_reward"])
def test_invalid_rewards_are_rejected(name: str, boards: InstanceSet, texts: list[str]):
    problem = f"^reward.function: {HOOKS}:{name} returned (None|1e.39) for the answer .*finite"
    with pytest.raises(UserError, match=problem):
        judge_texts(boards, texts, f"reward.function={HOOKS}:{name}")
