"""The reward of an answer: what the verifier says of it, less a penalty for length if asked for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake import Outcome
from training.schema import Reward


def reward(outcome: Outcome, settings: Reward) -> jax.Array:
    """Reward verified answers: float32, of the batch shape of `outcome`.

    | answer                                        | reward       |
    |-----------------------------------------------|--------------|
    | valid, of the optimal sum of costs            | `optimal`    |
    | valid, but suboptimal                         | `valid`      |
    | well-formed, but breaks a rule or stops short | `parsed`     |
    | can't be read as a plan                       | `unparsable` |
    """
    return jnp.select(
        [outcome.optimal_sum_of_costs, outcome.valid, outcome.parsed],
        [jnp.float32(settings.optimal), jnp.float32(settings.valid), jnp.float32(settings.parsed)],
        jnp.float32(settings.unparsable),
    )


def overlong_penalty(lengths: np.ndarray, limit: int, settings: Reward) -> np.ndarray:
    """Return what is taken from the rewards of answers of so many tokens, float32 of this shape.

    DAPO's soft overlong punishment (Yu et al. 2025, eq. 13): it rises linearly from 0, where an
    answer enters the last `overlong_buffer` tokens before the limit, to `overlong_penalty` at it.
    """
    if not settings.overlong_buffer:
        return np.zeros(lengths.shape, np.float32)
    inside = np.clip(lengths - (limit - settings.overlong_buffer), 0, settings.overlong_buffer)
    return (settings.overlong_penalty * inside / settings.overlong_buffer).astype(np.float32)
