"""Rewards by the verifier's outcome: optimal above valid above the rest."""

import numpy as np

from jaxlake.language.judging import Verdict, judge_texts
from jaxlake.language.prompts import target
from jaxlake.language.rewards import DEFAULT_MAX_STEPS, RewardValues, reward, score
from tests.training.small_lakes import draw_small_lakes
from training.rollout.instances import InstanceSet
from training.rollout.rollout import overlong_penalty
from training.schema import PromptConfig, RewardConfig


def judged(boards: InstanceSet, texts: list[str], max_steps: int) -> Verdict:
    return judge_texts(texts, boards.instances, boards.solutions, max_steps=max_steps)


def test_rewards_order_optimal_valid_parsed_and_unparsable():
    boards = draw_small_lakes(20)
    row = int(np.flatnonzero(boards.solutions.sum_of_costs >= 3)[0])
    optimal = target(boards.solutions.plan[row])
    late = optimal.replace("Agent 0: ", "Agent 0: WAIT ").replace("Agent 1: ", "Agent 1: WAIT ")
    unmoved = "Agent 0: WAIT\nAgent 1: WAIT"
    texts = [optimal, late, unmoved, "I would go right, then down."]
    verdict = judged(boards.take([row] * 4), texts, 32)
    np.testing.assert_array_equal(verdict.outcomes.valid, [True, True, False, False])
    paid = reward(verdict.outcomes, RewardValues())
    np.testing.assert_allclose(paid, [1.0, 0.6, 0.0, 0.0])
    scores = [score(text, next(iter(boards.take([row]))), max_steps=32) for text in texts]
    np.testing.assert_array_equal(paid, np.float32([result.reward for result in scores]))


def test_plans_are_limited_by_max_steps():
    boards = draw_small_lakes(20)
    row = int(np.flatnonzero(boards.solutions.makespan >= 2)[0])
    waits = " WAIT" * 90
    texts = [f"{line}{waits}" for line in target(boards.solutions.plan[row]).split("\n")]
    longest = max(len(text.split(": ")[1].split()) for text in texts)
    for limit, parsed in ((longest - 1, False), (longest, True)):
        verdict = judged(boards.take([row]), ["\n".join(texts)], limit)
        assert verdict.answers[0].parsed is parsed
        assert verdict.outcomes.valid.tolist() == verdict.outcomes.parsed.tolist() == [parsed]
        assert verdict.outcomes.optimal_makespan.tolist() == [parsed]


def test_rewards_default_to_the_loop_values():
    values, section = RewardValues(), RewardConfig()
    for name in ("optimal", "valid", "parsed"):
        assert getattr(values, name) == getattr(section, name)
    assert PromptConfig().max_steps == DEFAULT_MAX_STEPS


def test_length_penalty_grows_towards_the_limit():
    lengths = np.array([[1, 60, 70, 75], [80, 90, 99, 100]])
    settings = RewardConfig(overlong_buffer=30, overlong_penalty=0.5)
    lost = overlong_penalty(lengths, 100, settings)
    expected = 0.5 * np.array([[0, 0, 0, 5], [10, 20, 29, 30]]) / 30
    np.testing.assert_allclose(lost, expected, rtol=1e-6)
    assert not overlong_penalty(lengths, 100, RewardConfig()).any()
