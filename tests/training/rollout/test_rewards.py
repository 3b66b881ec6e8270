"""Rewards by the verifier's outcome: optimal above valid above the rest."""

import numpy as np

from jaxlake.language.judging import Verdict, judge_texts
from jaxlake.language.prompts import target
from jaxlake.language.rewards import DEFAULT_MAX_STEPS, RewardValues, reward, score
from tests.training.small_lakes import draw_small_lakes
from training.rollout.instances import InstanceSet
from training.rollout.rollout import overlong_penalty
from training.schema import PromptConfig, RewardConfig


def judge_boards(boards: InstanceSet, texts: list[str], max_steps: int) -> Verdict:
    return judge_texts(texts, boards.instances, boards.solutions, max_steps=max_steps)


def test_rewards_order_optimal_valid_parsed_and_unparsable():
    boards = draw_small_lakes(20)
    row = int(np.flatnonzero(boards.solutions.sum_of_costs >= 3)[0])
    plan = target(boards.solutions.plan[row])
    late_plan = plan.replace("Agent 0: ", "Agent 0: WAIT ").replace("Agent 1: ", "Agent 1: WAIT ")
    waiting_plan = "Agent 0: WAIT\nAgent 1: WAIT"
    texts = [plan, late_plan, waiting_plan, "I would go right, then down."]
    verdict = judge_boards(boards.take([row] * 4), texts, 32)
    np.testing.assert_array_equal(verdict.outcomes.valid, [True, True, False, False])
    rewards = reward(verdict.outcomes, RewardValues())
    np.testing.assert_allclose(rewards, [1.0, 0.6, 0.0, 0.0])
    scores = [score(text, next(iter(boards.take([row]))), max_steps=32) for text in texts]
    np.testing.assert_array_equal(rewards, np.float32([result.reward for result in scores]))


def test_plans_are_limited_by_max_steps():
    boards = draw_small_lakes(20)
    row = int(np.flatnonzero(boards.solutions.makespan >= 2)[0])
    waits = " WAIT" * 90
    lines = [f"{plan_line}{waits}" for plan_line in target(boards.solutions.plan[row]).split("\n")]
    num_steps = max(len(line.split(": ")[1].split()) for line in lines)
    for max_steps, is_parsed in ((num_steps - 1, False), (num_steps, True)):
        verdict = judge_boards(boards.take([row]), ["\n".join(lines)], max_steps)
        assert verdict.answers[0].parsed is is_parsed
        assert verdict.outcomes.valid.tolist() == verdict.outcomes.parsed.tolist() == [is_parsed]
        assert verdict.outcomes.optimal_makespan.tolist() == [is_parsed]


def test_rewards_default_to_the_loop_values():
    values, section = RewardValues(), RewardConfig()
    for name in ("optimal", "valid", "parsed"):
        assert getattr(values, name) == getattr(section, name)
    assert PromptConfig().max_steps == DEFAULT_MAX_STEPS


def test_length_penalty_grows_towards_the_limit():
    lengths = np.array([[1, 60, 70, 75], [80, 90, 99, 100]])
    settings = RewardConfig(overlong_buffer=30, overlong_penalty=0.5)
    penalties = overlong_penalty(lengths, 100, settings)
    expected = 0.5 * np.array([[0, 0, 0, 5], [10, 20, 29, 30]]) / 30
    np.testing.assert_allclose(penalties, expected, rtol=1e-6)
    assert not overlong_penalty(lengths, 100, RewardConfig()).any()
