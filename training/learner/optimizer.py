"""The learner's state, its optimizer (AdamW), and one optimizer step on a mean loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

from training.errors import UserError
from training.learner.placement import Placement, constrain, place_like
from training.policy.lora import trainable, with_trainable

Metrics: TypeAlias = dict[str, jax.Array]
# (params, micro-batch) -> (summed loss, summed metrics)
SummedLoss: TypeAlias = Callable[[Any, Any], tuple[jax.Array, Metrics]]
# params -> (loss, metrics)
PlainLoss: TypeAlias = Callable[[Any], tuple[jax.Array, Metrics]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LearnerState:
    """What an optimizer step changes."""

    params: Any  # the model's weights, a pytree; beside adapters they are frozen
    opt_state: Any  # Optax's state for those that are learned
    steps: jax.Array  # int32 (), optimizer steps taken


def initial_state(params: Any, optimizer: optax.GradientTransformation) -> LearnerState:
    """Return a state that has taken no step, on the devices that hold the weights."""
    state = LearnerState(params, optimizer.init(trainable(params)), jnp.zeros((), jnp.int32))
    return place_like(state, params)


def at_step(state: LearnerState, step: jax.Array) -> LearnerState:
    """Return the state with the schedule of its rate at a step, int32 (), whatever it has taken."""

    def moved(part: Any) -> Any:
        is_schedule = isinstance(part, optax.ScaleByScheduleState)
        return part._replace(count=jnp.asarray(step, jnp.int32)) if is_schedule else part

    opt_state = jax.tree.map(
        moved, state.opt_state, is_leaf=lambda part: isinstance(part, optax.ScaleByScheduleState)
    )
    return replace(state, opt_state=opt_state)


def learning_rates(
    peak: float, kind: Literal["constant", "cosine", "linear"], *, warmup_steps: int, steps: int = 0
) -> optax.Schedule:
    """Return a schedule that rises linearly over `warmup_steps`, the first of which is a step.

    Then it stays at its peak, or falls to a tenth of it in step `steps`, counted from 0.
    """
    first, end = peak / (warmup_steps + 1), max(steps, warmup_steps + 1)
    if kind == "cosine":
        return optax.warmup_cosine_decay_schedule(first, peak, warmup_steps, end, peak / 10)
    rise = optax.linear_schedule(first, peak, max(warmup_steps, 1))
    if kind == "constant":
        return rise
    fall = optax.linear_schedule(peak, peak / 10, end - warmup_steps)
    return optax.join_schedules([rise, fall], [warmup_steps])


def adamw(
    learning_rate: float | optax.Schedule,
    *,
    weight_decay: float,
    max_grad_norm: float,
    b2: float = 0.95,
) -> optax.GradientTransformation:
    """Build AdamW (Loshchilov and Hutter 2019) behind a clip of the gradient's global norm.

    The scales of norms and biases are not decayed.
    """
    return optax.chain(
        optax.clip_by_global_norm(max_grad_norm),
        optax.adamw(
            learning_rate,
            b2=b2,
            weight_decay=weight_decay,
            mask=lambda params: jax.tree_util.tree_map_with_path(
                lambda path, _: not _is_vector(jax.tree_util.keystr(path)), params
            ),
        ),
    )


def _is_vector(path: str) -> bool:
    return "norm" in path or "_bias" in path


def gradient_step(
    state: LearnerState,
    micro_batches: Any,
    count: jax.Array | int,
    weight: jax.Array,
    *,
    loss: SummedLoss,
    optimizer: optax.GradientTransformation,
    metrics_weight: jax.Array | None = None,
    beside: PlainLoss | None = None,
    placement: Placement | None = None,
) -> tuple[LearnerState, Metrics]:
    """Take one optimizer step on the mean loss; with the new state come the mean metrics.

    Where the weights have adapters, these alone are learned (`training.policy.lora`).

    The leaves of `micro_batches` lead with (micro-batches, rows per micro-batch). The first `count`
    micro-batches, int32 (), are used; it is traced, so that empty ones at the end cost nothing. The
    sums over them are divided by `weight`, float32 (): a number of tokens, and those of the metrics
    by `metrics_weight` if it is another one. `loss` and `grad_norm` are added to the metrics.
    `beside` is a loss that is added to this mean, with its metrics.
    `placement` says which devices hold what: the gradient and the new state are placed as the
    weights are, and micro-batches are split along their rows. None leaves it to the compiler.
    """
    learned = trainable(state.params)

    def place_gradient(gradient: Any) -> Any:
        return gradient if placement is None else constrain(gradient, trainable(placement.params))

    def loss_of(learned: Any, micro_batch: Any) -> tuple[jax.Array, Metrics]:
        return loss(with_trainable(state.params, learned), micro_batch)

    def add(number: jax.Array, total: Any) -> Any:
        micro_batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[number], micro_batches)
        if placement is not None:
            micro_batch = jax.tree.map(placement.split_rows, micro_batch)
        summed, gradient = jax.value_and_grad(loss_of, has_aux=True)(learned, micro_batch)
        return jax.tree.map(jnp.add, total, (*summed, place_gradient(gradient)))

    first = jax.tree.map(lambda leaf: leaf[0], micro_batches)
    shapes = jax.eval_shape(loss_of, learned, first)
    *sums, zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), (*shapes, learned))
    value, metrics, gradient = jax.lax.fori_loop(0, count, add, (*sums, place_gradient(zeros)))
    value, gradient = _divided((value, gradient), weight)
    metrics = _divided(metrics, weight if metrics_weight is None else metrics_weight)
    if beside is not None:
        whole = partial(with_trainable, state.params)
        (more, others), slope = jax.value_and_grad(lambda one: beside(whole(one)), has_aux=True)(
            learned
        )
        value, metrics = value + more, metrics | others
        gradient = jax.tree.map(jnp.add, gradient, place_gradient(slope))
    updates, opt_state = optimizer.update(gradient, state.opt_state, learned)
    params = with_trainable(state.params, optax.apply_updates(learned, updates))
    metrics = metrics | {"loss": value, "grad_norm": optax.tree.norm(gradient)}
    state = LearnerState(params, opt_state, state.steps + 1)
    return (state, metrics) if placement is None else placement.place((state, metrics))


def _divided(tree: Any, weight: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: leaf / weight.astype(leaf.dtype), tree)


def require_finite(step: str, metrics: Mapping[str, Any], *, help: str) -> None:
    """Raise a `UserError` if a metric of an optimizer step is not a finite number.

    Its `loss` and `grad_norm` are enough: a NaN in a gradient reaches all weights through the clip
    of its norm, and every later loss. `help` names what may help.
    """
    wrong = [f"{name} {value:g}" for name, value in metrics.items() if not np.isfinite(value)]
    if wrong:
        raise UserError(
            f"{step} can't be used: {', '.join(wrong)}, allowed are finite numbers. The last "
            f"checkpoint has none of it; {help} may help, in a run of its own"
        )
