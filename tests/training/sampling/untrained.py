"""An untrained policy for engines to load, and a copy with slightly changed weights."""

from pathlib import Path
from typing import Any

import jax

from tests.paths import TINY
from training.policy.policy import Policy, load_run_policy, write_random_policy
from training.schema import load

TEXTS = ["Agent 0: UP DOWN LEFT RIGHT WAIT", '{"3":{"data_ratio":0.5,"hole_ratio":0.25}}'] * 4


def open_untrained_policy(folder: Path, *overrides: str) -> tuple[Policy, Any]:
    """Make the policy of `TINY` in a folder below this one, and load it."""
    config = load(TINY, overrides)
    write_random_policy(folder / "initial", config.model, TEXTS, max_len=512, seed=0)
    return load_run_policy(folder / "initial", config)


def add_noise(params: Any, scale: float) -> Any:
    """Return the weights with the same normal noise added every time."""
    keys = iter(jax.random.split(jax.random.key(9), 64))
    return jax.tree.map(
        lambda leaf: leaf + scale * jax.random.normal(next(keys), leaf.shape), params
    )
