"""The GRPO loss against a plain NumPy reading of its formula, and what its switches do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from training.learner import grpo
from training.learner.batching import Sequences, pad_sequences
from training.schema import Grpo


def _numpy_objective(new, old, sampler, advantages, low=0.2, high=0.28, cap=2.0):
    """Token by token, as in the papers: min(w, cap) * min(r A, clip(r) A)."""
    out = np.zeros_like(new)
    for place in np.ndindex(new.shape):
        ratio, advantage = np.exp(new[place] - old[place]), advantages[place]
        clipped = min(max(ratio, 1 - low), 1 + high)
        weight = min(np.exp(old[place] - sampler[place]), cap)
        out[place] = weight * min(ratio * advantage, clipped * advantage)
    return out


def test_objective_equals_the_formula_token_by_token():
    rng = np.random.default_rng(0)
    new, old, sampler = (rng.normal(-1.5, 0.6, (6, 7)).astype(np.float32) for _ in range(3))
    advantages = rng.normal(size=(6, 7)).astype(np.float32)
    settings = Grpo(clip_low=0.2, clip_high=0.28, importance_cap=2.0)
    objective, metrics = grpo.token_objective(new, old, sampler, advantages, settings)
    expected = _numpy_objective(new, old, sampler, advantages)
    np.testing.assert_allclose(objective, expected, rtol=1e-5)
    unclipped = _numpy_objective(new, old, sampler, advantages, low=np.inf, high=np.inf)
    lowered = np.abs(expected - unclipped) > 1e-6
    assert 0 < lowered.mean() < 1
    np.testing.assert_array_equal(metrics["clip_share"], lowered)
    importance = np.exp(np.float64(old) - sampler)
    assert importance.max() > 2.0  # what is logged is not cut at the cap
    np.testing.assert_allclose(metrics["importance_ratio_mean"], importance, rtol=1e-5)


def test_no_gradient_flows_through_the_importance_weight():
    def objective(old):
        sampler, advantages = jnp.full((1, 1), -2.0), jnp.ones((1, 1))
        return grpo.token_objective(old, old, sampler, advantages, Grpo())[0].sum()

    # new = old, so d/d(old) of ratio is 0 and only the (stopped) weight would contribute
    assert jax.grad(objective)(jnp.full((1, 1), -1.5)).item() == 0.0


@pytest.mark.parametrize("divide_by_std", [True, False])
def test_advantages_are_centred_within_each_group(divide_by_std):
    rewards = np.array([[1, 0, 0, 1], [0.6, 0.6, 0, 1], [1, 1, 1, 1]], np.float32)
    advantages = grpo.group_advantages(rewards, divide_by_std=divide_by_std)
    np.testing.assert_allclose(advantages.mean(axis=1), 0, atol=1e-6)
    np.testing.assert_array_equal(advantages[2], 0)
    spread = advantages[:2].std(axis=1)
    np.testing.assert_allclose(spread, 1 if divide_by_std else rewards[:2].std(axis=1), rtol=1e-5)


def test_padding_marks_completions_and_keeps_every_token():
    sequences: Sequences = pad_sequences([[1, 2], [3]], [[4], [5, 6, 7]], bucket=8, pad_id=0)
    np.testing.assert_array_equal(
        sequences.input_ids, [[1, 2, 4, 0, 0, 0, 0, 0], [3, 5, 6, 7, 0, 0, 0, 0]]
    )
    np.testing.assert_array_equal(sequences.targets.sum(axis=1), [1, 3])
    np.testing.assert_array_equal(sequences.mask.sum(axis=1), [3, 4])
