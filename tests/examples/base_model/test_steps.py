"""Answers that list the agents' cells before the plan are read as the plan."""

import numpy as np
import pytest

from examples.base_model.boards import HeldOut, draw_plans, write_steps
from examples.base_model.recipe import Recipe
from jaxlake.board.dynamics import Action
from jaxlake.language.answers import parse_answer


def test_write_steps_ends_with_the_last_arrival():
    right, down, wait = Action.RIGHT, Action.DOWN, Action.WAIT
    plan = [[wait, down], [right, wait], [right, wait], [wait, wait]]
    assert write_steps(np.array([[0, 0], [1, 2]]), np.array(plan)) == "a0 b2\na0 c2\na1 c2\na2 c2"


def test_write_steps_without_moves_writes_one_line():
    assert write_steps(np.array([[5, 0], [0, 5]]), np.zeros((3, 2), int)) == "f0 a5"


@pytest.mark.slow  # the generator compiles for other board sizes
def test_draw_plans_writes_readable_steps(
    recipe: Recipe, held_out: HeldOut, plans: list[tuple[str, str]]
):
    boards = recipe.boards.model_copy(update={"steps": True})
    plans_with_steps = draw_plans(recipe.model_copy(update={"boards": boards}), held_out)
    assert [prompt for prompt, _ in plans_with_steps] == [prompt for prompt, _ in plans]
    for (_, answer), (_, plan) in zip(plans_with_steps, plans, strict=True):
        assert answer.endswith(f"\n{plan}")
        assert parse_answer(answer, 2, max_steps=32) == parse_answer(plan, 2, max_steps=32)
