"""DesignBench: benchmark engineers on simulated learners, in seconds and without a model.

- `learners` draws learners from a prior and defines the equations of their training.
- `play` trains them on an engineer's designs, with the real design phase and review.
- `vectorised` does the same in one JAX program, for engineers that are functions of features.
"""

from engineer.bench.learners import Learners, Prior, draw_learners, take
from engineer.bench.play import MakeEngineer, Played, play
from engineer.bench.vectorised import (
    Decision,
    FeatureEngineer,
    FeaturePolicy,
    Features,
    Grid,
    features_of,
    grid_of,
    play_policy,
)

__all__ = ["Learners", "Prior", "draw_learners", "take"]
__all__ += ["MakeEngineer", "Played", "play"]
__all__ += ["Decision", "FeatureEngineer", "FeaturePolicy", "Features", "Grid", "features_of"]
__all__ += ["grid_of", "play_policy"]
