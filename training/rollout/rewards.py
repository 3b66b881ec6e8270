"""The penalty that long answers pay."""

from __future__ import annotations

import numpy as np

from training.schema import Reward


def overlong_penalty(lengths: np.ndarray, limit: int, settings: Reward) -> np.ndarray:
    """Return what is taken from the rewards of answers of so many tokens, float32 of this shape.

    DAPO's soft overlong punishment (Yu et al. 2025, eq. 13): it rises linearly from 0, where an
    answer enters the last `overlong_buffer` tokens before the limit, to `overlong_penalty` at it.
    """
    if not settings.overlong_buffer:
        return np.zeros(lengths.shape, np.float32)
    inside = np.clip(lengths - (limit - settings.overlong_buffer), 0, settings.overlong_buffer)
    return (settings.overlong_penalty * inside / settings.overlong_buffer).astype(np.float32)
