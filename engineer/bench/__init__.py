"""DesignBench: benchmark engineers on simulated learners, in seconds and without a model.

- `learners` draws learners from a prior and defines the equations of their training.
- `simulation` trains the learners on an engineer's designs, with the real design phase and review.
- `vectorised` does the same in one JAX program, for engineers that are functions of features.
"""

from engineer.bench.learners import Learners, Prior, draw_learners, select_learners
from engineer.bench.simulation import EngineerFactory, LearnerResults, train_learners
from engineer.bench.vectorised import (
    Decision,
    FeatureEngineer,
    FeaturePolicy,
    Features,
    Grid,
    extract_features,
    tabulate_grid,
    train_with_policy,
)

__all__ = ["Learners", "Prior", "draw_learners", "select_learners"]
__all__ += ["EngineerFactory", "LearnerResults", "train_learners"]
__all__ += ["Decision", "FeatureEngineer", "FeaturePolicy", "Features", "Grid", "extract_features"]
__all__ += ["tabulate_grid", "train_with_policy"]
