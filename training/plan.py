"""What a configuration would do and take, worked out without doing it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path

from rich.table import Table

from training.config import ORACLE, RunConfig
from training.model.qwen3 import LOGITS_BYTES, Qwen3Config, parameter_shapes
from training.run.progress import console

_BYTES = {"float32": 4, "bfloat16": 2}
_GIB = 2**30

# Shapes of hub models that a plan can be made for while they are not on this machine.
_KNOWN = {
    "Qwen/Qwen3-0.6B": (151_936, 1024, 3072, 28, 16, 8, 128),
    "Qwen/Qwen3-1.7B": (151_936, 2048, 6144, 28, 16, 8, 128),
    "Qwen/Qwen3-4B": (151_936, 2560, 9728, 36, 32, 8, 128),
    "Qwen/Qwen3-8B": (151_936, 4096, 12288, 36, 32, 8, 128),
}


@dataclass(frozen=True)
class Memory:
    """Estimated bytes on each of the trainer's devices, and vLLM's weights on each of its own."""

    weights: int
    optimizer: int
    gradients: int
    activations: int
    logits: int
    engine_weights: int

    @property
    def trainer(self) -> int:
        """All of the trainer's bytes on one device."""
        return self.weights + self.optimizer + self.gradients + self.activations + self.logits


def shape_of(config: RunConfig) -> Qwen3Config | None:
    """The policy's shape, as far as it can be known without asking a hub."""
    name = config.model.pretrained
    if name is None:
        return Qwen3Config(**config.model.scratch.model_dump())
    if Path(name).is_dir():
        return Qwen3Config.from_hf(json.loads((Path(name) / "config.json").read_text()))
    if name in _KNOWN:
        return Qwen3Config(*_KNOWN[name], tie_word_embeddings=not name.endswith("8B"))
    return None


def parameters(shape: Qwen3Config) -> int:
    """The number of weights."""
    return sum(prod(sizes) for sizes in parameter_shapes(shape).values())


def estimate(config: RunConfig, shape: Qwen3Config, length: int) -> Memory:
    """Device memory for training on sequences of `length` tokens.

    Weights, Adam's two moments and the gradient take `param_dtype` each and are split over the
    whole mesh; a second copy of the gradient lives while micro-batches are summed. Activations are
    one
    layer input a layer with remat, else about 14 hidden widths and 3 inner widths a token and
    layer, plus the attention scores; the head's logits are chunked.
    """
    mesh = config.model.mesh
    devices = mesh.fsdp * mesh.tensor
    weights = parameters(shape) * _BYTES[config.model.param_dtype] // devices
    rows = -(-config.grpo.micro_batch_size // mesh.fsdp)
    tokens = rows * length
    width = _BYTES[config.model.dtype]
    scores = rows * shape.num_attention_heads // mesh.tensor * length * length * 4
    layer = tokens * (14 * shape.hidden_size + 3 * shape.intermediate_size) * width + 2 * scores
    kept = tokens * shape.hidden_size * width
    layers = shape.num_hidden_layers
    return Memory(
        weights=weights,
        optimizer=2 * weights,
        gradients=2 * weights,
        activations=layers * kept + layer if config.model.remat else layers * layer,
        logits=min(LOGITS_BYTES, tokens * shape.vocab_size * 4) * 3,
        engine_weights=parameters(shape)
        * _BYTES[config.sampling.dtype]
        // config.sampling.tensor_parallel_size,
    )


def print_plan(config: RunConfig) -> None:
    """Print stages, batch shapes, steps and memory."""
    grpo, stages = config.grpo, config.stages
    length = min(
        config.sampling.max_model_len,
        -(-(_prompt_tokens(config) + config.prompt.max_tokens) // grpo.length_bucket)
        * grpo.length_bucket,
    )
    console.print(f"Plan of {config.name} (seed {config.seed}); nothing is started.\n")
    table = Table(title="Stages", title_justify="left")
    for head in ("phase", "instances", "steps", "completions"):
        table.add_column(head, justify="left" if head == "phase" else "right")
    if config.warm_start is not None:
        warm = config.warm_start
        table.add_row(
            "warm start", f"{warm.instances}", f"{warm.steps}", f"{warm.batch_size} plans a step"
        )
    wanted = config.validation
    boards = len(wanted.sizes) * len(wanted.hole_ratios) * len(wanted.wait_ratios) * wanted.per_cell
    used = config.updates_per_round * grpo.prompts_per_update
    for stage in range(1, stages.rounds + 1):
        table.add_row(
            f"round {stage}: train",
            f"{used} of {stages.instances}",
            f"{config.updates_per_round} updates",
            f"{grpo.prompts_per_update} x {grpo.completions}",
        )
        table.add_row(f"round {stage}: validate", f"{boards}", "", "1 a board")
        table.add_row(
            f"round {stage}: design",
            "",
            f"<= {config.engineer.attempts} attempts",
            config.engineer.kind,
        )
        if config.engineer.kind == ORACLE:
            oracle = config.engineer.oracle
            table.add_row(
                f"round {stage}: probes",
                f"<= {oracle.max_probes} x {oracle.updates * grpo.prompts_per_update}",
                f"<= {oracle.max_probes} x {oracle.updates} updates",
                f"{grpo.prompts_per_update} x {grpo.completions}",
            )
    console.print(table)

    batch = grpo.prompts_per_update * grpo.completions
    micro = batch // grpo.minibatches // grpo.micro_batch_size
    console.print(
        f"\nAn update: {batch} completions in {grpo.minibatches} minibatch(es) of {micro} "
        f"micro-batches of ({grpo.micro_batch_size}, {length}) tokens at most; "
        f"the shape is ({micro}, {grpo.micro_batch_size}, L), L a multiple of "
        f"{grpo.length_bucket}."
    )
    sizes = ", ".join(
        f"{size}x{size} {knobs.data_ratio:.0%}"
        for size, knobs in config.environment.initial.sizes.items()
    )
    console.print(f"Round 1 trains on {config.environment.num_agents} agents: {sizes}.")
    shape = shape_of(config)
    if shape is None:
        console.print(
            f"\nThe shape of {config.model.pretrained} is not known here, so device memory can't "
            "be estimated; give a local folder to have it estimated."
        )
        return
    memory = estimate(config, shape, length)
    console.print(
        f"\nThe policy has {parameters(shape) / 1e6:,.1f} million parameters, on a mesh of "
        f"fsdp {config.model.mesh.fsdp} x tensor {config.model.mesh.tensor} devices.\n"
    )
    table = Table(title="Estimated device memory", title_justify="left")
    table.add_column("on each trainer device")
    table.add_column("GiB", justify="right")
    for name in ("weights", "optimizer", "gradients", "activations", "logits"):
        table.add_row(name, f"{getattr(memory, name) / _GIB:.2f}")
    table.add_section()
    table.add_row("trainer in all", f"{memory.trainer / _GIB:.2f}")
    table.add_row("vLLM's weights, a device", f"{memory.engine_weights / _GIB:.2f}")
    console.print(table)


def _prompt_tokens(config: RunConfig) -> int:
    """An upper bound on a prompt's tokens: one a character for digits, letters and punctuation."""
    from training.language.prompts import render

    size = max((*config.environment.bounds.sizes, *config.validation.sizes))
    rows = [["F"] * size for _ in range(size)]
    for agent, (start, goal) in enumerate(["Gg"[i], "Ss"[i]] for i in range(2)):
        rows[0][agent] = goal
        rows[-1][agent] = start
    words = render([" ".join(row) for row in rows], config.prompt.style).split()
    return 2 * len(words) + 32
