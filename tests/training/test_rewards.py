"""The reward follows the verifier: optimal above valid above the rest."""

import jax
import numpy as np
import pytest
from pydantic import ValidationError

from training.config import Prompt, Reward
from training.instances import Cell, draw
from training.judge import judge
from training.learning.rewards import reward

OPTIMAL = "Agent 0: RIGHT\nAgent 1: LEFT"


@pytest.fixture(scope="module")
def board():
    """A board on which going round costs more than the optimum."""
    boards, fills = draw(
        jax.random.key(0), [Cell(4, 0.0, 0.0, 20, 2)], max_size=4, max_candidates=2000
    )
    assert all(fill.complete for fill in fills)
    return boards


def test_rewards_order_optimal_valid_parsed_and_unparsable(board):
    from training.language.prompts import target

    row = next(row for row in range(len(board)) if int(board.solutions.sum_of_costs[row]) >= 3)
    optimal = target(board.solutions.plan[row])
    waits_first = optimal.replace("Agent 0: ", "Agent 0: WAIT ").replace(
        "Agent 1: ", "Agent 1: WAIT "
    )
    never_moves = "Agent 0: WAIT\nAgent 1: WAIT"
    texts = [optimal, waits_first, never_moves, "I would go right, then down."]
    verdict = judge(board.take([row] * 4), texts, Prompt(max_steps=32))
    np.testing.assert_array_equal(verdict.outcomes.valid, [True, True, False, False])
    np.testing.assert_allclose(reward(verdict.outcomes, Reward()), [1.0, 0.6, 0.0, 0.0])


def test_a_reward_that_pays_more_for_worse_is_refused():
    with pytest.raises(ValidationError, match="optimal > valid > parsed"):
        Reward(optimal=0.5, valid=0.6)
    with pytest.raises(ValidationError):
        Reward(unparsable=0.1)  # type: ignore[arg-type]
