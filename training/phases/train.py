"""Train: GRPO on boards drawn from the round's configuration."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from engineer.configuration import LakeConfiguration
from training.config import Grpo
from training.instances import InstanceSet, cells_of, draw
from training.learning import grpo
from training.learning.grpo import GrpoBatch
from training.learning.learner import LearnerState, Metrics, adamw, split, step
from training.learning.packing import pack, place
from training.phases.context import Run, as_floats
from training.phases.design import history_before
from training.phases.rollout import Rollout, metrics_of, roll_out
from training.phases.sync import sync
from training.run.checkpoints import Progress
from training.run.directory import write_json
from training.run.progress import console, track
from training.sampling.vllm_sampler import VllmSampler

_NO_STEP = {  # what is said of an update in which no group teaches
    "loss": 0.0,
    "grad_norm": 0.0,
    "clip_share": 0.0,
    "importance_ratio_mean": 1.0,
    "sampler_gap": 0.0,
}


def optimizer(settings: Grpo) -> Any:
    """AdamW at a constant rate after its warm-up, over all rounds."""
    return adamw(
        settings.learning_rate,
        warmup_steps=settings.warmup_updates,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        b2=0.99,  # rewards are noisier than targets: a longer memory of the gradient's size
    )


def boards_for(run: Run, stage: int, configuration: LakeConfiguration) -> InstanceSet:
    """The round's training boards in the order of training; none is a validation board."""
    boards, shortfalls = draw(
        run.key("train", stage),
        cells_of(
            configuration,
            run.config.stages.instances,
            num_agents=run.config.environment.num_agents,
        ),
        max_size=max(run.config.environment.bounds.sizes),
        max_candidates=run.config.environment.max_candidates,
        exclude=run.validation.grids,
        substitute=True,
    )
    for shortfall in shortfalls:
        console.print(f"round {stage}: {shortfall}", style="yellow")
    write_json(
        run.directory.stage(stage) / "shortfalls.json",
        [dataclasses.asdict(shortfall) for shortfall in shortfalls],
    )
    order = np.random.default_rng(run.entropy("train", stage)).permutation(len(boards))
    return boards.take(order)


def train(
    run: Run,
    state: LearnerState,
    sampler: VllmSampler,
    stage: int,
    boards: InstanceSet,
    configuration: LakeConfiguration,
    *,
    done: int,
) -> LearnerState:
    """Take the round's updates after the `done` that are taken already.

    The sampler holds the weights of `state` on entry and on return.

    Raises:
      SyncError: after an update vLLM's log-probabilities are not the trainer's.
    """
    settings = run.config.grpo
    temperature = run.config.sampling.temperature
    updates = len(boards) // settings.prompts_per_update
    update = _compile(run.policy.graphdef, settings, temperature)
    score = _compile_scoring(run.policy.graphdef, temperature)
    with track(f"round {stage}: train", updates, start=done) as advance:
        for number in range(done + 1, updates + 1):
            seconds: dict[str, float] = {}
            last = number * settings.prompts_per_update
            chosen = boards.take(range(last - settings.prompts_per_update, last))
            seed = run.entropy("sample", stage, number)
            rollout = roll_out(run, sampler, chosen, seed=seed, seconds=seconds)
            with run.clock(seconds, "update"):
                batch = _batch(run, rollout)
                if settings.minibatches > 1:
                    batch = _with_old_logprobs(batch, score, state.params, settings)
                steps = [_NO_STEP]
                for minibatch in _minibatches(batch, settings):
                    if minibatch.sequences.targets.any():
                        state, metrics = update(state, minibatch)
                        steps.append(as_floats(metrics))
                learned = _means(steps[1:] or steps)
            with run.clock(seconds, "sync"):
                worst = sync(run, state.params, sampler, rollout)
            record = {
                "phase": "train",
                "stage": stage,
                "update": number,
                "step": run.step(stage, number),
                **metrics_of(rollout),
                **learned,
                "sync_max_abs_diff": float(f"{worst:.3g}"),
            }
            run.directory.metrics.append(record)
            run.directory.timings.append(
                {key: record[key] for key in ("phase", "stage", "update", "step")}
                | {"seconds": seconds}
            )
            advance(
                number,
                f"reward {record['reward_mean']:.3f}  valid {record['valid_rate']:.0%}  "
                f"entropy {record['entropy']:.2f}",
            )
            if number % settings.checkpoint_every == 0 or number == updates:
                run.checkpoints.save(
                    state,
                    Progress(
                        phase="train",
                        stage=stage,
                        update=number,
                        step=run.step(stage, number),
                        seed=run.config.seed,
                        configuration=configuration.model_dump(mode="json"),
                        history=[
                            past.model_dump(mode="json") for past in history_before(run, stage)
                        ],
                    ),
                )
    return state


def _batch(run: Run, rollout: Rollout) -> GrpoBatch:
    """The rollout as arrays; rows that teach stand first, the others have no targets."""
    settings = run.config.grpo
    completions = rollout.completions
    sequences = pack(
        [prompt for prompt in rollout.prompts for _ in range(settings.completions)],
        [completion.token_ids for completion in completions],
        bucket=settings.length_bucket,
        pad_id=run.policy.pad_id,
    )
    sampled = place([completion.logprobs for completion in completions], sequences)
    advantages = grpo.group_advantages(rollout.rewards, divide_by_std=settings.divide_by_std)
    teaches = np.repeat(rollout.teaches, settings.completions)
    if settings.mask_truncated:
        teaches &= [not completion.truncated for completion in completions]
    sequences.targets[~teaches] = False
    batch = GrpoBatch(
        sequences=sequences,
        sampler_logprobs=sampled,
        old_logprobs=np.full(sampled.shape, np.nan, np.float32),
        advantages=advantages.reshape(-1).astype(np.float32),
    )
    order = np.argsort(~teaches, kind="stable")
    return jax.tree.map(lambda leaf: leaf[order], batch)


def _with_old_logprobs(batch: GrpoBatch, score: Any, params: Any, settings: Grpo) -> GrpoBatch:
    parts = split(batch.sequences, len(batch.advantages) // settings.micro_batch_size)
    old = np.asarray(score(params, parts)).reshape(batch.sampler_logprobs.shape)
    return dataclasses.replace(batch, old_logprobs=old)


def _minibatches(batch: GrpoBatch, settings: Grpo) -> list[GrpoBatch]:
    """Deal the rows, those that teach first, over minibatches of (micro-batches, rows, ...)."""
    micro = len(batch.advantages) // settings.minibatches // settings.micro_batch_size
    return [
        split(jax.tree.map(lambda leaf: leaf[first :: settings.minibatches], batch), micro)  # noqa: B023
        for first in range(settings.minibatches)
    ]


def _means(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(f"{np.mean([one[name] for one in steps]):.6g}") for name in steps[0]}


def _compile(graphdef: nnx.GraphDef, settings: Grpo, temperature: float) -> Any:
    loss = functools.partial(
        grpo.summed_loss, graphdef=graphdef, settings=settings, temperature=temperature
    )
    tx = optimizer(settings)

    @functools.partial(jax.jit, donate_argnums=0)
    def update(state: LearnerState, batch: GrpoBatch) -> tuple[LearnerState, Metrics]:
        filled = batch.sequences.targets.any(axis=(1, 2)).sum()
        tokens = batch.sequences.targets.sum().astype(jnp.float32)
        return step(state, batch, filled, tokens, loss=loss, optimizer=tx)

    return update


@functools.cache
def _compile_scoring(graphdef: nnx.GraphDef, temperature: float) -> Any:
    @jax.jit
    def score(params: Any, parts: Any) -> jax.Array:
        return jax.lax.map(
            lambda part: grpo.logprobs(params, part, graphdef=graphdef, temperature=temperature)[0],
            parts,
        )

    return score
