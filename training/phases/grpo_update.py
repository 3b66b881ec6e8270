"""One GRPO update: the rollout, the optimizer steps and the weight sync to the engine."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from training.environments.protocol import Instances
from training.learner import grpo
from training.learner.batching import Sequences, split_rows
from training.learner.flops import update_flops
from training.learner.grpo import GrpoBatch
from training.learner.grpo_step import get_schedule_step, make_grpo_step
from training.learner.optimizer import LearnerState, require_finite
from training.learner.packing import PackedGroups, count_copies, pack_groups, scatter_to_targets
from training.policy.decoder import Decoder
from training.policy.lora import replace_trainable
from training.processes import local_copy, require_same
from training.rollout.rollout import Rollout, roll_out, rollout_metrics, rollout_request
from training.run.active_run import ActiveRun
from training.run.records import six_digits
from training.run.throughput import UpdateWork
from training.sampling.sampler import Completion, Sampler, SamplingRequest
from training.schema import GrpoConfig

SKIPPED_STEP_METRICS = {"importance_ratio_mean": 1.0}
SKIPPED_STEP_METRICS |= dict.fromkeys(("clip_share", "grad_norm", "loss", "sampler_gap"), 0.0)
"""Metrics of an update without an optimizer step, because no group has different rewards."""


def take_update(
    run: ActiveRun,
    state: LearnerState,
    sampler: Sampler,
    boards: Instances,
    request: SamplingRequest,
    *,
    step: int,
    seconds: dict[str, float],
    rehearsal_examples: Sequences | None = None,
    spare: Any = None,
    work: UpdateWork | None = None,
) -> tuple[LearnerState, dict[str, Any]]:
    """Take one update on `grpo.prompts_per_update` instances.

    Args:
        run: The active run.
        state: The learner; its buffers are donated.
        sampler: The engine. It must hold the weights of `state`, and holds the new ones on return.
        boards: `Instances` to train on.
        request: Prompts and sampling settings.
        step: Index in the run, from 0, of the update's first optimizer step.
        seconds: The duration of each part is added here.
        rehearsal_examples: Designs to imitate in each optimizer step.
        spare: `Instances` for `grpo.resamples`. They don't enter the metrics of answers.
        work: The tokens and operations of the update are added here.

    Returns:
        The new state, and the fields of `UpdateMetrics` without the update's position in the run.

    Raises:
        UserError: The loss, its gradient or another metric is not finite.
        SyncError: The engine's weights differ from the trainer's.
    """
    settings, graphdef = run.config.grpo, run.policy.graphdef
    temperature = run.config.sampling.temperature
    rollout = first_rollout = roll_out(run, sampler, boards, request, seconds=seconds, work=work)
    metrics = rollout_metrics(run, first_rollout)
    metrics["weight_version"] = sampler.weight_version
    if settings.resamples and spare is not None:
        rollout, counts = resample(
            run, sampler, first_rollout, spare, seed=request.seed, seconds=seconds, work=work
        )
        metrics |= counts
    if work is not None:
        model = nnx.merge(graphdef, state.params)
        work.model_flops += _count_flops(model, rollout, settings)
    with run.add_seconds(seconds, "update"):
        batch = make_rollout_batch(run, state.params, rollout)
        require_same("the batch of an update", batch)
        if settings.minibatches > 1:  # the first of several steps changes the weights
            batch = replace(batch, old_logprobs=score_batch(run, state.params, batch))
        take_step = make_grpo_step(
            graphdef, settings, run.config.rehearsal, temperature, run.config.grpo_steps
        )
        rows = []
        for i, minibatch in enumerate(_split_minibatches(batch, run)):
            if minibatch.groups.is_target.any() or rehearsal_examples is not None:
                schedule_step = get_schedule_step(settings, step + i)
                state, row = take_step(state, minibatch, rehearsal_examples, schedule_step)
                rows.append(jax.tree.map(six_digits, jax.device_get(row)))
        rows = rows or [SKIPPED_STEP_METRICS | ({"kl": 0.0} if settings.kl_coefficient else {})]
        means = {name: six_digits(np.mean([step[name] for step in rows])) for name in rows[0]}
        require_finite_metrics(means)
    with run.add_seconds(seconds, "sync"):
        sampler.sync(run.policy.tensors(state.params))
    metrics |= means
    picking = run.config.engineer.picking
    if picking is not None and picking.method == "plr":
        valid_mask = np.reshape(first_rollout.scores.valid, first_rollout.rewards.shape)
        metrics["board_valid"] = tuple(valid_mask.sum(axis=1).tolist())
    return state, metrics


def resample(
    run: ActiveRun,
    sampler: Sampler,
    rollout: Rollout,
    spare: Any,  # `Instances`
    *,
    seed: int,
    seconds: dict[str, float],
    work: UpdateWork | None = None,
) -> tuple[Rollout, dict[str, int]]:
    """Replace prompts with equal rewards by prompts of spare instances (dynamic sampling).

    See DAPO (Yu et al. 2025, section 3.2). There are at most `grpo.resamples` rounds, and no
    instance is used twice. `spare` holds `Instances` that the update does not use. Durations and
    tokens are added to `seconds` and `work`.

    Returns:
        The new rollout, and the fields of `UpdateMetrics` that count instances.
    """
    rng = np.random.default_rng([seed, 1])
    order = rng.permutation(len(spare))
    num_resampled = num_replaced = 0
    for _ in range(run.config.grpo.resamples):
        idle_prompts = np.flatnonzero(~grpo.has_reward_variance(rollout.rewards))
        rows = order[num_resampled : num_resampled + len(idle_prompts)]
        if not len(rows):
            break
        num_resampled += len(rows)
        round_seed = int(rng.integers(2**63))
        boards = spare.take(rows)
        request = rollout_request(run, boards, seed=round_seed)
        extras = roll_out(run, sampler, boards, request, seconds=seconds, work=work)
        replacements = np.flatnonzero(grpo.has_reward_variance(extras.rewards))
        num_replaced += len(replacements)
        rollout = rollout.replace_prompts(idle_prompts[: len(replacements)], extras, replacements)
    return rollout, {"resampled_boards": num_resampled, "replaced_boards": num_replaced}


def require_finite_metrics(metrics: Mapping[str, float]) -> None:
    """Raise a `UserError` if a metric of an update is not finite."""
    advice = "a smaller grpo.learning_rate, a smaller grpo.max_grad_norm or model.dtype=float32"
    require_finite("the update", metrics, advice=advice)


def _count_flops(model: Decoder, rollout: Rollout, settings: GrpoConfig) -> float:
    """Return the operations of loss and gradient over distinct completions."""
    mask = _count_copies(settings, rollout.completions, rollout.rewards) > 0
    lengths = np.reshape([len(answer.token_ids) for answer in rollout.completions], mask.shape)
    groups = np.flatnonzero(mask.any(axis=1))
    prompts = [len(rollout.prompts[group]) for group in groups]
    answers = [lengths[group, mask[group]].tolist() for group in groups]
    return update_flops(model.config, prompts, answers, model.lora)


def _make_learning_mask(
    settings: GrpoConfig, completions: Sequence[Completion], rewards: np.ndarray
) -> np.ndarray:
    """Return which of P * n completions to train on, bool (P, n)."""
    mask = np.repeat(grpo.has_reward_variance(rewards)[:, None], rewards.shape[1], axis=1)
    if settings.mask_truncated:
        mask &= ~np.reshape([completion.truncated for completion in completions], mask.shape)
    return mask


def _count_copies(
    settings: GrpoConfig, completions: Sequence[Completion], rewards: np.ndarray
) -> np.ndarray:
    """Return the copies of each distinct completion, int32 (P, n); see `count_copies`."""
    keys = [
        (completion.token_ids, completion.logprobs.tobytes(), reward)
        for completion, reward in zip(completions, np.ravel(rewards).tolist(), strict=True)
    ]
    return count_copies(keys, _make_learning_mask(settings, completions, rewards))


def make_rollout_batch(run: ActiveRun, params: Any, rollout: Rollout) -> GrpoBatch:
    """Return the batch of an update from a rollout."""
    settings = run.config.grpo
    return make_grpo_batch(
        run,
        params,
        rollout.prompts,
        rollout.completions,
        rollout.rewards,
        width=run.config.prompt.max_tokens,
        bundles=settings.minibatches * run.config.micro_batches * run.config.model.mesh.fsdp,
        minibatches=settings.minibatches,
    )


def make_grpo_batch(
    run: ActiveRun,
    params: Any,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Completion],
    rewards: np.ndarray,
    *,
    width: int,
    bundles: int,
    minibatches: int,
) -> GrpoBatch:
    """Return the batch of P * n completions, prompt by prompt, with rewards (P, n).

    `width`, `bundles` and `minibatches` are explained in `pack_groups`. If the loss has a KL
    divergence, the reference of the run scores the completions.
    """
    settings, fsdp = run.config.grpo, run.config.model.mesh.fsdp
    advantages = grpo.group_advantages(rewards, divide_by_std=settings.divide_by_std)
    copies = _count_copies(settings, completions, rewards)
    groups = pack_groups(
        prompts,
        [completion.token_ids for completion in completions],
        copies > 0,
        bundles=bundles,
        minibatches=minibatches,
        micro_batch_bundles=fsdp,
        width=width,
        bucket=settings.length_bucket,
        pad_id=run.policy.pad_id,
    )

    def gather(values: np.ndarray) -> np.ndarray:
        """Return each token's value of its completion, and 0 at padding, whose index is -1."""
        return np.append(values.reshape(-1), 0)[groups.completions].astype(np.float32)

    logprobs = [completion.logprobs for completion in completions]
    batch = GrpoBatch(
        groups=groups,
        sampler_logprobs=scatter_to_targets(logprobs, groups),
        old_logprobs=np.full(groups.completions.shape, np.nan, np.float32),
        advantages=gather(advantages),
        copies=gather(copies),
    )
    if settings.kl_coefficient:
        reference_params = replace_trainable(params, run.reference)
        batch = replace(batch, reference_logprobs=score_batch(run, reference_params, batch))
    return batch


def score_batch(run: ActiveRun, params: Any, batch: GrpoBatch) -> np.ndarray:
    """Return the log-probabilities of the target tokens, float32 (B, R, W), nats.

    Bundles are computed in micro-batches, and empty bundles are skipped. The log-probabilities in
    the batch are ignored.
    """
    score = _compile_scoring(run.policy.graphdef, run.config.sampling.temperature)
    num_micro_batches = len(batch.groups.row_prompts) // run.config.model.mesh.fsdp
    scores = score(params, split_rows(batch.groups, num_micro_batches))
    return np.asarray(local_copy(scores)).reshape(batch.sampler_logprobs.shape)


def _split_minibatches(batch: GrpoBatch, run: ActiveRun) -> list[GrpoBatch]:
    """Split the bundles into minibatches of (micro-batches, bundles per micro-batch, ...)."""
    minibatches = split_rows(batch, run.config.grpo.minibatches)
    return [
        split_rows(jax.tree.map(lambda leaf: leaf[i], minibatches), run.config.micro_batches)  # noqa: B023
        for i in range(run.config.grpo.minibatches)
    ]


@functools.cache
def _compile_scoring(graphdef: nnx.GraphDef, temperature: float) -> Any:
    logprobs = functools.partial(grpo.group_logprobs, graphdef=graphdef, temperature=temperature)

    @jax.jit
    def score(params: Any, micro_batches: Any) -> jax.Array:
        def score_one(groups: PackedGroups) -> jax.Array:
            zeros = jnp.zeros(groups.target_ids.shape, jnp.float32)
            has_targets = groups.is_target.any()
            return jax.lax.cond(has_targets, lambda: logprobs(params, groups), lambda: zeros)

        return jax.lax.map(score_one, micro_batches)

    return score
