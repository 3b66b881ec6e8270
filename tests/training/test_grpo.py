"""The GRPO loss against a plain NumPy reading of its formula, and what its switches do."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from training.config import Grpo
from training.learning import grpo
from training.learning.learner import adamw, split, start, step
from training.learning.packing import Sequences, pack, place
from training.model.qwen3 import Qwen3, Qwen3Config

CONFIG = Qwen3Config(32, 16, 32, 2, 2, 1, head_dim=8)


def _numpy_objective(new, old, sampler, advantages, low, high, cap):
    """Token by token, as in the papers: min(w, cap) * min(r A, clip(r) A)."""
    out = np.zeros_like(new)
    for row, column in np.ndindex(new.shape):
        ratio = np.exp(new[row, column] - old[row, column])
        advantage = advantages[row]
        clipped = min(max(ratio, 1 - low), 1 + high)
        weight = min(np.exp(old[row, column] - sampler[row, column]), cap)
        out[row, column] = weight * min(ratio * advantage, clipped * advantage)
    return out


def test_objective_equals_the_formula_token_by_token():
    rng = np.random.default_rng(0)
    new, old, sampler = (rng.normal(-1.5, 0.6, (6, 7)).astype(np.float32) for _ in range(3))
    advantages = rng.normal(size=6).astype(np.float32)
    settings = Grpo(clip_low=0.2, clip_high=0.28, importance_cap=2.0)
    objective, metrics = grpo.token_objective(new, old, sampler, advantages, settings)
    expected = _numpy_objective(new, old, sampler, advantages, 0.2, 0.28, 2.0)
    np.testing.assert_allclose(objective, expected, rtol=1e-5)
    assert 0 < float(metrics["clip_share"].mean()) < 1


def test_no_gradient_flows_through_the_importance_weight():
    settings = Grpo()
    sampler = jnp.full((1, 1), -2.0)
    advantages = jnp.ones(1)

    def objective(old):
        return grpo.token_objective(old, old, sampler, advantages, settings)[0].sum()

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


def _batch(rows: int, length: int) -> grpo.GrpoBatch:
    rng = np.random.default_rng(1)
    lengths = rng.integers(4, length, rows)
    prompts = [rng.integers(0, 32, 3).tolist() for _ in range(rows)]
    completions = [rng.integers(0, 32, n - 3).tolist() for n in lengths]
    sequences = pack(prompts, completions, bucket=length, pad_id=0)
    sampled = [rng.normal(-3, 0.1, len(one)).astype(np.float32) for one in completions]
    return grpo.GrpoBatch(
        sequences=sequences,
        sampler_logprobs=place(sampled, sequences),
        old_logprobs=np.full(sequences.input_ids.shape, np.nan, np.float32),
        advantages=rng.normal(size=rows).astype(np.float32),
    )


def _updated(micro_batches: int):
    model = Qwen3(CONFIG, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model)
    optimizer = adamw(1e-2, warmup_steps=0, weight_decay=0.0, max_grad_norm=1.0)
    batch = _batch(8, 16)
    loss = functools.partial(grpo.summed_loss, graphdef=graphdef, settings=Grpo(), temperature=1.0)
    tokens = jnp.float32(batch.sequences.targets.sum())
    return jax.jit(functools.partial(step, loss=loss, optimizer=optimizer))(
        start(params, optimizer), split(batch, micro_batches), micro_batches, tokens
    )


def test_micro_batches_change_nothing_but_memory():
    whole, whole_metrics = _updated(1)
    parts, parts_metrics = _updated(4)
    for name in whole_metrics:
        np.testing.assert_allclose(
            whole_metrics[name], parts_metrics[name], rtol=2e-4, err_msg=name
        )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=2e-3), whole.params, parts.params
    )


def test_an_update_raises_the_logprob_of_what_was_better_than_its_group():
    model = Qwen3(CONFIG, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model)
    optimizer = adamw(3e-3, warmup_steps=0, weight_decay=0.0, max_grad_norm=1.0)
    batch = _batch(8, 16)

    def mean_logprob(params, row):
        scores = grpo.logprobs(params, batch.sequences, graphdef=graphdef, temperature=1.0)
        return float(scores[row][batch.sequences.targets[row]].mean())

    loss = functools.partial(grpo.summed_loss, graphdef=graphdef, settings=Grpo(), temperature=1.0)
    tokens = jnp.float32(batch.sequences.targets.sum())
    state, _ = step(
        start(params, optimizer), split(batch, 2), 2, tokens, loss=loss, optimizer=optimizer
    )
    best, worst = int(batch.advantages.argmax()), int(batch.advantages.argmin())
    assert mean_logprob(state.params, best) > mean_logprob(params, best)
    assert mean_logprob(state.params, worst) < mean_logprob(params, worst)


def test_packing_marks_completions_and_keeps_every_token():
    sequences: Sequences = pack([[1, 2], [3]], [[4], [5, 6, 7]], bucket=8, pad_id=0)
    np.testing.assert_array_equal(
        sequences.input_ids, [[1, 2, 4, 0, 0, 0, 0, 0], [3, 5, 6, 7, 0, 0, 0, 0]]
    )
    np.testing.assert_array_equal(sequences.targets.sum(axis=1), [1, 3])
    np.testing.assert_array_equal(sequences.mask.sum(axis=1), [3, 4])
    placed = place([np.float32([9]), np.float32([5, 6, 7])], sequences)
    np.testing.assert_array_equal(placed[1, 1:4], [5, 6, 7])
    with pytest.raises(ValueError, match="length: got 3"):
        pack([[1, 2]], [[3, 4]], bucket=8, pad_id=0, length=3)
