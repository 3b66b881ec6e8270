"""Every loss option against float64, for any packing, micro-batches and devices."""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.training.learner.slow_grpo import slow_loss
from tests.training.learner.test_packing import (
    COMPLETIONS,
    CONFIG,
    PROMPTS,
    WIDTH,
    Rolled,
    random_model,
    rolled,
    some_copied,
)
from training.learner import grpo
from training.learner.batching import split_rows
from training.learner.grpo_step import make_grpo_optimizer, make_grpo_step
from training.learner.optimizer import initial_state
from training.learner.packing import scatter_to_targets
from training.policy.architectures import DecoderConfig
from training.policy.decoder import UNROLLED_LAYERS
from training.schema import Grpo

SCANNED = dataclasses.replace(CONFIG, num_hidden_layers=UNROLLED_LAYERS + 1)
TIED = dataclasses.replace(CONFIG, tie_word_embeddings=True, num_key_value_heads=4)
RATIOS, KLS = ("token", "sequence"), (0.0, 0.1)
AGGREGATIONS = ("token_mean", "sequence_mean", "constant_length")
COMBINATIONS = list(itertools.product(RATIOS, KLS, AGGREGATIONS))
BETA1 = 0.9  # of Adam, whose first moment after one step is (1 - BETA1) times the gradient


def settings_of(ratio: str, kl: float, aggregation: str) -> Grpo:
    clip = {"clip_low": 0.2, "clip_high": 0.28}
    if ratio == "sequence":  # as narrow as to clip some of these completions
        clip = {"clip_low": 0.03, "clip_high": 0.04}
    return Grpo(
        prompts_per_update=PROMPTS,
        completions=COMPLETIONS,
        ratio=ratio,
        kl_coefficient=kl,
        aggregation=aggregation,
        max_grad_norm=1e9,
        **clip,
    )


@dataclasses.dataclass
class Known:
    """A rollout, with log-probabilities of all its completions under three other policies."""

    data: Rolled
    old: list[np.ndarray]
    reference: list[np.ndarray]
    source: np.ndarray  # int (P * n,), what each completion is a copy of, or itself

    def repeat(self) -> None:
        """Make copies of those that have copies."""
        self.data.repeat(self.source)
        self.old = [self.old[i] for i in self.source]
        self.reference = [self.reference[i] for i in self.source]

    def alike(self, index: int) -> np.ndarray:
        """Return which of those that are used are copies of the same one: bool."""
        return self.source[self.used] == self.source[index]

    @property
    def used(self) -> np.ndarray:
        """The completions to learn from."""
        return np.flatnonzero(self.data.learned)

    def batch(self, *, first_step: bool = False, **options: Any) -> grpo.GrpoBatch:
        """Pack them; in the first step the old log-probabilities are those being trained."""
        batch = self.data.shared(**options)
        placed = {"reference_logprobs": scatter_to_targets(self.reference, batch.groups)}
        if not first_step:
            placed["old_logprobs"] = scatter_to_targets(self.old, batch.groups)
        return dataclasses.replace(batch, **placed)

    def slow(self, new: dict[int, np.ndarray], settings: Grpo, *, first_step: bool = False) -> Any:
        """Loss and slopes in float64, from `new` of each completion that is learned from."""
        flat = self.data.advantages.reshape(-1)
        lists = [[source[i] for i in self.used] for source in (self.data.logprobs, self.reference)]
        given = [new[i] for i in self.used]
        old = given if first_step else [self.old[i] for i in self.used]
        advantages = [flat[i] for i in self.used]
        sizes = {"limit": WIDTH, "completions": PROMPTS * COMPLETIONS}
        return slow_loss(given, old, *lists, advantages, settings, **sizes)


def known(seed: int, masked: bool) -> Known:
    """Without a mask, groups are learned from as a whole or not at all. Many are copies."""
    data = rolled(seed)
    if not masked:
        data.learned[:] = data.learned.any(axis=1, keepdims=True)
    rng = np.random.default_rng(seed)
    near = [row + rng.normal(0, 0.15, len(row)).astype(np.float32) for row in data.logprobs]
    far = [row + rng.normal(0, 0.5, len(row)).astype(np.float32) for row in data.logprobs]
    one = Known(data, near, far, some_copied(seed))
    one.repeat()
    return one


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
    settings = settings_of(ratio, kl, aggregation)

    @jax.jit
    def loss_and_slopes(new: Any, batch: grpo.GrpoBatch) -> Any:
        def loss(new: Any) -> Any:
            total, metrics = grpo.sum_loss(new, batch, settings)
            return total / grpo.loss_weight(batch, settings), metrics

        return jax.value_and_grad(loss, has_aux=True)(new)

    for masked in (False, True):
        one = known(2, masked)
        rng = np.random.default_rng(2)
        new = [values + rng.normal(0, 0.2, len(values)).astype(np.float32) for values in one.old]
        new = [new[i] for i in one.source]
        batch = one.batch(bundles=8 if masked else 2)
        placed = scatter_to_targets(new, batch.groups)
        # What stands at padding is not known, and changes nothing.
        placed[~batch.groups.is_target] = -100
        (found, metrics), slopes = jax.device_get(loss_and_slopes(placed, batch))
        expected, by_completion = one.slow(dict(enumerate(new)), settings)
        assert float(found) == pytest.approx(expected, rel=1e-5, abs=1e-6)
        largest = max(np.abs(slope).max() for slope in by_completion)
        for i in np.unique(batch.groups.completions)[1:]:
            slope = sum(itertools.compress(by_completion, one.alike(i)))
            at = batch.groups.completions == i
            np.testing.assert_allclose(slopes[at], slope, rtol=1e-4, atol=1e-6 * largest)
        assert not slopes[~batch.groups.is_target].any()
        tokens = batch.counts.sum()
        assert tokens > batch.groups.is_target.sum()
        assert 0 < metrics["clip_share"] < tokens  # else the clip was not seen
        old, sampled = (
            np.concatenate([values[i] for i in one.used]) for values in (one.old, one.data.logprobs)
        )
        gap = np.abs(np.float64(old) - sampled).sum()
        assert float(metrics["sampler_gap"]) == pytest.approx(gap, rel=1e-4)
        assert ("kl" in metrics) is bool(kl)
        if kl:
            gaps = np.concatenate([one.reference[i] - new[i] for i in one.used]).astype(float)
            mean = np.mean(np.exp(gaps) - gaps - 1)
            assert float(metrics["kl"]) / tokens == pytest.approx(mean, rel=1e-4)


def gradients(
    graphdef: Any, params: Any, one: Known, settings: Grpo, *, first_step: bool, **options: Any
) -> tuple[dict[str, float], list[np.ndarray]]:
    """Metrics and gradient of one optimizer step, as the trainer takes it."""
    batch = one.batch(first_step=first_step, **options)
    parts = options.get("bundles", 4) // options.get("micro_batch_bundles", 1)
    state = initial_state(params, make_grpo_optimizer(settings, 10))
    state = jax.tree.map(jnp.copy, state)  # its buffers are donated
    step = make_grpo_step(graphdef, settings, None, 0.8, 10)
    state, metrics = step(state, split_rows(batch, parts))
    (moments,) = (
        one.mu
        for one in jax.tree.leaves(state.opt_state, is_leaf=_has_moments)
        if _has_moments(one)
    )
    found = [np.asarray(leaf) / (1 - BETA1) for leaf in jax.tree.leaves(moments)]
    return jax.device_get(metrics), found


def _has_moments(node: Any) -> bool:
    return hasattr(node, "mu")


def expected_gradients(
    graphdef: Any, params: Any, one: Known, settings: Grpo, *, first_step: bool
) -> tuple[float, list[np.ndarray]]:
    """The slopes in float64, taken back through the plain computation of log-probabilities."""
    sequences = one.data.plain()
    score = functools.partial(grpo.logprobs, graphdef=graphdef, temperature=0.8)
    scores, pull = jax.vjp(jax.jit(score), params, sequences)
    rows = {int(i): (row, sequences.is_target[row]) for row, i in enumerate(one.used)}
    new = {i: np.asarray(scores)[row][at] for i, (row, at) in rows.items()}
    loss, slopes = one.slow(new, settings, first_step=first_step)
    cotangent = np.zeros(scores.shape, np.float32)
    for slope, (row, at) in zip(slopes, rows.values(), strict=True):
        cotangent[row, at] = slope
    gradient, _ = pull(jnp.asarray(cotangent))
    return loss, [np.asarray(leaf) for leaf in jax.tree.leaves(gradient)]


def assert_step_is_exact(
    model: Any, combination: Any, *, masked: bool, first_step: bool, **options: Any
) -> None:
    """Compare a step with float64, and with log-probabilities of sequences that share no prompt."""
    settings = settings_of(*combination)
    one = known(5, masked)
    # The policy's own log-probabilities, moved: other random ones would clip every token.
    graphdef, params = model
    sequences = one.data.plain()
    score = functools.partial(grpo.logprobs, graphdef=graphdef, temperature=0.8)
    scores = jax.jit(score)(params, sequences)
    rng = np.random.default_rng(0)
    for row, i in enumerate(one.used):
        own = np.asarray(scores)[row][sequences.is_target[row]]
        for values, spread in ((one.old, 0.15), (one.data.logprobs, 0.3), (one.reference, 0.5)):
            values[i] = (own + rng.normal(0, spread, len(own))).astype(np.float32)
    one.repeat()
    loss, expected = expected_gradients(*model, one, settings, first_step=first_step)
    metrics, found = gradients(*model, one, settings, first_step=first_step, **options)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-4, abs=1e-6)
    # Whatever the loss is divided by, these are means over tokens of what the engine is apart.
    own = [np.asarray(scores)[row][sequences.is_target[row]] for row in range(len(one.used))]
    old = np.concatenate(own if first_step else [one.old[i] for i in one.used])
    apart = np.float64(old) - np.concatenate([one.data.logprobs[i] for i in one.used])
    assert metrics["sampler_gap"] == pytest.approx(np.abs(apart).mean(), rel=1e-4)
    assert metrics["importance_ratio_mean"] == pytest.approx(np.exp(apart).mean(), rel=1e-4)
    if not first_step:
        assert 0 < metrics["clip_share"] < 1
    for exact, leaf in zip(expected, found, strict=True):
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
