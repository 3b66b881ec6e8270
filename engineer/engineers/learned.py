"""An engineer with seven parameters, trained to raise the final valid rate of simulated runs.

Features of each group at the end of a stage (`engineer.bench.vectorised.Features`):

| feature | meaning |
|---|---|
| v | valid rate on the validation set, 0..1 |
| s | 4p(1-p) in training, 0..1, or 4v(1-v) if the group was not trained |
| t | change of the valid rate in the stage |
| x | current share of the data, times the number of groups; 1 on average |
| l | current level of a knob, as a fraction of its range |

    weight   = exp(w_signal s + w_valid v + w_trend t + w_share x)    proportional to the share
    level    = k_start + k_valid v + k_level l                        per knob, clipped to 0..1

`engineer.bench.evolution` trains the parameters and writes `learned.json`.
"""

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from engineer.bench.vectorised import Decision, FeatureEngineer, Features


class Parameters(NamedTuple):
    """The seven parameters; floats or arrays."""

    w_signal: Any
    w_valid: Any
    w_trend: Any
    w_share: Any
    k_start: Any
    k_valid: Any
    k_level: Any


def decide(parameters: Parameters, features: "Features") -> "Decision":
    """Return the design for features, with NumPy or JAX arrays.

    Args:
        parameters: The parameters; floats.
        features: Arrays (..., G), and levels (..., G, K).

    Returns:
        Weights (..., G) > 0 and levels (..., G, K), not clipped to 0..1.
    """
    from engineer.bench.vectorised import Decision

    p, groups = parameters, features.valid.shape[-1]
    logits = (
        p.w_signal * 4.0 * features.learnability
        + p.w_valid * features.valid
        + p.w_trend * features.trend
        + p.w_share * groups * features.shares
    )
    weights = 2.718281828459045 ** (logits - logits.max(axis=-1, keepdims=True))
    levels = p.k_start + p.k_valid * features.valid[..., None] + p.k_level * features.levels
    return Decision(weights, levels)


def learned_parameters() -> Parameters:
    """Return the trained parameters shipped with the package."""
    content = json.loads(files("engineer.engineers").joinpath("learned.json").read_text())
    return Parameters(**content["parameters"])


def learned_engineer() -> "FeatureEngineer":
    """Return the trained engineer. All attempts give the same answer."""
    from engineer.bench.vectorised import FeatureEngineer  # avoids a circular import

    parameters = learned_parameters()
    return FeatureEngineer(lambda features: decide(parameters, features), "learned")
