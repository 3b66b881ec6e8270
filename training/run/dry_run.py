"""What a run of a configuration would do, and what it would take, without starting it."""

from __future__ import annotations

import shutil
from math import prod
from pathlib import Path

from engineer.context.token_limit import estimate_tokens
from engineer.scoring.reading import ANSWERS_PER_CONTEXT
from jaxlake import parse_grid
from jaxlake.language.prompts import render
from training.environments.catalogue import domain_of, environment_of
from training.errors import UserError
from training.learner.batching import round_up
from training.phases.atlas import rollouts_per_atlas
from training.policy.architectures import DecoderConfig
from training.policy.attention import BLOCKWISE_ABOVE
from training.policy.blockwise import BLOCK
from training.policy.huggingface import SHIPPED, read_config, resolve
from training.policy.kernels import KERNELS, kind_for
from training.policy.logprobs import LOGITS_BYTES, LOGITS_BYTES_BESIDE_KERNELS
from training.policy.parameters import parameter_shapes, require_shareable_weights
from training.run.kv_cache import bytes_per_token, kv_caches
from training.run.progress import console, duration, new_table, print_table
from training.run.time_estimate import estimated_time
from training.schema import ATLAS, ORACLE, RunConfig
from training.schema.environment_sections import OtherEnvironment, OtherValidation

_BYTES = {"float32": 4, "bfloat16": 2}
_GIB = 2**30

# Shapes of hub models whose memory can be estimated while they are not on this machine.
KNOWN_SHAPES = {
    "Qwen/Qwen3-0.6B": (151_936, 1024, 3072, 28, 16, 8, 128),
    "Qwen/Qwen3-1.7B": (151_936, 2048, 6144, 28, 16, 8, 128),
    "Qwen/Qwen3-4B": (151_936, 2560, 9728, 36, 32, 8, 128),
    "Qwen/Qwen3-8B": (151_936, 4096, 12288, 36, 32, 8, 128),
    "Qwen/Qwen3-14B": (151_936, 5120, 17408, 40, 40, 8, 128),
    "Qwen/Qwen3-32B": (151_936, 5120, 25600, 64, 64, 8, 128),
}


def shape_of(config: RunConfig) -> DecoderConfig | None:
    """Return the policy's shape; None if only a hub knows it."""
    name = config.model.pretrained
    if name is None:
        return DecoderConfig(**config.model.scratch.model_dump())
    if name in SHIPPED or Path(name).is_dir():
        return read_config(resolve(name))
    if name in KNOWN_SHAPES:
        return DecoderConfig(
            *KNOWN_SHAPES[name], tie_word_embeddings=name.endswith(("-0.6B", "-1.7B", "-4B"))
        )
    return None


def require_fitting_mesh(config: RunConfig, shape: DecoderConfig) -> None:
    """Raise a `UserError` if devices can't share the weights, or the heads for a kernel's sake."""
    model = config.model
    fsdp, tensor = model.mesh.fsdp, model.mesh.tensor
    require_shareable_weights(shape, fsdp=fsdp, tensor=tensor, lora=model.lora)
    for platform, kernel in KERNELS.items():
        if kernel == model.attention:
            try:
                kind_for(
                    kernel,
                    platform=platform,
                    dtype=model.dtype,
                    head_dim=shape.head_dim,
                    key_heads=shape.num_key_value_heads,
                    tensor=tensor,
                )
            except ValueError as error:
                raise UserError(f"model.attention: {error}") from error


def parameters(shape: DecoderConfig) -> int:
    """Count the weights."""
    return sum(prod(sizes) for sizes in parameter_shapes(shape).values())


def learned_parameters(config: RunConfig, shape: DecoderConfig) -> int:
    """Count the weights that are trained: all, or those of the adapters."""
    if config.model.lora is None:
        return parameters(shape)
    everything = parameter_shapes(shape, config.model.lora)
    return sum(prod(sizes) for sizes in everything.values()) - parameters(shape)


def trainer_memory(config: RunConfig, shape: DecoderConfig, prompt: int) -> dict[str, int]:
    """Estimate the trainer's bytes per device for GRPO updates on prompts of `prompt` tokens.

    Weights, Adam's two moments and the gradient take `param_dtype` each and are split over the
    whole mesh, as is the reference of a KL divergence, which takes `dtype`; a second copy of the
    gradient lives while micro-batches are summed. With adapters (`model.lora`) moments, gradient
    and reference are theirs alone. With remat, each layer keeps its input, and what
    else the setting says. Without it, each layer keeps about 14 activations of the hidden width and
    3 of the inner width per token, and the attention scores, of blocks where sequences are long.
    The logits are computed in chunks; beside them are the whole output layer in `dtype` and, on a
    mesh or over chunks, its gradient in float32. Completions are as long as they may be.
    """
    mesh = config.model.mesh
    devices = mesh.fsdp * mesh.tensor
    weights = parameters(shape) * _BYTES[config.model.param_dtype] // devices
    learned = learned_parameters(config, shape) * _BYTES[config.model.param_dtype] // devices
    rows, answer = config.grpo.micro_batch_size // mesh.fsdp, config.prompt.max_tokens
    prompts = rows // config.grpo.completions
    tokens = prompts * prompt + rows * answer
    width = _BYTES[config.model.dtype]
    pairs = prompts * _scores_at_once(prompt, prompt)
    pairs += rows * _scores_at_once(answer, prompt + answer)
    scores = pairs * shape.num_attention_heads // mesh.tensor * 4
    layer = tokens * (14 * shape.hidden_size + 3 * shape.intermediate_size) * width + 2 * scores
    layers, kept = shape.num_hidden_layers, layer
    if config.model.remat:
        heads = (shape.num_attention_heads, shape.num_key_value_heads)
        attended, others = (count * shape.head_dim // mesh.tensor for count in heads)
        projected = attended + 2 * others + shape.hidden_size
        more = {"all_but_attention": attended, "all_but_mlp": attended + projected}
        inner = 2 * shape.intermediate_size // mesh.tensor
        more["all_but_products"] = attended + projected + inner
        kept = tokens * (shape.hidden_size + more.get(str(config.model.remat), 0)) * width
    kernels = config.model.dtype == "bfloat16"  # where a device has them
    logits = LOGITS_BYTES_BESIDE_KERNELS if kernels else LOGITS_BYTES
    adapted = config.model.lora is not None
    reference = learned if adapted else parameters(shape) * width // devices
    return {
        "weights": weights,
        **({"adapters": learned} if adapted else {}),
        **({"reference for KL": reference} if config.grpo.kl_coefficient else {}),
        "optimizer": 2 * learned,
        "gradients": 2 * learned,
        "activations": layers * kept + (layer if config.model.remat else 0),
        "output layer": shape.vocab_size * shape.hidden_size * (width + 4) // mesh.tensor,
        "logits": min(logits, rows * answer * shape.vocab_size * 4) * 3,
    }


def _scores_at_once(queries: int, keys: int) -> int:
    """Count the scores of a head that are in memory together."""
    return BLOCK * BLOCK if keys > BLOCKWISE_ABOVE else queries * keys


def run_disk(config: RunConfig, shape: DecoderConfig) -> dict[str, int]:
    """Estimate the bytes that a run's weights take on disk; all other files are small beside them.

    A checkpoint has the weights (with `model.lora` the adapters) and Adam's two moments in
    `param_dtype`. Two are kept, and the oldest goes when the next one is complete, so there are
    three for a while. With adapters each stage keeps them, too. vLLM's folder has
    an output layer of its own, also where it is tied to the embeddings.
    """
    weights = parameters(shape) * _BYTES[config.model.param_dtype]
    head = shape.vocab_size * shape.hidden_size * _BYTES[config.model.param_dtype]
    learned = learned_parameters(config, shape) * _BYTES[config.model.param_dtype]
    kept = weights if config.model.lora is None else weights + learned
    disk = {
        "three checkpoints": 3 * 3 * learned,
        f"the policies of stages 0 to {config.stages.count}": (config.stages.count + 1) * kept,
    }
    if config.sampling.engine != "jax":
        disk["the engine's folder"] = weights + head * shape.tie_word_embeddings
    return disk


def print_plan(config: RunConfig, run_dir: Path) -> None:
    """Print stages, batch shapes, steps, memory, and disk beside what is free for `run_dir`.

    A `UserError` says that the policy, where its shape is known here, does not fit `model.mesh`.
    """
    shape = shape_of(config)
    if shape is not None:
        require_fitting_mesh(config, shape)
    console.print(f"Plan of {config.name} (seed {config.seed}); nothing is started.\n")
    _print_stages(config)
    prompt = longest_prompt(config)
    _print_batches(config, prompt)
    if shape is None:
        console.print(
            f"\nThe shape of {config.model.pretrained} is not known here, so device memory and "
            "disk can't be estimated; give a local folder to have them estimated."
        )
    else:
        _print_memory(config, shape, prompt)
        if config.sampling.runs_vllm_here:
            _print_cache(config, shape)
        _print_disk(config, shape, run_dir)
    print_time(config, run_dir, run_dir.absolute().parent)


def _print_stages(config: RunConfig) -> None:
    grpo, warm_start = config.grpo, config.warm_start
    table = new_table("Stages", "phase", "instances", "steps", "completions")
    if warm_start is not None:
        other = isinstance(config.environment, OtherEnvironment)
        shown = "demonstrations" if other else "plans"
        steps, batch = f"{warm_start.steps}", f"{warm_start.batch_size} {shown} per step"
        table.add_row("warm start", f"{warm_start.instances}", steps, batch)
    boards = validation_instances(config)
    used = f"{config.updates_per_stage * grpo.prompts_per_update} of {config.stages.instances}"
    updates = f"{config.updates_per_stage} updates"
    completions = f"{grpo.prompts_per_update} x {grpo.completions}"
    for stage in range(1, config.stages.count + 1):
        if (picking := config.engineer.picking) and picking.method == "sfl":
            answers = f"{picking.answers} per board"
            table.add_row(f"stage {stage}: pool", f"{picking.pool}", "", answers)
        table.add_row(f"stage {stage}: train", used, updates, completions)
        if config.rehearsal is not None:
            designs = f"{config.rehearsal.contexts} designs per update"
            table.add_row(f"stage {stage}: rehearse", "", updates, designs)
        table.add_row(
            f"stage {stage}: validate", f"{boards}", "", f"1 per {domain_of(config).instance}"
        )
        if learning := config.engineer.learning:
            steps, designs = f"{learning.updates} updates", f"{learning.designs} designs"
            table.add_row(f"stage {stage}: learn to design", "", steps, designs)
        attempts = f"<= {config.engineer.attempts} attempts"
        table.add_row(f"stage {stage}: design", "", attempts, config.engineer.kind)
        last = stage == config.stages.count and config.engineer.atlas.after_last
        if ATLAS in config.engineer.asked or config.engineer.learning or last:
            atlas = config.engineer.atlas
            measured = f"<= {rollouts_per_atlas(config) // atlas.answers}"
            table.add_row(f"stage {stage}: atlas", measured, "", f"{atlas.answers} per board")
        if reading := config.engineer.reading:
            table.add_row(f"stage {stage}: reading", "", "", f"{reading} x {ANSWERS_PER_CONTEXT}")
        if config.engineer.kind == ORACLE:
            oracle = config.engineer.oracle
            probed = f"<= {oracle.max_probes} x {oracle.updates * grpo.prompts_per_update}"
            steps = f"<= {oracle.max_probes} x {oracle.updates} updates"
            table.add_row(f"stage {stage}: probes", probed, steps, completions)
    print_table(table)


def _print_batches(config: RunConfig, prompt: int) -> None:
    grpo = config.grpo
    batch = grpo.prompts_per_update * grpo.completions
    groups = grpo.micro_batch_size // grpo.completions
    console.print(
        f"\nAn update: {batch} completions in {grpo.minibatches} minibatch(es) of at most "
        f"{config.micro_batches} micro-batches. In each are {groups} prompts of {prompt} tokens at "
        f"most, padded to a multiple of {grpo.length_bucket}, and at most {grpo.micro_batch_size} "
        f"rows of {config.prompt.max_tokens} tokens, in which their completions are packed."
    )
    if grpo.resamples:
        most = grpo.prompts_per_update * (1 + grpo.resamples)
        console.print(
            "Boards whose rewards are all equal are replaced by others, in at most "
            f"{grpo.resamples} rounds: an update answers up to {most}."
        )
    domain = domain_of(config)
    shares = ", ".join(
        f"{domain.called(group)} {knobs[domain.space.share]:.0%}"
        for group, knobs in config.environment.initial.values().items()
    )
    other = isinstance(config.environment, OtherEnvironment)
    what = domain.name if other else f"{config.lake.num_agents} agents"
    console.print(f"Stage 1 trains on {what}: {shares}.")


def _print_memory(config: RunConfig, shape: DecoderConfig, prompt: int) -> None:
    memory = trainer_memory(config, shape, prompt)
    sampling = config.sampling
    engine = parameters(shape) * _BYTES[sampling.dtype] // sampling.tensor_parallel_size
    console.print(
        f"\nThe policy has {parameters(shape) / 1e6:,.1f} million parameters, on a mesh of "
        f"fsdp {config.model.mesh.fsdp} x tensor {config.model.mesh.tensor} devices.\n"
    )
    table = new_table("Estimated device memory", "on each trainer device", "GiB")
    for name, size in memory.items():
        table.add_row(name, f"{size / _GIB:.2f}")
    table.add_section()
    table.add_row("trainer in all", f"{sum(memory.values()) / _GIB:.2f}")
    table.add_row("the engine's weights, per device", f"{engine / _GIB:.2f}")
    print_table(table)


def _print_cache(config: RunConfig, shape: DecoderConfig) -> None:
    sampling = config.engine_sampling
    weights = parameters(shape) * _BYTES[sampling.dtype] // sampling.tensor_parallel_size
    title = "\nvLLM's cache of keys and values, of each worker"
    table = new_table(title, "where", "GiB", "tokens", f"sequences of {sampling.max_model_len:,}")
    for cache in kv_caches(sampling, shape, weights):
        most = "<= " if cache.at_most else ""
        table.add_row(
            cache.where,
            f"{most}{cache.gib:.2f}",
            f"{most}{cache.tokens:,}",
            f"{most}{cache.sequences:,.1f}",
        )
    print_table(table)
    console.print(
        f"A token takes {bytes_per_token(sampling, shape):,} bytes. vLLM decodes at most "
        f"{sampling.max_num_seqs} sequences at once (sampling.max_num_seqs); more wait. On an "
        "accelerator its activations and graphs, which it measures when it starts, take a part of "
        "the cache that is not counted here."
    )


def print_time(config: RunConfig, run_dir: Path, within: Path, *, runs: int = 1) -> None:
    """Print how long a run will take, or `runs` of them in turn, where one was measured."""
    estimate = estimated_time(config, run_dir, within)
    if estimate is None:
        console.print(
            f"\nTime: not estimated. No run in {within} has updates of this "
            "model, prompt, sampling and grpo, from which it could be. `--stop-after 1` measures "
            "one stage, and a dry run says then what all of them take."
        )
        return
    table = new_table("\nEstimated time", "phase", "all stages")
    for phase, seconds in estimate.seconds.items():
        table.add_row(phase.replace("_", " "), duration(seconds))
    for phase in estimate.unknown:
        table.add_row(phase.replace("_", " "), "not measured")
    table.add_section()
    table.add_row("in all", duration(estimate.total))
    if runs > 1:
        table.add_row(f"{runs} such runs in turn", duration(runs * estimate.total))
    print_table(table)
    console.print(
        f"It is what {estimate.source} took ({estimate.updates} updates there), compilation "
        "included, scaled by counts. It holds for the machine that it ran on; the start of the "
        "engine comes on top."
    )


def _print_disk(config: RunConfig, shape: DecoderConfig, run_dir: Path) -> None:
    disk = run_disk(config, shape)
    needed = sum(disk.values())
    folder = next(place for place in (run_dir, *run_dir.absolute().parents) if place.exists())
    free = shutil.disk_usage(folder).free
    table = new_table("\nEstimated disk", f"in {run_dir}", "GiB")
    for name, size in disk.items():
        table.add_row(name, f"{size / _GIB:.2f}")
    table.add_section()
    table.add_row("in all", f"{needed / _GIB:.2f}")
    table.add_row("free there now", f"{free / _GIB:.2f}")
    print_table(table)
    if free < needed:
        console.print(f"There is not enough room for this run in {run_dir}.")


def validation_instances(config: RunConfig) -> int:
    """Return the size of the validation set."""
    if isinstance(config.validation, OtherValidation):
        return config.validation.instances
    return config.validation.cells * config.validation.per_cell


def _long_prompts(config: RunConfig) -> list[str]:
    """Return prompts of which one is about the longest: a board of the largest size.

    Of other environments they are those of the validation set.
    """
    if isinstance(config.environment, OtherEnvironment):
        environment = environment_of(config)
        return environment.prompts(environment.validation_set())
    size = max((*config.lake.bounds.sizes, *config.cells.sizes))
    rows = [["F"] * size for _ in range(size)]
    rows[0][:2] = "G", "g"
    rows[-1][:2] = "S", "s"
    board = parse_grid([" ".join(row) for row in rows], max_size=size)
    return [render(board, config.prompt.style)]


def longest_prompt(config: RunConfig) -> int:
    """Estimate the most tokens of a prompt, rounded up as batches are padded."""
    texts = list(_long_prompts(config))
    prompt = 2 * max(len(text.split()) for text in texts)  # few words take more than two tokens
    if isinstance(config.environment, OtherEnvironment):  # nobody knows what its words are like
        prompt = max(prompt, *map(estimate_tokens, texts))
    prompt += 32  # for a chat template
    return min(config.sampling.max_model_len, round_up(prompt, config.grpo.length_bucket))
