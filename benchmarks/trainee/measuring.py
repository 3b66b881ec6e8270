"""Take the GRPO update of a model on this machine's devices."""

from __future__ import annotations

import math
import statistics
import time
import zlib
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.accelerators.measuring import kernels_of, seconds_of
from benchmarks.trainee.update import Work, shapes_of
from training.learner.grpo import GrpoBatch
from training.learner.optimizer import LearnerState
from training.learner.packing import PackedGroups
from training.run.throughput import known_peak

UPDATES = 5
"""Timed updates after the first one; the median counts."""


def measure_update(work: Work, updates: int = UPDATES) -> dict[str, Any]:
    """Compile an update for this machine's devices and time it.

    Weights are drawn, and every answer and prompt has its full length.

    Returns:
        `device`, its kind; `compile_seconds`; `first_update_seconds`; the median `seconds` of the
        later updates; `mfu`, where the device's peak is known; `peak_bytes` of the first device's
        memory, 0 where it does not say; `loss` and `grad_norm` of the last timed update; and the
        fields of `kernels_of`.
    """
    chips = jax.devices()
    step, shapes, batch_shapes = shapes_of(work, chips)
    began = time.perf_counter()
    compiled = step.lower(shapes, batch_shapes).compile()
    compile_seconds = time.perf_counter() - began
    states, batch = [_drawn_state(shapes)], _drawn_batch(batch_shapes, work)

    def update() -> Any:
        state, metrics = compiled(states.pop(), batch)
        states.append(state)
        return metrics

    first, *later = seconds_of(update, updates + 1)
    metrics = {name: float(value) for name, value in jax.device_get(update()).items()}
    record: dict[str, Any] = {
        "device": chips[0].device_kind,
        "compile_seconds": compile_seconds,
        "first_update_seconds": first,
        "seconds": statistics.median(later),
        "peak_bytes": int((chips[0].memory_stats() or {}).get("peak_bytes_in_use", 0)),
        "loss": metrics["loss"],
        "grad_norm": metrics["grad_norm"],
        **kernels_of(update),
    }
    if (peak := known_peak(chips[0], work.dtype)) is not None:
        most = peak * 1e12 * len(chips) * record["seconds"]
        record["mfu"] = work.model_flops() / most
    return record


def _drawn_state(shapes: LearnerState) -> LearnerState:
    """Draw weights, and leave the optimizer's state at zero."""

    def drawn(path: Any, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        seed = jax.random.key(zlib.crc32(jax.tree_util.keystr(path).encode()))  # in any process
        values = jax.random.normal(seed, leaf.shape, leaf.dtype) * 0.02
        return jax.device_put(values, leaf.sharding)

    def zeros(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding)

    params = jax.tree.map_with_path(drawn, shapes.params)
    return replace(jax.tree.map(zeros, replace(shapes, params=())), params=params)


def _drawn_batch(shapes: GrpoBatch, work: Work) -> GrpoBatch:
    """Draw tokens and advantages of answers that have the full length."""
    rng = np.random.default_rng(0)
    groups = shapes.groups
    vocabulary = work.model.vocab_size

    def tokens(leaf: Any) -> np.ndarray:
        return rng.integers(0, vocabulary, leaf.shape, dtype=np.int32)

    prompts = np.broadcast_to(np.arange(work.rows) % work.groups, groups.row_prompts.shape)
    answers = np.broadcast_to(np.arange(work.rows)[:, None], groups.completions.shape)
    rows = shapes.advantages.shape
    even = np.full(rows, -math.log(vocabulary), np.float32)
    batch = GrpoBatch(
        groups=PackedGroups(
            prompt_ids=tokens(groups.prompt_ids),
            prompt_mask=np.ones(groups.prompt_mask.shape, bool),
            row_prompts=prompts.astype(np.int32),
            input_ids=tokens(groups.input_ids),
            target_ids=tokens(groups.target_ids),
            positions=np.broadcast_to(work.prompt + np.arange(work.width), rows).astype(np.int32),
            completions=answers.astype(np.int32),
        ),
        sampler_logprobs=even,
        old_logprobs=even,
        advantages=rng.standard_normal(rows).astype(np.float32),
        copies=np.ones(rows, np.float32),
    )
    return jax.tree.map(lambda leaf, one: jax.device_put(leaf, one.sharding), batch, shapes)
