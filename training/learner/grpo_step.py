"""The compiled optimizer step of GRPO."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from training.learner.batching import Sequences
from training.learner.gradient_program import jit_gradients
from training.learner.grpo import GrpoBatch, loss_weight, summed_loss
from training.learner.imitation import answer_nll
from training.learner.optimizer import (
    LearnerState,
    Metrics,
    adamw,
    gradient_step,
    learning_rate_schedule,
    set_schedule_step,
)
from training.learner.placement import get_placement
from training.schema import GrpoConfig, RehearsalConfig


def make_grpo_optimizer(settings: GrpoConfig, steps: int) -> optax.GradientTransformation:
    """Return the AdamW optimizer of a run with this number of optimizer steps.

    A decaying learning rate reaches 10% of its peak in the last step.
    """
    rate, kind, warmup = settings.learning_rate, settings.schedule, settings.warmup_updates
    return adamw(
        learning_rate_schedule(rate, kind, warmup_steps=warmup, steps=steps - 1),
        weight_decay=0.0,
        max_grad_norm=settings.max_grad_norm,
        b2=0.99,  # rewards are noisier than targets, so average over more steps
    )


def get_schedule_step(settings: GrpoConfig, step: int) -> np.int32 | None:
    """Return the `schedule_step` of `make_grpo_step`; None for a constant learning rate.

    A decaying learning rate depends on the step of the run, from 0. The optimizer's own count
    differs: a rollback resets it, and learning to design adds steps.
    """
    return None if settings.schedule == "constant" else np.int32(step)


@functools.cache
def make_grpo_step(
    graphdef: nnx.GraphDef,
    settings: GrpoConfig,
    rehearsal: RehearsalConfig | None,
    temperature: float,
    steps: int,  # optimizer steps of the run
) -> Any:
    """Return a compiled step `(state, batch, examples, schedule_step) -> (state, metrics)`.

    The step donates the state and keeps its placement. The leading axes of the batch are
    (micro-batches, bundles of `PackedGroups`). The loss of rehearsal `examples` is added. The
    learning rate depends on `schedule_step`, int32 (), or if None on the optimizer's own count.
    """
    loss = functools.partial(
        summed_loss, graphdef=graphdef, settings=settings, temperature=temperature
    )
    optimizer = make_grpo_optimizer(settings, steps)

    def rehearse(examples: Sequences, params: Any) -> tuple[jax.Array, Metrics]:
        assert rehearsal is not None
        mean_nll = answer_nll(params, examples, graphdef=graphdef).sum() / examples.is_target.sum()
        return rehearsal.weight * mean_nll, {"rehearsal_loss": mean_nll}

    @functools.partial(jit_gradients, donate_argnums=0)
    def step(
        state: LearnerState,
        batch: GrpoBatch,
        examples: Sequences | None = None,
        schedule_step: jax.Array | None = None,
    ) -> tuple[LearnerState, Metrics]:
        if schedule_step is not None:
            state = set_schedule_step(state, schedule_step)
        num_micro_batches = batch.groups.is_target.any(axis=(1, 2, 3)).sum()  # without empty ones
        num_tokens = jnp.maximum(batch.counts.sum(), 1).astype(jnp.float32)
        rehearsal_loss = None if examples is None else functools.partial(rehearse, examples)
        return gradient_step(
            state,
            batch,
            num_micro_batches,
            loss_weight(batch, settings),
            loss=loss,
            optimizer=optimizer,
            metrics_weight=num_tokens,
            rehearsal_loss=rehearsal_loss,
            placement=get_placement(graphdef, state.params),
        )

    return step
