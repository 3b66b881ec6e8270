"""Every loss option against float64, for any packing, micro-batches and devices."""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.training.learner.slow_grpo import grpo_loss_and_gradients
from tests.training.learner.test_packing import (
    COMPLETIONS,
    CONFIG,
    PROMPTS,
    WIDTH,
    Rollout,
    draw_sources,
    make_rollout,
    random_model,
)
from training.learner import grpo
from training.learner.batching import split_rows
from training.learner.grpo_step import make_grpo_optimizer, make_grpo_step
from training.learner.optimizer import initial_state
from training.learner.packing import scatter_to_targets
from training.policy.architectures import DecoderConfig
from training.policy.decoder import UNROLLED_LAYERS
from training.schema import GrpoConfig

SCANNED = dataclasses.replace(CONFIG, num_hidden_layers=UNROLLED_LAYERS + 1)
TIED = dataclasses.replace(CONFIG, tie_word_embeddings=True, num_key_value_heads=4)
RATIOS, KLS = ("token", "sequence"), (0.0, 0.1)
AGGREGATIONS = ("token_mean", "sequence_mean", "constant_length")
COMBINATIONS = list(itertools.product(RATIOS, KLS, AGGREGATIONS))
BETA1 = 0.9  # of Adam, whose first moment after one step is (1 - BETA1) times the gradient


def make_settings(ratio: str, kl: float, aggregation: str) -> GrpoConfig:
    clip = {"clip_low": 0.2, "clip_high": 0.28}
    if ratio == "sequence":  # as narrow as to clip some of these completions
        clip = {"clip_low": 0.03, "clip_high": 0.04}
    return GrpoConfig(
        prompts_per_update=PROMPTS,
        completions=COMPLETIONS,
        ratio=ratio,
        kl_coefficient=kl,
        aggregation=aggregation,
        max_grad_norm=1e9,
        **clip,
    )


@dataclasses.dataclass
class ScoredRollout:
    """A rollout with the log-probabilities of its completions under two other policies."""

    data: Rollout
    old: list[np.ndarray]
    reference: list[np.ndarray]
    source: np.ndarray  # int (P * n,), the completion that each is a copy of, or itself

    def repeat(self) -> None:
        """Replace the values of each copied completion by those of its source."""
        self.data.repeat(self.source)
        self.old = [self.old[i] for i in self.source]
        self.reference = [self.reference[i] for i in self.source]

    def shares_source_with(self, index: int) -> np.ndarray:
        """Return a mask of the used completions that have the same source as completion `index`."""
        return self.source[self.used] == self.source[index]

    @property
    def used(self) -> np.ndarray:
        """Indices of the completions to learn from."""
        return np.flatnonzero(self.data.learned)

    def batch(self, *, first_step: bool = False, **options: Any) -> grpo.GrpoBatch:
        """Pack the rollout; the first step has no old log-probabilities."""
        batch = self.data.make_batch(**options)
        placed = {"reference_logprobs": scatter_to_targets(self.reference, batch.groups)}
        if not first_step:
            placed["old_logprobs"] = scatter_to_targets(self.old, batch.groups)
        return dataclasses.replace(batch, **placed)

    def float64_loss_and_gradients(
        self, new: dict[int, np.ndarray], settings: GrpoConfig, *, first_step: bool = False
    ) -> Any:
        """Return the loss and its gradients by the log-probabilities `new` of used completions."""
        flat = self.data.advantages.reshape(-1)
        lists = [[source[i] for i in self.used] for source in (self.data.logprobs, self.reference)]
        current = [new[i] for i in self.used]
        old = current if first_step else [self.old[i] for i in self.used]
        advantages = [flat[i] for i in self.used]
        sizes = {"limit": WIDTH, "completions": PROMPTS * COMPLETIONS}
        return grpo_loss_and_gradients(current, old, *lists, advantages, settings, **sizes)


def make_scored_rollout(seed: int, *, masked: bool) -> ScoredRollout:
    """Make a random rollout in which many completions are copies.

    Unless `masked`, each group is learned from as a whole or not at all.
    """
    data = make_rollout(seed)
    if not masked:
        data.learned[:] = data.learned.any(axis=1, keepdims=True)
    rng = np.random.default_rng(seed)
    near = [row + rng.normal(0, 0.15, len(row)).astype(np.float32) for row in data.logprobs]
    far = [row + rng.normal(0, 0.5, len(row)).astype(np.float32) for row in data.logprobs]
    rollout = ScoredRollout(data, near, far, draw_sources(seed))
    rollout.repeat()
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
    def loss_and_gradients(new: Any, batch: grpo.GrpoBatch) -> Any:
        def loss(new: Any) -> Any:
            total, metrics = grpo.sum_loss(new, batch, settings)
            return total / grpo.loss_weight(batch, settings), metrics

        return jax.value_and_grad(loss, has_aux=True)(new)

    for masked in (False, True):
        rollout = make_scored_rollout(2, masked=masked)
        rng = np.random.default_rng(2)
        new = [row + rng.normal(0, 0.2, len(row)).astype(np.float32) for row in rollout.old]
        new = [new[i] for i in rollout.source]
        batch = rollout.batch(bundles=8 if masked else 2)
        placed = scatter_to_targets(new, batch.groups)
        # Values at padding change nothing.
        placed[~batch.groups.is_target] = -100
        (loss, metrics), gradients = jax.device_get(loss_and_gradients(placed, batch))
        expected, by_completion = rollout.float64_loss_and_gradients(dict(enumerate(new)), settings)
        assert float(loss) == pytest.approx(expected, rel=1e-5, abs=1e-6)
        largest = max(np.abs(gradient).max() for gradient in by_completion)
        for i in np.unique(batch.groups.completions)[1:]:
            gradient = sum(itertools.compress(by_completion, rollout.shares_source_with(i)))
            at = batch.groups.completions == i
            np.testing.assert_allclose(gradients[at], gradient, rtol=1e-4, atol=1e-6 * largest)
        assert not gradients[~batch.groups.is_target].any()
        tokens = batch.counts.sum()
        assert tokens > batch.groups.is_target.sum()
        assert 0 < metrics["clip_share"] < tokens  # else nothing tests the clip
        old = np.concatenate([rollout.old[i] for i in rollout.used])
        sampled = np.concatenate([rollout.data.logprobs[i] for i in rollout.used])
        gap = np.abs(np.float64(old) - sampled).sum()
        assert float(metrics["sampler_gap"]) == pytest.approx(gap, rel=1e-4)
        assert ("kl" in metrics) is bool(kl)
        if kl:
            gaps = np.concatenate(
                [rollout.reference[i] - new[i] for i in rollout.used], dtype=float
            )
            mean = np.mean(np.exp(gaps) - gaps - 1)
            assert float(metrics["kl"]) / tokens == pytest.approx(mean, rel=1e-4)


def run_optimizer_step(
    graphdef: Any, params: Any, rollout: ScoredRollout, settings: GrpoConfig, **options: Any
) -> tuple[dict[str, float], list[np.ndarray]]:
    """Return the metrics and the gradient of one step of the trainer."""
    batch = rollout.batch(**options)
    parts = options.get("bundles", 4) // options.get("micro_batch_bundles", 1)
    state = initial_state(params, make_grpo_optimizer(settings, 10))
    state = jax.tree.map(jnp.copy, state)  # its buffers are donated
    step = make_grpo_step(graphdef, settings, None, 0.8, 10)
    state, metrics = step(state, split_rows(batch, parts))
    nodes = jax.tree.leaves(state.opt_state, is_leaf=_has_moments)
    (moments,) = (node.mu for node in nodes if _has_moments(node))
    gradient = [np.asarray(leaf) / (1 - BETA1) for leaf in jax.tree.leaves(moments)]
    return jax.device_get(metrics), gradient


def _has_moments(node: Any) -> bool:
    return hasattr(node, "mu")


def expected_gradients(
    graphdef: Any, params: Any, rollout: ScoredRollout, settings: GrpoConfig, *, first_step: bool
) -> tuple[float, list[np.ndarray]]:
    """Return the loss and the gradients by the parameters, from losses in float64."""
    sequences = rollout.data.pad_separately()
    score = functools.partial(grpo.logprobs, graphdef=graphdef, temperature=0.8)
    scores, pull = jax.vjp(jax.jit(score), params, sequences)
    rows = {int(i): (row, sequences.is_target[row]) for row, i in enumerate(rollout.used)}
    new = {i: np.asarray(scores)[row][at] for i, (row, at) in rows.items()}
    loss, score_gradients = rollout.float64_loss_and_gradients(new, settings, first_step=first_step)
    cotangent = np.zeros(scores.shape, np.float32)
    for values, (row, at) in zip(score_gradients, rows.values(), strict=True):
        cotangent[row, at] = values
    gradient, _ = pull(jnp.asarray(cotangent))
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
    score = functools.partial(grpo.logprobs, graphdef=graphdef, temperature=0.8)
    scores = jax.jit(score)(params, sequences)
    rng = np.random.default_rng(0)
    for row, i in enumerate(rollout.used):
        own = np.asarray(scores)[row][sequences.is_target[row]]
        rows = rollout.old, rollout.data.logprobs, rollout.reference
        for values, spread in zip(rows, (0.15, 0.3, 0.5), strict=True):
            values[i] = (own + rng.normal(0, spread, len(own))).astype(np.float32)
    rollout.repeat()
    loss, expected = expected_gradients(*model, rollout, settings, first_step=first_step)
    metrics, gradient = run_optimizer_step(
        *model, rollout, settings, first_step=first_step, **options
    )
    assert metrics["loss"] == pytest.approx(loss, rel=1e-4, abs=1e-6)
    # Token means of the difference between the old policy's and the engine's log-probabilities.
    own = [np.asarray(scores)[row][sequences.is_target[row]] for row in range(len(rollout.used))]
    old = np.concatenate(own if first_step else [rollout.old[i] for i in rollout.used])
    log_ratio = np.float64(old) - np.concatenate([rollout.data.logprobs[i] for i in rollout.used])
    assert metrics["sampler_gap"] == pytest.approx(np.abs(log_ratio).mean(), rel=1e-4)
    assert metrics["importance_ratio_mean"] == pytest.approx(np.exp(log_ratio).mean(), rel=1e-4)
    if not first_step:
        assert 0 < metrics["clip_share"] < 1
    for exact, leaf in zip(expected, gradient, strict=True):
        largest = np.abs(exact).max()
        assert largest > 0
        np.testing.assert_allclose(leaf, exact, atol=3e-5 * largest)


@pytest.mark.slow
@pytest.mark.parametrize("first_step", [False, True])
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_step_is_exact_for_any_option(combination: Any, first_step: bool) -> None:
    model = random_model(CONFIG)
    masked = len(combination[2]) % 2 == 1
    assert_step_is_exact(model, combination, masked=masked, first_step=first_step, bundles=8)


@pytest.mark.parametrize(
    ("config", "remat", "bundles"),
    [
        pytest.param(CONFIG, False, 4, id="grouped_heads"),
        pytest.param(SCANNED, False, 4, id="scanned", marks=pytest.mark.slow),
        pytest.param(TIED, False, 4, id="tied", marks=pytest.mark.slow),
        pytest.param(CONFIG, True, 1, id="remat_in_one_bundle", marks=pytest.mark.slow),
        pytest.param(CONFIG, True, 8, id="remat_in_8_bundles", marks=pytest.mark.slow),
    ],
)
def test_step_is_exact_for_any_model(config: DecoderConfig, remat: bool, bundles: int) -> None:
    model = random_model(config, remat=remat)
    assert_step_is_exact(model, COMBINATIONS[0], masked=True, first_step=False, bundles=bundles)
