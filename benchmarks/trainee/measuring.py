"""Run the GRPO update of a model on this machine's devices: a time to stand beside its forecast."""

from __future__ import annotations

import math
import statistics
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.accelerators.measuring import kernels_of
from benchmarks.accelerators.targets import machine_of
from benchmarks.trainee.attention_kernels import kernel_flops
from benchmarks.trainee.machines import SPEEDS
from benchmarks.trainee.update import Work, shapes_of
from training.learner.grpo import GrpoBatch
from training.learner.optimizer import LearnerState
from training.learner.packing import PackedGroups
from training.policy.attention import causal_attention, shared_prompt_attention
from training.policy.kernel_check import largest_difference
from training.policy.kernels import Implementation

UPDATES = 5
"""Updates of which the median counts, after the first one."""

_CALLS = 9  # of attention alone


def measure_update(work: Work, target: str, updates: int = UPDATES) -> dict[str, Any]:
    """Compile an update for this machine's devices, take it so often, and look at one more.

    Weights are drawn, each row of the batch is one answer of the full length, and its prompt is as
    long as it may be: as the forecast has it.

    Returns:
        The device; `compile_seconds`; `first_update_seconds`; `update_seconds` of each, their
        median `seconds`, and the share of the peak of `target` that it makes, `mfu`;
        `peak_bytes` of the first device's memory, 0 where it doesn't say; loss and gradient norm of
        the last update; and what `kernels_of` gives.

    Raises:
        ValueError: this machine's devices are of another platform than the target, or too few.
    """
    chips = require_devices(work, target)
    step, shapes, batch_shapes = shapes_of(work, chips)
    began = time.perf_counter()
    compiled = step.lower(shapes, batch_shapes).compile()
    compile_seconds = time.perf_counter() - began
    states, batch = [_drawn_state(shapes)], _drawn_batch(batch_shapes, work)

    def update() -> Any:
        state, metrics = compiled(states.pop(), batch)
        states.append(state)
        return metrics

    seconds = _seconds_of(update, updates + 1)
    median = statistics.median(seconds[1:])
    metrics = {name: float(value) for name, value in jax.device_get(update()).items()}
    used = chips[0].memory_stats() or {}
    peak = SPEEDS[target.partition(":")[0]].peak
    return {
        "device": chips[0].device_kind,
        "compile_seconds": compile_seconds,
        "first_update_seconds": seconds[0],
        "update_seconds": seconds[1:],
        "seconds": median,
        "mfu": work.model_flops() / len(chips) / peak / median,
        "peak_bytes": int(used.get("peak_bytes_in_use", 0)),
        "loss": metrics["loss"],
        "grad_norm": metrics["grad_norm"],
        **kernels_of(update),
    }


def require_devices(work: Work, target: str) -> list[Any]:
    """Return the devices of an update's mesh.

    Raises:
        ValueError: this machine has others, or too few.
    """
    chips, needed = jax.devices(), work.fsdp * work.tensor
    platform = machine_of(target).platform
    if chips[0].platform != platform or len(chips) < needed:
        raise ValueError(
            f"--measure: got {len(chips)} of {chips[0].platform} here, {target} needs {needed} of"
            f" {platform}"
        )
    return chips[:needed]


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


def _seconds_of(call: Callable[[], Any], calls: int) -> list[float]:
    seconds = []
    for _ in range(calls):
        began = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - began)
    return seconds


def measure_attention(work: Work, target: str) -> dict[str, Any]:
    """Time attention alone, of one layer and micro-batch on one device, and cuDNN's beside it.

    Returns:
        `difference`, that of the kernel to plain attention in float32 on this device
        (`kernel_check.largest_difference`); and for rows that continue a prompt (`rows`), plain
        causal sequences of their width (`causal`), and the same by cuDNN on GPUs (`cudnn`): the
        seconds of the values (`forward`) and of values and gradients (`both`), the share of the
        peak of `target` that the latter make (`share`), or an `error`. Operations are those of two
        products forwards and five backwards.
    """
    model = work.model
    how = Implementation(work.attention_on(jax.default_backend()))
    group = model.num_attention_heads // model.num_key_value_heads
    heads = [model.num_attention_heads, *[model.num_key_value_heads] * 2]
    rows, width, prompt = work.rows, work.width, work.prompt
    peak = SPEEDS[target.partition(":")[0]].peak

    def case(attend: Any, batch: int, length: int, flops: float) -> dict[str, Any]:
        keys = jax.random.split(jax.random.key(0), 4)
        shapes = [(batch, length, count, model.head_dim) for count in heads]
        drawn = [
            jax.random.normal(key, shape, jnp.bfloat16)
            for key, shape in zip(keys, [*shapes, shapes[0]], strict=True)
        ]

        def both(slope: jax.Array, *tokens: jax.Array) -> Any:
            value, pull = jax.vjp(attend, *tokens)
            return value, pull(slope)

        try:
            forward, both_ways = jax.jit(attend), jax.jit(both)
            timed = {
                "forward": min(_seconds_of(lambda: forward(*drawn[:3]), _CALLS)),
                "both": min(_seconds_of(lambda: both_ways(drawn[3], *drawn[:3]), _CALLS)),
            }
        except Exception as error:  # what a library says of a shape is a result
            return {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        return timed | {"share": flops / peak / timed["both"]}

    mask, long = jnp.ones((1, 1, prompt), bool), jnp.ones((rows, width), bool)
    segments = jnp.broadcast_to(jnp.arange(rows)[:, None], (rows, width))[None]
    of_rows = shared_prompt_attention(mask, jnp.zeros((1, rows), jnp.int32), segments, how)
    query = (rows, width, model.num_attention_heads, model.head_dim)

    def flops(before: int) -> float:
        key = (rows, before + width, model.num_key_value_heads, model.head_dim)
        return 3.5 * kernel_flops("flash_forward", [query, key])

    found = {
        "difference": largest_difference(how, head_dim=model.head_dim, group=group),
        "rows": case(of_rows, 1, prompt + rows * width, flops(prompt)),
        "causal": case(causal_attention(long, how), rows, width, flops(0)),
    }
    if jax.default_backend() == "gpu":
        cudnn = partial(jax.nn.dot_product_attention, is_causal=True, implementation="cudnn")
        found["cudnn"] = case(cudnn, rows, width, flops(0))
    return found
