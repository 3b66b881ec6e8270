"""The number of floating-point operations of an update's loss and gradient."""

from collections.abc import Sequence
from math import prod

from training.policy.architectures import DecoderConfig
from training.policy.parameters import LORA_A, LORA_B, parameter_shapes
from training.schema import LoraConfig


def update_flops(
    shape: DecoderConfig,
    prompts: Sequence[float],
    completions: Sequence[Sequence[float]],
    lora: LoraConfig | None = None,
) -> float:
    """Return the number of operations of a loss and its gradient, without recomputation.

    The count is 6 per matrix weight and token (4 for frozen weights), and 12 per attending pair of
    tokens and entry of a query (Chowdhery et al. 2022, PaLM, appendix B). The head counts for
    completions only. A prompt counts once for all completions that share it. `prompts` and
    `completions` are numbers of tokens. Without `lora`, all weights are trained.
    """
    sizes = {path: prod(size) for path, size in parameter_shapes(shape, lora).items()}
    kernels = sum(size for path, size in sizes.items() if path.endswith("_proj"))
    adapters = sum(size for path, size in sizes.items() if path.endswith((LORA_A, LORA_B)))
    completion_tokens = sum(map(sum, completions))
    tokens = sum(prompts) + completion_tokens
    pairs = 0.0
    for prompt, lengths in zip(prompts, completions, strict=True):
        pairs += prompt * (prompt + 1) / 2
        pairs += sum(length * (prompt + (length + 1) / 2) for length in lengths)
    width = shape.num_hidden_layers * shape.num_attention_heads * shape.head_dim
    head = shape.vocab_size * shape.hidden_size
    per_weight = 6.0 if lora is None else 4.0
    products = per_weight * (kernels * tokens + head * completion_tokens) + 6.0 * adapters * tokens
    return products + 12.0 * width * pairs
