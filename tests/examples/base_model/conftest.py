"""A minimal recipe and its boards, drawn once."""

from typing import Any

import pytest

from examples.base_model.boards import HeldOut, draw_held_out, draw_plans
from examples.base_model.recipe import Recipe

BOARDS_PER_CELL = 6
TINY_RECIPE: dict[str, Any] = {
    "name": "tiny",
    "seed": 5,
    "scratch": {
        "vocab_size": 480,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 32,
    },
    "boards": {
        "shares": {3: 0.4, 4: 0.6},
        "hole_ratios": {0.0: 0.5, 0.3: 0.5},
        "count": 300,
        "max_candidates": 20_000,
    },
    "designs": {"sizes": [3, 4, 5], "groups": [1, 3], "count": 200, "share": 0.4},
    "optimization": {
        "batch_size": 8,
        "learning_rate": 5e-3,
        "warmup_steps": 5,
        "max_steps": 40,
        "decay_steps": 10,
        "evaluate_every": 40,
        "checkpoint_every": 10,
    },
    "goal": {"contexts": 4, "boards_per_cell": BOARDS_PER_CELL, "validate_every": 40},
    "sampling": {"engine": "jax", "max_model_len": 512, "max_num_seqs": 64},
}


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    return Recipe.model_validate(TINY_RECIPE)


@pytest.fixture(scope="session")
def held_out(recipe: Recipe) -> HeldOut:
    return draw_held_out(recipe, BOARDS_PER_CELL)


@pytest.fixture(scope="session")
def plans(recipe: Recipe, held_out: HeldOut) -> list[tuple[str, str]]:
    return draw_plans(recipe, held_out)
