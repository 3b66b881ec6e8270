"""One GRPO update: roll out, learn from the answers, hand the new weights to vLLM."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from training.learner import grpo
from training.learner.batching import pad_sequences, place_on_targets, split_rows
from training.learner.grpo import GrpoBatch
from training.learner.optimizer import LearnerState, Metrics, adamw, gradient_step
from training.phases.weight_sync import sync_weights
from training.rollout.instances import InstanceSet
from training.rollout.rollout import Rollout, roll_out, rollout_metrics
from training.rollout.vllm_sampler import VllmSampler
from training.run.active_run import ActiveRun
from training.run.records import six_digits
from training.schema import Grpo

# The metrics of an update in which no group's rewards differ, so that no step is taken.
_NO_STEP = {"importance_ratio_mean": 1.0}
_NO_STEP |= dict.fromkeys(("clip_share", "grad_norm", "loss", "sampler_gap"), 0.0)


def grpo_optimizer(settings: Grpo) -> optax.GradientTransformation:
    """Build the optimizer of all stages: AdamW at a constant rate after its warm-up."""
    return adamw(
        settings.learning_rate,
        warmup_steps=settings.warmup_updates,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        b2=0.99,  # rewards are noisier than targets: a longer memory of the gradient's size
    )


def take_update(
    run: ActiveRun,
    state: LearnerState,
    sampler: VllmSampler,
    boards: InstanceSet,
    *,
    seed: int,
    seconds: dict[str, float],
) -> tuple[LearnerState, dict[str, Any]]:
    """Take one update on `grpo.prompts_per_update` boards.

    The buffers of `state` are donated. The sampler holds its weights, and those of the new state on
    return. The time that rollout, verification, update and sync took is added to `seconds`. With
    the new state come the fields of `UpdateMetrics` but its place in the run.

    Raises:
        SyncError: vLLM's log-probabilities are not the trainer's.
    """
    settings, graphdef = run.config.grpo, run.policy.graphdef
    temperature = run.config.sampling.temperature
    rollout = roll_out(run, sampler, boards, seed=seed, seconds=seconds)
    with run.clock(seconds, "update"):
        batch = _grpo_batch(run, rollout)
        if settings.minibatches > 1:  # the first of several steps changes the weights
            score = _compiled_scoring(graphdef, temperature)
            parts = split_rows(batch.sequences, len(batch.advantages) // settings.micro_batch_size)
            old = np.asarray(score(state.params, parts)).reshape(batch.sampler_logprobs.shape)
            batch = replace(batch, old_logprobs=old)
        learn = _compiled_step(graphdef, settings, temperature)
        steps = []
        for minibatch in _minibatches(batch, settings):
            if minibatch.sequences.targets.any():
                state, metrics = learn(state, minibatch)
                steps.append(jax.tree.map(six_digits, jax.device_get(metrics)))
        steps = steps or [_NO_STEP]
        learned = {name: six_digits(np.mean([one[name] for one in steps])) for name in steps[0]}
    with run.clock(seconds, "sync"):
        difference = sync_weights(run, state.params, sampler, rollout)
    learned["sync_max_abs_diff"] = float(f"{difference:.3g}")
    return state, rollout_metrics(rollout) | learned


def _grpo_batch(run: ActiveRun, rollout: Rollout) -> GrpoBatch:
    """Turn a rollout into arrays; rows to learn from come first, the others have no targets."""
    settings = run.config.grpo
    completions = rollout.completions
    sequences = pad_sequences(
        [prompt for prompt in rollout.prompts for _ in range(settings.completions)],
        [completion.token_ids for completion in completions],
        bucket=settings.length_bucket,
        pad_id=run.policy.pad_id,
    )
    sampled = place_on_targets([completion.logprobs for completion in completions], sequences)
    advantages = grpo.group_advantages(rollout.rewards, divide_by_std=settings.divide_by_std)
    used = np.repeat(grpo.has_reward_variance(rollout.rewards), settings.completions)
    if settings.mask_truncated:
        used &= [not completion.truncated for completion in completions]
    sequences.targets[~used] = False
    batch = GrpoBatch(
        sequences=sequences,
        sampler_logprobs=sampled,
        old_logprobs=np.full(sampled.shape, np.nan, np.float32),
        advantages=advantages.reshape(-1).astype(np.float32),
    )
    order = np.argsort(~used, kind="stable")
    return jax.tree.map(lambda leaf: leaf[order], batch)


def _minibatches(batch: GrpoBatch, settings: Grpo) -> list[GrpoBatch]:
    """Deal the rows over minibatches of (micro-batches, rows, ...).

    Every minibatch gets as many rows to learn from as any other, up to one.
    """
    micro = len(batch.advantages) // settings.minibatches // settings.micro_batch_size
    return [
        split_rows(jax.tree.map(lambda leaf: leaf[first :: settings.minibatches], batch), micro)  # noqa: B023
        for first in range(settings.minibatches)
    ]


@functools.cache
def _compiled_step(graphdef: nnx.GraphDef, settings: Grpo, temperature: float) -> Any:
    loss = functools.partial(
        grpo.summed_loss, graphdef=graphdef, settings=settings, temperature=temperature
    )
    optimizer = grpo_optimizer(settings)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: LearnerState, batch: GrpoBatch) -> tuple[LearnerState, Metrics]:
        filled = batch.sequences.targets.any(axis=(1, 2)).sum()
        tokens = batch.sequences.targets.sum().astype(jnp.float32)
        return gradient_step(state, batch, filled, tokens, loss=loss, optimizer=optimizer)

    return step


@functools.cache
def _compiled_scoring(graphdef: nnx.GraphDef, temperature: float) -> Any:
    logprobs = functools.partial(grpo.logprobs, graphdef=graphdef, temperature=temperature)

    @jax.jit
    def score(params: Any, parts: Any) -> jax.Array:
        return jax.lax.map(lambda part: logprobs(params, part), parts)

    return score
