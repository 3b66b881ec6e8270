"""The learner's state, its optimizer (AdamW), and one optimizer step on a mean loss."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

from training.errors import UserError
from training.learner.placement import Placement, constrain, place_like
from training.policy.lora import get_trainable, replace_trainable

Metrics: TypeAlias = dict[str, jax.Array]
# (params, micro-batch) -> (summed loss, summed metrics)
SummedLoss: TypeAlias = Callable[[Any, Any], tuple[jax.Array, Metrics]]
# params -> (loss, metrics)
PlainLoss: TypeAlias = Callable[[Any], tuple[jax.Array, Metrics]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LearnerState:
    """The weights and the optimizer's state."""

    params: Any  # the model's weights, a pytree; with LoRA only the adapters change
    opt_state: Any  # Optax state of the trainable weights
    steps: jax.Array  # int32 (), optimizer steps taken


def initial_state(params: Any, optimizer: optax.GradientTransformation) -> LearnerState:
    """Return the state before the first step, on the devices of the weights."""
    state = LearnerState(params, optimizer.init(get_trainable(params)), jnp.zeros((), jnp.int32))
    return place_like(state, params)


def set_schedule_step(state: LearnerState, step: jax.Array) -> LearnerState:
    """Return the state with the learning rate schedule moved to a step, int32 ()."""

    def is_schedule(node: Any) -> bool:
        return isinstance(node, optax.ScaleByScheduleState)

    def set_count(node: Any) -> Any:
        return node._replace(count=jnp.asarray(step, jnp.int32)) if is_schedule(node) else node

    return replace(state, opt_state=jax.tree.map(set_count, state.opt_state, is_leaf=is_schedule))


def learning_rate_schedule(
    peak: float, kind: Literal["constant", "cosine", "linear"], *, warmup_steps: int, steps: int = 0
) -> optax.Schedule:
    """Return a learning rate schedule with a linear warm-up.

    Args:
        peak: Maximum learning rate.
        kind: Shape after the warm-up. `cosine` and `linear` decay to 10% of the peak.
        warmup_steps: Number of steps of the warm-up, which starts above 0.
        steps: Index of the step, from 0, at which the decay ends.
    """
    start, end_step = peak / (warmup_steps + 1), max(steps, warmup_steps + 1)
    if kind == "cosine":
        return optax.warmup_cosine_decay_schedule(start, peak, warmup_steps, end_step, peak / 10)
    warmup = optax.linear_schedule(start, peak, max(warmup_steps, 1))
    if kind == "constant":
        return warmup
    decay = optax.linear_schedule(peak, peak / 10, end_step - warmup_steps)
    return optax.join_schedules([warmup, decay], [warmup_steps])


def adamw(
    learning_rate: float | optax.Schedule,
    *,
    weight_decay: float,
    max_grad_norm: float,
    b2: float = 0.95,
) -> optax.GradientTransformation:
    """Return AdamW (Loshchilov and Hutter 2019) with clipping of the gradient's global norm.

    Weight decay does not apply to norms and biases. `b2` is the decay rate of the second moment.
    """
    return optax.chain(
        optax.clip_by_global_norm(max_grad_norm),
        optax.adamw(
            learning_rate,
            b2=b2,
            weight_decay=weight_decay,
            mask=lambda params: jax.tree_util.tree_map_with_path(
                lambda path, _: not re.search("norm|_bias", jax.tree_util.keystr(path)), params
            ),
        ),
    )


def gradient_step(
    state: LearnerState,
    micro_batches: Any,
    count: jax.Array | int,
    weight: jax.Array,
    *,
    loss: SummedLoss,
    optimizer: optax.GradientTransformation,
    metrics_weight: jax.Array | None = None,
    rehearsal_loss: PlainLoss | None = None,
    placement: Placement | None = None,
) -> tuple[LearnerState, Metrics]:
    """Take one optimizer step on the mean loss.

    With LoRA only the adapters are trained (`training.policy.lora`).

    Args:
        state: The learner before the step.
        micro_batches: A pytree with leading axes (micro-batches, rows per micro-batch).
        count: Number of micro-batches to use, int32 (). It is traced, so that empty micro-batches
            at the end cost nothing.
        weight: Divisor of the summed loss, float32 (), such as a number of tokens.
        loss: Returns the summed loss and metrics of a micro-batch.
        optimizer: The optimizer.
        metrics_weight: Divisor of the summed metrics; None uses `weight`.
        rehearsal_loss: A loss of the weights on other examples, added to the mean loss.
        placement: Shardings of the gradient, the new state and the micro-batches. None leaves
            them to the compiler.

    Returns:
        The new state, and the mean metrics with `loss` and `grad_norm`.
    """
    trainable = get_trainable(state.params)

    def place_gradient(gradient: Any) -> Any:
        return (
            gradient if placement is None else constrain(gradient, get_trainable(placement.params))
        )

    def trainable_loss(trainable: Any, micro_batch: Any) -> tuple[jax.Array, Metrics]:
        return loss(replace_trainable(state.params, trainable), micro_batch)

    def add(index: jax.Array, total: Any) -> Any:
        micro_batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], micro_batches)
        if placement is not None:
            micro_batch = jax.tree.map(placement.split_rows, micro_batch)
        sums, gradient = jax.value_and_grad(trainable_loss, has_aux=True)(trainable, micro_batch)
        return jax.tree.map(jnp.add, total, (*sums, place_gradient(gradient)))

    first_micro_batch = jax.tree.map(lambda leaf: leaf[0], micro_batches)
    shapes = jax.eval_shape(trainable_loss, trainable, first_micro_batch)
    *sums, zeros = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), (*shapes, trainable)
    )
    loss_value, metrics, gradient = jax.lax.fori_loop(0, count, add, (*sums, place_gradient(zeros)))
    loss_value, gradient = _divide((loss_value, gradient), weight)
    metrics = _divide(metrics, weight if metrics_weight is None else metrics_weight)
    if rehearsal_loss is not None:
        (rehearsal_value, rehearsal_metrics), rehearsal_gradient = jax.value_and_grad(
            lambda leaves: rehearsal_loss(replace_trainable(state.params, leaves)), has_aux=True
        )(trainable)
        loss_value, metrics = loss_value + rehearsal_value, metrics | rehearsal_metrics
        gradient = jax.tree.map(jnp.add, gradient, place_gradient(rehearsal_gradient))
    updates, opt_state = optimizer.update(gradient, state.opt_state, trainable)
    params = replace_trainable(state.params, optax.apply_updates(trainable, updates))
    metrics = metrics | {"loss": loss_value, "grad_norm": optax.tree.norm(gradient)}
    state = LearnerState(params, opt_state, state.steps + 1)
    return (state, metrics) if placement is None else placement.place((state, metrics))


def _divide(tree: Any, weight: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: leaf / weight.astype(leaf.dtype), tree)


def require_finite(step: str, metrics: Mapping[str, Any], *, advice: str) -> None:
    """Raise a `UserError` if a metric of an optimizer step is not finite.

    Checking `loss` and `grad_norm` is enough: clipping by the norm spreads a NaN in the gradient to
    all weights, and thus to every later loss. `advice` names settings that may prevent the problem.
    """
    problems = [f"{name} {value:g}" for name, value in metrics.items() if not np.isfinite(value)]
    if problems:
        raise UserError(
            f"metrics of {step} must be finite, got {', '.join(problems)}. The last checkpoint is "
            f"unaffected. A new run with {advice} may avoid this"
        )
