"""The GRPO loss against plain NumPy, and the effect of its options."""

import numpy as np
import pytest

from training.learner import grpo


@pytest.mark.parametrize("divide_by_std", [True, False])
def test_advantages_are_centred_within_groups(divide_by_std):
    rewards = np.array([[1, 0, 0, 1], [0.6, 0.6, 0, 1], [1, 1, 1, 1]], np.float32)
    advantages = grpo.group_advantages(rewards, divide_by_std=divide_by_std)
    np.testing.assert_allclose(advantages.mean(axis=1), 0, atol=1e-6)
    np.testing.assert_array_equal(advantages[2], 0)
    stds = advantages[:2].std(axis=1)
    np.testing.assert_allclose(stds, 1 if divide_by_std else rewards[:2].std(axis=1), rtol=1e-5)
