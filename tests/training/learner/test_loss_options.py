"""Every loss option against float64, for any packing, micro-batches and devices."""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.training.learner.slow_grpo import compute_loss_and_gradients
from tests.training.learner.test_packing import (
    CONFIG,
    NUM_COMPLETIONS,
    NUM_PROMPTS,
    ROW_WIDTH,
    Rollout,
    draw_sources,
    make_random_model,
    make_rollout,
)
from training.learner import grpo
from training.learner.batching import split_rows
from training.learner.grpo_step import make_grpo_optimizer, make_grpo_step
from training.learner.optimizer import initial_state
from training.learner.packing import scatter_to_targets
from training.policy.architectures import DecoderConfig
from training.policy.decoder import UNROLLED_LAYERS
from training.schema import GrpoConfig

SCANNED_CONFIG = dataclasses.replace(CONFIG, num_hidden_layers=UNROLLED_LAYERS + 1)
TIED_CONFIG = dataclasses.replace(CONFIG, tie_word_embeddings=True, num_key_value_heads=4)
RATIOS, KL_COEFFICIENTS = ("token", "sequence"), (0.0, 0.1)
AGGREGATIONS = ("token_mean", "sequence_mean", "constant_length")
COMBINATIONS = list(itertools.product(RATIOS, KL_COEFFICIENTS, AGGREGATIONS))
BETA1 = 0.9  # of Adam, whose first moment after one step is (1 - BETA1) times the gradient


def make_settings(ratio: str, kl: float, aggregation: str) -> GrpoConfig:
    clips = {"clip_low": 0.2, "clip_high": 0.28}
    if ratio == "sequence":  # as narrow as to clip some of these completions
        clips = {"clip_low": 0.03, "clip_high": 0.04}
    return GrpoConfig(
        prompts_per_update=NUM_PROMPTS,
        completions=NUM_COMPLETIONS,
        ratio=ratio,
        kl_coefficient=kl,
        aggregation=aggregation,
        max_grad_norm=1e9,
        **clips,
    )


@dataclasses.dataclass
class ScoredRollout:
    """A rollout with the log-probabilities of its completions under two other policies."""

    data: Rollout
    old_logprobs: list[np.ndarray]
    reference_logprobs: list[np.ndarray]
    sources: np.ndarray  # int (P * n,), the completion that each is a copy of, or itself

    def copy_sources(self) -> None:
        """Replace the values of each copied completion by those of its source."""
        self.data.copy_sources(self.sources)
        self.old_logprobs = [self.old_logprobs[i] for i in self.sources]
        self.reference_logprobs = [self.reference_logprobs[i] for i in self.sources]

    def shares_source_with(self, index: int) -> np.ndarray:
        """Return a mask of the used completions that have the same source as completion `index`."""
        return self.sources[self.used_indices] == self.sources[index]

    @property
    def used_indices(self) -> np.ndarray:
        """Indices of the completions to learn from."""
        return np.flatnonzero(self.data.is_trained)

    def make_batch(self, *, first_step: bool = False, **options: Any) -> grpo.GrpoBatch:
        """Pack the rollout; the first step has no old log-probabilities."""
        batch = self.data.make_batch(**options)
        fields = {"reference_logprobs": scatter_to_targets(self.reference_logprobs, batch.groups)}
        if not first_step:
            fields["old_logprobs"] = scatter_to_targets(self.old_logprobs, batch.groups)
        return dataclasses.replace(batch, **fields)

    def compute_float64_gradients(
        self, new_logprobs: Any, settings: GrpoConfig, *, first_step: bool = False
    ) -> Any:
        """Return the loss and its gradients by the log-probabilities of used completions."""
        indices, flat_advantages = self.used_indices, self.data.advantages.reshape(-1)
        old_logprobs = new_logprobs if first_step else self.old_logprobs
        sources = new_logprobs, old_logprobs, self.data.logprobs, self.reference_logprobs
        logprob_lists = [[source[i] for i in indices] for source in sources]
        advantages = [flat_advantages[i] for i in indices]
        limits = {"max_tokens": ROW_WIDTH, "num_completions": NUM_PROMPTS * NUM_COMPLETIONS}
        return compute_loss_and_gradients(*logprob_lists, advantages, settings, **limits)


def make_scored_rollout(seed: int, *, masked: bool) -> ScoredRollout:
    """Make a random rollout in which many completions are copies.

    Unless `masked`, each group is learned from as a whole or not at all.
    """
    data = make_rollout(seed)
    if not masked:
        data.is_trained[:] = data.is_trained.any(axis=1, keepdims=True)
    rng = np.random.default_rng(seed)
    old_logprobs, reference_logprobs = (
        [row + rng.normal(0, deviation, len(row)).astype(np.float32) for row in data.logprobs]
        for deviation in (0.15, 0.5)
    )
    rollout = ScoredRollout(data, old_logprobs, reference_logprobs, draw_sources(seed))
    rollout.copy_sources()
    return rollout


@pytest.mark.parametrize(
    ("ratio", "kl", "aggregation"),
    [
        pytest.param(
            *combination, marks=[pytest.mark.slow] if combination[:2] == ("sequence", 0.0) else []
        )
        for combination in COMBINATIONS
    ],
)
def test_loss_and_gradients_match_float64(ratio: str, kl: float, aggregation: str) -> None:
    settings = make_settings(ratio, kl, aggregation)

    @jax.jit
    def loss_and_gradients(new_logprobs: Any, batch: grpo.GrpoBatch) -> Any:
        def loss(new_logprobs: Any) -> Any:
            total, metrics = grpo.sum_loss(new_logprobs, batch, settings)
            return total / grpo.loss_weight(batch, settings), metrics

        return jax.value_and_grad(loss, has_aux=True)(new_logprobs)

    for masked in (False, True):
        rollout = make_scored_rollout(2, masked=masked)
        rng = np.random.default_rng(2)
        noise = [rng.normal(0, 0.2, len(row)).astype(np.float32) for row in rollout.old_logprobs]
        new_logprobs = [rollout.old_logprobs[i] + noise[i] for i in rollout.sources]
        batch = rollout.make_batch(bundles=8 if masked else 2)
        targets = scatter_to_targets(new_logprobs, batch.groups)
        # Values at padding change nothing.
        targets[~batch.groups.is_target] = -100
        (loss, metrics), gradients = jax.device_get(loss_and_gradients(targets, batch))
        exact_loss, exact_gradients = rollout.compute_float64_gradients(new_logprobs, settings)
        assert float(loss) == pytest.approx(exact_loss, rel=1e-5, abs=1e-6)
        scale = max(np.abs(gradient).max() for gradient in exact_gradients)
        for i in np.unique(batch.groups.completions)[1:]:
            gradient = sum(itertools.compress(exact_gradients, rollout.shares_source_with(i)))
            mask = batch.groups.completions == i
            np.testing.assert_allclose(gradients[mask], gradient, rtol=1e-4, atol=1e-6 * scale)
        assert not gradients[~batch.groups.is_target].any()
        num_tokens = batch.counts.sum()
        assert num_tokens > batch.groups.is_target.sum()
        assert 0 < metrics["clip_share"] < num_tokens  # else nothing tests the clip
        old_logprobs = np.concatenate([rollout.old_logprobs[i] for i in rollout.used_indices])
        sampler_logprobs = np.concatenate([rollout.data.logprobs[i] for i in rollout.used_indices])
        expected_gap = np.abs(np.float64(old_logprobs) - sampler_logprobs).sum()
        assert float(metrics["sampler_gap"]) == pytest.approx(expected_gap, rel=1e-4)
        assert ("kl" in metrics) is bool(kl)
        if kl:
            log_ratios = np.concatenate(
                [rollout.reference_logprobs[i] - new_logprobs[i] for i in rollout.used_indices],
                dtype=float,
            )
            expected_kl = np.mean(np.exp(log_ratios) - log_ratios - 1)
            assert float(metrics["kl"]) / num_tokens == pytest.approx(expected_kl, rel=1e-4)


def run_optimizer_step(
    graphdef: Any, params: Any, rollout: ScoredRollout, settings: GrpoConfig, **options: Any
) -> tuple[dict[str, float], list[np.ndarray]]:
    """Return the metrics and the gradient of one step of the trainer."""
    batch = rollout.make_batch(**options)
    num_micro_batches = options.get("bundles", 4) // options.get("micro_batch_bundles", 1)
    state = initial_state(params, make_grpo_optimizer(settings, 10))
    state = jax.tree.map(jnp.copy, state)  # its buffers are donated
    step = make_grpo_step(graphdef, settings, None, 0.8, 10)
    state, metrics = step(state, split_rows(batch, num_micro_batches))
    nodes = jax.tree.leaves(state.opt_state, is_leaf=_has_moments)
    (moments,) = (node.mu for node in nodes if _has_moments(node))
    gradient = [np.asarray(leaf) / (1 - BETA1) for leaf in jax.tree.leaves(moments)]
    return jax.device_get(metrics), gradient


def _has_moments(node: Any) -> bool:
    return hasattr(node, "mu")


def compute_exact_gradients(
    graphdef: Any, params: Any, rollout: ScoredRollout, settings: GrpoConfig, *, first_step: bool
) -> tuple[float, list[np.ndarray]]:
    """Return the loss and the gradients by the parameters, from losses in float64."""
    sequences = rollout.data.pad_separately()
    compute_logprobs = functools.partial(grpo.logprobs, graphdef=graphdef, temperature=0.8)
    logprobs, vjp = jax.vjp(jax.jit(compute_logprobs), params, sequences)
    rows = {int(i): (row, sequences.is_target[row]) for row, i in enumerate(rollout.used_indices)}
    new_logprobs = {i: np.asarray(logprobs)[row][mask] for i, (row, mask) in rows.items()}
    exact_values = rollout.compute_float64_gradients(new_logprobs, settings, first_step=first_step)
    loss, logprob_gradients = exact_values
    cotangent = np.zeros(logprobs.shape, np.float32)
    for values, (row, mask) in zip(logprob_gradients, rows.values(), strict=True):
        cotangent[row, mask] = values
    gradient, _ = vjp(jnp.asarray(cotangent))
    return loss, [np.asarray(leaf) for leaf in jax.tree.leaves(gradient)]


def assert_step_is_exact(
    model: Any, combination: Any, *, masked: bool, first_step: bool, **options: Any
) -> None:
    """Compare a step with float64 and with sequences that share no prompt."""
    settings = make_settings(*combination)
    rollout = make_scored_rollout(5, masked=masked)
    # Close to the policy's own log-probabilities: independent ones would clip every token.
    graphdef, params = model
    sequences = rollout.data.pad_separately()
    compute_logprobs = functools.partial(grpo.logprobs, graphdef=graphdef, temperature=0.8)
    logprobs = np.asarray(jax.jit(compute_logprobs)(params, sequences))
    indices = rollout.used_indices
    policy_logprobs = [logprobs[row][sequences.is_target[row]] for row in range(len(indices))]
    logprob_lists = rollout.old_logprobs, rollout.data.logprobs, rollout.reference_logprobs
    rng = np.random.default_rng(0)
    for i, row_logprobs in zip(indices, policy_logprobs, strict=True):
        for values, deviation in zip(logprob_lists, (0.15, 0.3, 0.5), strict=True):
            noise = rng.normal(0, deviation, len(row_logprobs))
            values[i] = (row_logprobs + noise).astype(np.float32)
    rollout.copy_sources()
    loss, gradients = compute_exact_gradients(*model, rollout, settings, first_step=first_step)
    metrics, gradient = run_optimizer_step(
        *model, rollout, settings, first_step=first_step, **options
    )
    assert metrics["loss"] == pytest.approx(loss, rel=1e-4, abs=1e-6)
    # Token means of the difference between the old policy's and the engine's log-probabilities.
    old_logprobs = policy_logprobs if first_step else [rollout.old_logprobs[i] for i in indices]
    sampler_logprobs = np.concatenate([rollout.data.logprobs[i] for i in indices])
    log_ratio = np.float64(np.concatenate(old_logprobs)) - sampler_logprobs
    assert metrics["sampler_gap"] == pytest.approx(np.abs(log_ratio).mean(), rel=1e-4)
    assert metrics["importance_ratio_mean"] == pytest.approx(np.exp(log_ratio).mean(), rel=1e-4)
    if not first_step:
        assert 0 < metrics["clip_share"] < 1
    for exact_leaf, leaf in zip(gradients, gradient, strict=True):
        scale = np.abs(exact_leaf).max()
        assert scale > 0
        np.testing.assert_allclose(leaf, exact_leaf, atol=3e-5 * scale)


@pytest.mark.slow
@pytest.mark.parametrize("first_step", [False, True])
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_step_is_exact_for_any_option(combination: Any, first_step: bool) -> None:
    model = make_random_model(CONFIG)
    masked = len(combination[2]) % 2 == 1
    assert_step_is_exact(model, combination, masked=masked, first_step=first_step, bundles=8)


@pytest.mark.parametrize(
    ("config", "remat", "bundles"),
    [
        pytest.param(CONFIG, False, 4, id="grouped_heads"),
        pytest.param(SCANNED_CONFIG, False, 4, id="scanned", marks=pytest.mark.slow),
        pytest.param(TIED_CONFIG, False, 4, id="tied", marks=pytest.mark.slow),
        pytest.param(CONFIG, True, 1, id="remat_in_one_bundle", marks=pytest.mark.slow),
        pytest.param(CONFIG, True, 8, id="remat_in_8_bundles", marks=pytest.mark.slow),
    ],
)
def test_step_is_exact_for_any_model(config: DecoderConfig, remat: bool, bundles: int) -> None:
    model = make_random_model(config, remat=remat)
    assert_step_is_exact(model, COMBINATIONS[0], masked=True, first_step=False, bundles=bundles)
