"""Records of updates with invented numbers."""

from typing import Any

from training.run.records import UpdateMetrics

RATES = ("reward_mean", "valid_rate", "optimal_rate", "parsed_rate", "zero_variance_share")
METRICS = ("truncated_share", "completion_length", "entropy", "clip_share", "grad_norm", "loss")


def make_update(stage: int, update: int, **changes: Any) -> UpdateMetrics:
    """Make the record of an update whose step is its number."""
    values = dict.fromkeys((*RATES, *METRICS, "importance_ratio_mean", "sampler_gap"), 0.5)
    position = {"stage": stage, "update": update, "step": update, "by_group": {}}
    return UpdateMetrics(**values | position | changes)
