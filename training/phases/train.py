"""Train: GRPO on boards drawn from the round's configuration."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from engineer import LakeConfiguration
from training.config import Grpo
from training.instances import InstanceSet
from training.learning import grpo
from training.learning.grpo import GrpoBatch
from training.learning.learner import LearnerState, Metrics, adamw, split, start, step
from training.learning.packing import pack, place
from training.phases.boards import draw_boards, write_boards
from training.phases.context import Run, as_floats
from training.phases.rollout import Rollout, metrics_of, roll_out
from training.phases.sync import sync
from training.policy import load
from training.run.checkpoints import Progress
from training.run.progress import console, track
from training.run.records import history_before, reference_of
from training.sampling.vllm_sampler import VllmSampler

_NO_STEP = {  # what is said of an update in which no group teaches
    "loss": 0.0,
    "grad_norm": 0.0,
    "clip_share": 0.0,
    "importance_ratio_mean": 1.0,
    "sampler_gap": 0.0,
}


@dataclass(frozen=True)
class Update:
    """One update: the learner after it, and what was seen on the way.

    Attributes:
      state: the learner; vLLM holds its weights.
      rollout: what was learned from.
      learned: means over its optimizer steps, as `metrics.jsonl` names them.
      sync_difference: between vLLM and trainer after it, nats.
    """

    state: LearnerState
    rollout: Rollout
    learned: dict[str, float]
    sync_difference: float


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
    """The round's training boards, as `draw_boards` makes them; what they are like is written."""
    drawn = draw_boards(run.config, stage, configuration, run.validation)
    for fill in drawn.fills:
        if not fill.complete:
            console.print(f"round {stage}: {fill}", style="yellow")
    write_boards(run.directory.stage(stage), drawn)
    return drawn.boards


def start_of(run: Run, state: LearnerState, stage: int) -> LearnerState:
    """The learner that a stage starts with: as the one before left it, unless that was taken back.

    Then it has the weights that the last stage that counts ended with, and a new optimizer.

    Args:
      run: the run.
      state: as the stage before left it.
      stage: at least 1.
    """
    origin = reference_of(run.directory, stage)
    if origin == stage - 1:
        return state
    params = load(
        run.directory.stage(origin) / "policy",
        run.config.model,
        run.config.prompt,
        length_bucket=run.config.grpo.length_bucket,
    )[1]
    return start(params, optimizer(run.config.grpo))


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
    updates = len(boards) // settings.prompts_per_update
    with track(f"round {stage}: train", updates, start=done) as advance:
        for number in range(done + 1, updates + 1):
            seconds: dict[str, float] = {}
            last = number * settings.prompts_per_update
            chosen = boards.take(range(last - settings.prompts_per_update, last))
            seed = run.entropy("sample", stage, number)
            update = take_update(run, state, sampler, chosen, seed=seed, seconds=seconds)
            state = update.state
            record = {
                "phase": "train",
                "stage": stage,
                "update": number,
                "step": run.step(stage, number),
                **metrics_of(update.rollout),
                **update.learned,
                "sync_max_abs_diff": float(f"{update.sync_difference:.3g}"),
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
                            past.model_dump(mode="json")
                            for past in history_before(run.config, run.directory, stage)
                        ],
                    ),
                )
    return state


def take_update(
    run: Run,
    state: LearnerState,
    sampler: VllmSampler,
    boards: InstanceSet,
    *,
    seed: int,
    seconds: dict[str, float],
) -> Update:
    """Roll out, learn, and hand the new weights to vLLM; the buffers of `state` are used up.

    Args:
      boards: `grpo.prompts_per_update` boards.
      seed: of the completions.
      seconds: what rollout, verification, update and sync took is added here.
    Raises:
      SyncError: vLLM's log-probabilities are not the trainer's.
    """
    settings, graphdef = run.config.grpo, run.policy.graphdef
    temperature = run.config.sampling.temperature
    learn = _compile(graphdef, settings, temperature)
    rollout = roll_out(run, sampler, boards, seed=seed, seconds=seconds)
    with run.clock(seconds, "update"):
        batch = _batch(run, rollout)
        if settings.minibatches > 1:
            score = _compile_scoring(graphdef, temperature)
            batch = _with_old_logprobs(batch, score, state.params, settings)
        steps = []
        for minibatch in _minibatches(batch, settings):
            if minibatch.sequences.targets.any():
                state, metrics = learn(state, minibatch)
                steps.append(as_floats(metrics))
        learned = _means(steps or [_NO_STEP])
    with run.clock(seconds, "sync"):
        difference = sync(run, state.params, sampler, rollout)
    return Update(state, rollout, learned, difference)


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
    return replace(batch, old_logprobs=old)


def _minibatches(batch: GrpoBatch, settings: Grpo) -> list[GrpoBatch]:
    """Deal the rows, those that teach first, over minibatches of (micro-batches, rows, ...)."""
    micro = len(batch.advantages) // settings.minibatches // settings.micro_batch_size
    return [
        split(jax.tree.map(lambda leaf: leaf[first :: settings.minibatches], batch), micro)  # noqa: B023
        for first in range(settings.minibatches)
    ]


def _means(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(f"{np.mean([one[name] for one in steps]):.6g}") for name in steps[0]}


@functools.cache
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
