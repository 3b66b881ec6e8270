"""The number of floating-point operations of an update's loss and gradient."""

from collections.abc import Sequence
from math import prod

from training.policy.architectures import DecoderConfig
from training.policy.parameters import LORA_A, LORA_B, parameter_shapes
from training.schema import LoraConfig


def update_flops(
    shape: DecoderConfig,
    prompt_lengths: Sequence[float],
    completion_lengths: Sequence[Sequence[float]],
    lora: LoraConfig | None = None,
) -> float:
    """Return the number of operations of a loss and its gradient, without recomputation.

    The count is 6 per matrix weight and token (4 for frozen weights), and 12 per attending pair of
    tokens and entry of a query (Chowdhery et al. 2022, PaLM, appendix B). The head counts for
    completions only. A prompt counts once for all completions that share it. `prompt_lengths` and
    `completion_lengths` are numbers of tokens. Without `lora`, all weights are trained.
    """
    sizes = {path: prod(size) for path, size in parameter_shapes(shape, lora).items()}
    kernel_weights = sum(size for path, size in sizes.items() if path.endswith("_proj"))
    adapter_weights = sum(size for path, size in sizes.items() if path.endswith((LORA_A, LORA_B)))
    num_targets = sum(map(sum, completion_lengths))
    num_tokens = sum(prompt_lengths) + num_targets
    num_pairs = 0.0
    for prompt_length, lengths in zip(prompt_lengths, completion_lengths, strict=True):
        num_pairs += prompt_length * (prompt_length + 1) / 2
        num_pairs += sum(length * (prompt_length + (length + 1) / 2) for length in lengths)
    width = shape.num_hidden_layers * shape.num_attention_heads * shape.head_dim
    head_weights = shape.vocab_size * shape.hidden_size
    per_weight = 6.0 if lora is None else 4.0
    products = per_weight * (kernel_weights * num_tokens + head_weights * num_targets)
    products += 6.0 * adapter_weights * num_tokens
    return products + 12.0 * width * num_pairs
