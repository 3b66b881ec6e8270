"""The largest update of a configuration, compiled for devices that need not be there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from training.errors import UserError
from training.policy.architectures import DecoderConfig
from training.run.dry_run import KNOWN_SHAPES, longest_prompt, shape_of
from training.run.progress import console
from training.schema import RunConfig

_ROOT = Path(__file__).resolve().parents[2]
_WRONG_USE = 2  # the exit status of `benchmarks.trainee`


def require_target(config: RunConfig, target: str) -> None:
    """Compile nothing, but see that the largest update could be compiled for a target.

    Raises:
        UserError: the policy's shape is not known, it has adapters, this is no checkout of the
            repository, there is no such target, it has another number of devices, or its compiler
            isn't there.
    """
    _benchmark(config, target, "--check")


def compile_for(config: RunConfig, target: str) -> int:
    """Compile the largest update for a target, print what came out; return the exit status.

    A `UserError` is that of `require_target`.
    """
    if config.grpo.kl_coefficient:
        console.print(
            f"grpo.kl_coefficient: {config.grpo.kl_coefficient:g}: the reference's weights and the "
            "pass that scores with them aren't part of what is compiled"
        )
    options: list[str] = []
    if config.sampling.runs_vllm_here:
        share = config.sampling.gpu_memory_utilization
        options = ["--engine-share", str(share)]
        console.print(
            "It fits if it does beside vLLM, which takes "
            f"{share:.0%} of each device (sampling.gpu_memory_utilization)."
        )
    sys.stdout.flush()
    return _benchmark(config, target, *options)


def update_shape(config: RunConfig, shape: DecoderConfig) -> dict[str, object]:
    """Describe the largest update as `benchmarks.trainee` takes it: no row holds two answers."""
    mesh, completions = config.model.mesh, config.grpo.completions
    groups = config.grpo.micro_batch_size // completions // mesh.fsdp
    return {
        "name": config.name,
        "model": asdict(shape),
        "groups": groups,
        "prompt": longest_prompt(config),
        "rows": groups * completions,
        "width": config.prompt.max_tokens,
        "micro_batches": config.micro_batches,
        "fsdp": mesh.fsdp,
        "tensor": mesh.tensor,
        "dtype": config.model.dtype,
        "remat": config.model.remat,
        "temperature": config.sampling.temperature,
        "attention": config.model.attention,
    }


def _benchmark(config: RunConfig, target: str, *options: str) -> int:
    """Call `benchmarks.trainee` for the largest update; return the exit status, 0 or 1."""
    if config.model.lora is not None:
        raise UserError(
            "--compile-for: model.lora: got adapters, allowed is null: what is compiled is the "
            "update of all weights"
        )
    if not (_ROOT / "benchmarks/trainee").is_dir():
        raise UserError(
            f"--compile-for: got {target}, allowed where jaxlake runs from its repository, which "
            "holds benchmarks/trainee"
        )
    shape = shape_of(config)
    if shape is None:
        raise UserError(
            f"--compile-for: the shape of model.pretrained {config.model.pretrained} is not known "
            "here, allowed are a local folder and " + ", ".join(KNOWN_SHAPES)
        )
    work = json.dumps(update_shape(config, shape))
    command = [sys.executable, "-m", "benchmarks.trainee", "--target", target, "--work", work]
    done = subprocess.run(
        [*command, *options],
        cwd=_ROOT,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        check=False,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode == _WRONG_USE:
        problem = done.stderr.strip().rpartition("error: ")[2]
        raise UserError(problem.replace("--target", "--compile-for"))
    sys.stderr.write(done.stderr)
    return done.returncode
