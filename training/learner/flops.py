"""The operations that loss and gradient of an update need, counted from lengths."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from training.policy.architectures import DecoderConfig
from training.policy.parameters import LORA_A, LORA_B, parameter_shapes
from training.schema import Lora


def update_flops(
    shape: DecoderConfig,
    prompts: Sequence[float],
    completions: Sequence[Sequence[float]],
    lora: Lora | None = None,
) -> float:
    """Count the operations that loss and gradient need, and nothing that is computed twice.

    Counted are 6 for each weight of a matrix and each token (4 for a frozen one beside adapters,
    which has no gradient of its own), the head for completions alone, and 12
    for each pair of tokens that attend and each entry of a query (Chowdhery et al. 2022, PaLM,
    appendix B). A prompt counts once for all completions that share it.

    Args:
        shape: The decoder.
        prompts: Tokens of P prompts.
        completions: For each prompt the tokens of its completions.
        lora: The adapters that are trained; None: all weights are.
    """
    sizes = {path: prod(size) for path, size in parameter_shapes(shape, lora).items()}
    kernels = sum(size for path, size in sizes.items() if path.endswith("_proj"))
    adapters = sum(size for path, size in sizes.items() if path.endswith((LORA_A, LORA_B)))
    answered = sum(map(sum, completions))
    tokens = sum(prompts) + answered
    pairs = 0.0
    for prompt, lengths in zip(prompts, completions, strict=True):
        pairs += prompt * (prompt + 1) / 2
        pairs += sum(length * (prompt + (length + 1) / 2) for length in lengths)
    width = shape.num_hidden_layers * shape.num_attention_heads * shape.head_dim
    head = shape.vocab_size * shape.hidden_size
    each = 6.0 if lora is None else 4.0
    products = each * (kernels * tokens + head * answered) + 6.0 * adapters * tokens
    return products + 12.0 * width * pairs
