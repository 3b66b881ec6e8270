"""The reward of an answer. The verifier alone decides; nothing is paid for style or length."""

from __future__ import annotations

import jax
import jax.numpy as jnp

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
