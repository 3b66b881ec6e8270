"""Measure the GRPO update of a Qwen3 model with random weights and tokens on this machine."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks.accelerators.measuring import profile_kernels, time_calls
from training.learner.flops import update_flops
from training.learner.grpo import GrpoBatch
from training.learner.grpo_step import make_grpo_optimizer, make_grpo_step
from training.learner.optimizer import initial_state
from training.learner.packing import PackedGroups
from training.policy.architectures import DecoderConfig
from training.policy.decoder import Decoder
from training.policy.kernels import select_attention
from training.run.throughput import peak_tflops
from training.schema import GrpoConfig

MODELS = {
    "0.6B": DecoderConfig(151_936, 1024, 3072, 28, 16, 8, tie_word_embeddings=True),
    "4B": DecoderConfig(151_936, 2560, 9728, 36, 32, 8, tie_word_embeddings=True),
}
REPEATS = 5
"""Number of timed updates after the first one; the result is their median."""


@dataclass(frozen=True)
class Work:
    """The shape of an update on one device: one prompt per micro-batch, rows of one answer each."""

    prompt: int = 512  # tokens
    rows: int = 8  # of a micro-batch
    width: int = 4096  # tokens of a row
    micro_batches: int = 4


def measure_update(shape: DecoderConfig, work: Work, repeats: int = REPEATS) -> dict[str, Any]:
    """Compile an update in bfloat16 for JAX's default device and time it.

    Returns:
        `device`, its kind; `compile_seconds`; the median `seconds` of the updates; `mfu`, if the
        device's peak is known; `peak_bytes` of its memory, 0 if unknown; `loss` and `grad_norm` of
        the last update; and the fields of `profile_kernels`.
    """
    device, dtype = jax.devices()[0], jnp.bfloat16
    attention = select_attention(
        "auto",
        platform=device.platform,
        dtype=jnp.dtype(dtype),
        head_dim=shape.head_dim,
        num_key_heads=shape.num_key_value_heads,
        tensor_axis_size=1,
    )
    model = Decoder(shape, rngs=nnx.Rngs(0), dtype=dtype, remat="all_but_attention")
    model.attention = attention
    graphdef, params = nnx.split(model)
    settings = GrpoConfig()
    step = make_grpo_step(graphdef, settings, None, 1.0, 100)
    states = [initial_state(params, make_grpo_optimizer(settings, 100))]
    batch = jax.device_put(_draw_batch(shape.vocab_size, work))
    del model, params
    start = time.perf_counter()
    executable = step.lower(states[0], batch).compile()
    compile_seconds = time.perf_counter() - start

    def update() -> Any:
        state, metrics = executable(states.pop(), batch)
        states.append(state)
        return metrics

    update()
    seconds = statistics.median(time_calls(update, repeats))
    metrics = jax.device_get(update())
    record: dict[str, Any] = {
        "device": device.device_kind,
        "compile_seconds": compile_seconds,
        "seconds": seconds,
        "peak_bytes": int((device.memory_stats() or {}).get("peak_bytes_in_use", 0)),
        "loss": float(metrics["loss"]),
        "grad_norm": float(metrics["grad_norm"]),
        **profile_kernels(update),
    }
    if (peak := peak_tflops(device, "bfloat16")) is not None:
        answers = [[float(work.width)] * work.rows] * work.micro_batches
        flops = update_flops(shape, [float(work.prompt)] * work.micro_batches, answers)
        record["mfu"] = flops / (peak * 1e12 * seconds)
    return record


def _draw_batch(vocabulary_size: int, work: Work) -> GrpoBatch:
    """Draw tokens and advantages of answers with the full length."""
    rng = np.random.default_rng(0)
    leading_axes = (work.micro_batches, 1)
    rows = (*leading_axes, work.rows, work.width)

    def draw_tokens(*shape: int) -> np.ndarray:
        return rng.integers(0, vocabulary_size, (*leading_axes, *shape), dtype=np.int32)

    uniform_logprobs = np.full(rows, -math.log(vocabulary_size), np.float32)
    answers = np.broadcast_to(np.arange(work.rows, dtype=np.int32)[:, None], rows)
    positions = work.prompt + np.arange(work.width, dtype=np.int32)
    return GrpoBatch(
        groups=PackedGroups(
            prompt_ids=draw_tokens(1, work.prompt),
            prompt_mask=np.ones((*leading_axes, 1, work.prompt), bool),
            row_prompts=np.zeros((*leading_axes, work.rows), np.int32),
            input_ids=draw_tokens(work.rows, work.width),
            target_ids=draw_tokens(work.rows, work.width),
            positions=np.broadcast_to(positions, rows),
            completions=answers,
        ),
        sampler_logprobs=uniform_logprobs,
        old_logprobs=uniform_logprobs,
        advantages=rng.standard_normal(rows).astype(np.float32),
        copies=np.ones(rows, np.float32),
    )
