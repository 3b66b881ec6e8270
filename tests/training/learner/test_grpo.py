"""The GRPO loss against a plain NumPy reading of its formula, and what its switches do."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from training.learner import grpo
from training.learner.batching import Sequences, pad_sequences, split_rows
from training.learner.optimizer import adamw, gradient_step, initial_state
from training.learner.packing import pack_groups, place_on_targets
from training.policy.architectures import DecoderConfig
from training.policy.decoder import Decoder
from training.schema import Grpo

CONFIG = DecoderConfig(32, 16, 32, 2, 2, 1, head_dim=8)


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


def _batch() -> grpo.GrpoBatch:
    """Eight prompts with one completion each, in four bundles."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 13, 8)
    completions = [rng.integers(0, 32, n).tolist() for n in lengths]
    sampled = [rng.normal(-3, 0.1, n).astype(np.float32) for n in lengths]
    groups = pack_groups(
        [rng.integers(0, 32, 3).tolist() for _ in lengths],
        completions,
        np.ones((8, 1), bool),
        bundles=4,
        minibatches=1,
        micro_batch_bundles=1,
        width=12,
        bucket=2,
        pad_id=0,
    )
    advantages = np.append(rng.normal(size=8), 0).astype(np.float32)
    return grpo.GrpoBatch(
        groups=groups,
        sampler_logprobs=place_on_targets(sampled, groups),
        old_logprobs=np.full(groups.completions.shape, np.nan, np.float32),
        advantages=advantages[groups.completions],
    )


def _updated(micro_batches: int, learning_rate: float):
    """Weights before and after one optimizer step, and its metrics."""
    graphdef, params = nnx.split(Decoder(CONFIG, rngs=nnx.Rngs(0)))
    optimizer = adamw(learning_rate, weight_decay=0.0, max_grad_norm=1.0)
    batch = _batch()
    loss = functools.partial(grpo.summed_loss, graphdef=graphdef, settings=Grpo(), temperature=1.0)
    tokens = jnp.float32(batch.groups.targets.sum())
    state, metrics = jax.jit(functools.partial(gradient_step, loss=loss, optimizer=optimizer))(
        initial_state(params, optimizer), split_rows(batch, micro_batches), micro_batches, tokens
    )
    return graphdef, params, state.params, metrics


@pytest.mark.slow
def test_micro_batches_change_nothing_but_memory():
    _, _, whole, whole_metrics = _updated(1, 1e-2)
    _, _, parts, parts_metrics = _updated(4, 1e-2)
    close = np.testing.assert_allclose
    jax.tree.map(functools.partial(close, rtol=2e-4), whole_metrics, parts_metrics)
    jax.tree.map(functools.partial(close, atol=2e-3), whole, parts)


@pytest.mark.slow
def test_an_update_raises_the_logprob_of_what_was_better_than_its_group():
    graphdef, before, after, _ = _updated(4, 3e-3)
    batch = _batch()

    def mean_logprob(params, advantage):
        scores = grpo.group_logprobs(params, batch.groups, graphdef=graphdef, temperature=1.0)
        return float(scores[batch.groups.targets & (batch.advantages == advantage)].mean())

    best, worst = batch.advantages.max(), batch.advantages.min()
    assert mean_logprob(after, best) > mean_logprob(before, best)
    assert mean_logprob(after, worst) < mean_logprob(before, worst)


def test_padding_marks_completions_and_keeps_every_token():
    sequences: Sequences = pad_sequences([[1, 2], [3]], [[4], [5, 6, 7]], bucket=8, pad_id=0)
    np.testing.assert_array_equal(
        sequences.input_ids, [[1, 2, 4, 0, 0, 0, 0, 0], [3, 5, 6, 7, 0, 0, 0, 0]]
    )
    np.testing.assert_array_equal(sequences.targets.sum(axis=1), [1, 3])
    np.testing.assert_array_equal(sequences.mask.sum(axis=1), [3, 4])
