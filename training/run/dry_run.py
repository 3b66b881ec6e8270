"""A preview of a run: its stages, its tokens and its memory per device."""

from math import prod
from pathlib import Path

from engineer.context.token_limit import estimate_tokens
from jaxlake import parse_grid
from training.environments.catalogue import get_domain, get_environment
from training.learner.batching import round_up
from training.policy.architectures import DecoderConfig
from training.policy.attention import BLOCKWISE_ABOVE
from training.policy.blockwise import BLOCK
from training.policy.huggingface import PACKAGED_MODELS, read_config, resolve_model
from training.policy.logprobs import KERNEL_LOGITS_BYTES, LOGITS_BYTES
from training.policy.model_check import require_loadable_policy, warn_of_length
from training.policy.model_folders import local_folder
from training.policy.parameters import parameter_shapes, require_divisible_weights
from training.prompts import board_prompt
from training.run.progress import console, new_table, print_table
from training.schema import LoraConfig, RunConfig
from training.schema.environment_sections import UserEnvironmentConfig, UserValidationConfig
from training.schema.sampling_sections import find_missing_engine

_BYTES = {"float32": 4, "bfloat16": 2}

# Shapes of hub models whose memory can be estimated without downloading them.
KNOWN_SHAPES = {
    "Qwen/Qwen3-0.6B": (151_936, 1024, 3072, 28, 16, 8, 128),
    "Qwen/Qwen3-1.7B": (151_936, 2048, 6144, 28, 16, 8, 128),
    "Qwen/Qwen3-4B": (151_936, 2560, 9728, 36, 32, 8, 128),
    "Qwen/Qwen3-8B": (151_936, 4096, 12288, 36, 32, 8, 128),
    "Qwen/Qwen3-14B": (151_936, 5120, 17408, 40, 40, 8, 128),
    "Qwen/Qwen3-32B": (151_936, 5120, 25600, 64, 64, 8, 128),
}


def get_model_shape(config: RunConfig, weights: Path | None = None) -> DecoderConfig | None:
    """Return the policy's shape, or None if it would have to be downloaded.

    `weights` is a model folder that replaces `model.pretrained`.
    """
    name = config.model.pretrained if weights is None else str(weights)
    if name is None:
        return DecoderConfig(**config.model.scratch.model_dump())
    if name in PACKAGED_MODELS or Path(name).is_dir():
        return read_config(resolve_model(name))
    if name in KNOWN_SHAPES:
        return DecoderConfig(
            *KNOWN_SHAPES[name], tie_word_embeddings=name.endswith(("-0.6B", "-1.7B", "-4B"))
        )
    return None


def count_parameters(shape: DecoderConfig, lora: LoraConfig | None = None) -> int:
    """Return the number of weights, including adapters."""
    return sum(prod(sizes) for sizes in parameter_shapes(shape, lora).values())


def estimate_trainer_memory(
    config: RunConfig, shape: DecoderConfig, prompt_tokens: int
) -> dict[str, int]:
    """Estimate the trainer's memory per device for GRPO updates.

    Weights, Adam's two moments and two gradients are float32 and split over the whole mesh. With
    remat, each layer keeps its input and, depending on the setting, the outputs of attention.
    Without remat, each layer keeps about 14 activations of the hidden width and 3 of the inner
    width per token, and the attention scores.

    `prompt_tokens` is the length of a prompt in tokens. The result is in bytes, by purpose.
    """
    mesh = config.model.mesh
    num_devices = mesh.fsdp * mesh.tensor
    weight_bytes = trainable_bytes = 4 * count_parameters(shape) // num_devices
    if config.model.lora is not None:
        adapter_weights = count_parameters(shape, config.model.lora) - count_parameters(shape)
        trainable_bytes = 4 * adapter_weights // num_devices
    num_rows, answer_tokens = config.grpo.micro_batch_size // mesh.fsdp, config.prompt.max_tokens
    num_prompts = num_rows // config.grpo.completions
    num_tokens = num_prompts * prompt_tokens + num_rows * answer_tokens
    itemsize = _BYTES[config.model.dtype]
    scores_per_head = num_prompts * _count_scores(prompt_tokens, prompt_tokens)
    scores_per_head += num_rows * _count_scores(answer_tokens, prompt_tokens + answer_tokens)
    score_bytes = scores_per_head * shape.num_attention_heads // mesh.tensor * 4
    layer_bytes = num_tokens * (14 * shape.hidden_size + 3 * shape.intermediate_size) * itemsize
    layer_bytes += 2 * score_bytes
    saved_bytes = layer_bytes
    if config.model.remat:
        saved_width = shape.hidden_size
        if config.model.remat == "all_but_attention":
            saved_width += shape.num_attention_heads * shape.head_dim // mesh.tensor
        saved_bytes = num_tokens * saved_width * itemsize
    activations = shape.num_hidden_layers * saved_bytes + (layer_bytes if config.model.remat else 0)
    uses_kernels = config.model.dtype == "bfloat16"  # on devices that support them
    max_logits_bytes = KERNEL_LOGITS_BYTES if uses_kernels else LOGITS_BYTES
    has_lora = config.model.lora is not None
    kl_bytes = trainable_bytes if has_lora else count_parameters(shape) * itemsize // num_devices
    return {
        "weights": weight_bytes,
        **({"adapters": trainable_bytes} if has_lora else {}),
        **({"reference for KL": kl_bytes} if config.grpo.kl_coefficient else {}),
        "optimizer": 2 * trainable_bytes,
        "gradients": 2 * trainable_bytes,
        "activations": activations,
        "output layer": shape.vocab_size * shape.hidden_size * (itemsize + 4) // mesh.tensor,
        "logits": min(max_logits_bytes, num_rows * answer_tokens * shape.vocab_size * 4) * 3,
    }


def _count_scores(queries: int, keys: int) -> int:
    """Return the number of attention scores per head that are in memory at the same time."""
    return BLOCK * BLOCK if keys > BLOCKWISE_ABOVE else queries * keys


def print_preview(config: RunConfig, weights: Path | None = None) -> None:
    """Print the stages of a run, the shapes and tokens of its batches, and its device memory.

    `weights` is a model folder that replaces `model.pretrained`.

    Raises:
        UserError: A local policy folder can't be opened (see `load_policy`), or the policy does
            not fit `model.mesh`.
    """
    shape = get_model_shape(config, weights)
    mesh, lora = config.model.mesh, config.model.lora
    if shape is not None:
        warn_of_length(shape, config.sampling.max_model_len)
        require_divisible_weights(shape, fsdp=mesh.fsdp, tensor=mesh.tensor, lora=lora)
    folder = weights
    if weights is None and config.model.pretrained is not None:
        folder = local_folder(config.model.pretrained)
    if folder is not None:
        require_loadable_policy(folder, config.prompt)
    console.print(f"Plan of {config.name} (seed {config.seed}); nothing is started.\n")
    if problem := find_missing_engine(config.sampling.engine):
        console.print(f"The run can't start here: {problem}.\n", style="yellow")
    _print_stages(config)
    prompt_tokens = estimate_longest_prompt(config)
    _print_batches(config, prompt_tokens)
    if shape is None:
        console.print(
            f"\nThe shape of {config.model.pretrained} is unknown before the download; memory is "
            "estimated for a local folder only."
        )
    else:
        _print_memory(config, shape, prompt_tokens)


def _print_stages(config: RunConfig) -> None:
    grpo, warm_start = config.grpo, config.warm_start
    table = new_table("Stages", "phase", "instances", "steps", "completions")
    if warm_start is not None:
        batch_text = f"{warm_start.batch_size} demonstrations per step"
        table.add_row("warm start", f"{warm_start.instances}", f"{warm_start.steps}", batch_text)
    boards = f"{config.updates_per_stage * grpo.prompts_per_update} of {config.stages.instances}"
    completions = f"{grpo.prompts_per_update} x {grpo.completions}"
    answers = f"1 per {get_domain(config).instance}"
    for stage in range(1, config.stages.count + 1):
        updates_text = f"{config.updates_per_stage} updates"
        table.add_row(f"stage {stage}: train", boards, updates_text, completions)
        count_text = f"{count_validation_instances(config)}"
        table.add_row(f"stage {stage}: validate", count_text, "", answers)
        table.add_row(f"stage {stage}: design", "", "", config.engineer.kind)
    print_table(table)


def _print_batches(config: RunConfig, prompt_tokens: int) -> None:
    grpo, answer_tokens = config.grpo, config.prompt.max_tokens
    num_completions = grpo.prompts_per_update * grpo.completions
    num_prompts = grpo.micro_batch_size // grpo.completions
    num_tokens = (1 + grpo.resamples) * num_completions * answer_tokens
    console.print(
        f"\nAn update: {num_completions} completions in {grpo.minibatches} minibatch(es) of at "
        f"most {config.micro_batches} micro-batches. A micro-batch has {num_prompts} prompts of at "
        f"most {prompt_tokens} tokens, and at most {grpo.micro_batch_size} rows of {answer_tokens} "
        f"tokens. Rollouts have at most {num_tokens:,} tokens."
    )


def _print_memory(config: RunConfig, shape: DecoderConfig, prompt_tokens: int) -> None:
    memory, sampling = estimate_trainer_memory(config, shape, prompt_tokens), config.sampling
    engine_bytes = count_parameters(shape) * _BYTES[sampling.dtype] // sampling.tensor_parallel_size
    console.print(
        f"\nThe policy has {count_parameters(shape) / 1e6:,.1f} million parameters, on a mesh of "
        f"fsdp {config.model.mesh.fsdp} x tensor {config.model.mesh.tensor} devices.\n"
    )
    table = new_table("Estimated device memory", "on each trainer device", "GiB")
    for name, size in memory.items():
        table.add_row(name, f"{size / 2**30:.2f}")
    table.add_section()
    table.add_row("trainer in all", f"{sum(memory.values()) / 2**30:.2f}")
    table.add_row("the engine's weights, per device", f"{engine_bytes / 2**30:.2f}")
    print_table(table)


def count_validation_instances(config: RunConfig) -> int:
    """Return the number of validation instances."""
    if isinstance(config.validation, UserValidationConfig):
        return config.validation.instances
    return config.validation.num_settings * config.validation.per_cell


def estimate_longest_prompt(config: RunConfig) -> int:
    """Estimate the padded length of the longest prompt, in tokens."""
    if isinstance(config.environment, UserEnvironmentConfig):
        environment = get_environment(config)
        texts = environment.prompts(environment.validation_set())
        num_tokens = max(estimate_tokens(text) for text in texts)
    else:
        size = max((*config.lake.bounds.sizes, *config.validation_grid.sizes))
        rows = [["F"] * size for _ in range(size)]
        rows[0][:2] = "G", "g"
        rows[-1][:2] = "S", "s"
        board = parse_grid([" ".join(row) for row in rows], max_size=size)
        texts, num_tokens = [board_prompt(board, config.prompt)], 0
    num_words = max(len(text.split()) for text in texts)
    # At most about 2 tokens per word, plus a chat template.
    prompt_tokens = max(2 * num_words, num_tokens) + 32
    return min(config.sampling.max_model_len, round_up(prompt_tokens, config.grpo.length_bucket))
