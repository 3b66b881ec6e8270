"""Build TRL's GRPOTrainer and its input batch, to compare loss and optimizer step with ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from training.schema import GrpoConfig

_LOSS_TYPES = {"token_mean": "dapo", "sequence_mean": "grpo", "constant_length": "dr_grpo"}


def _no_reward(completions: list[Any], **_: Any) -> list[float | None]:
    return [0.0] * len(completions)


def make_trainer(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    settings: GrpoConfig,
    scratch: Path,
    *,
    temperature: float,
    max_tokens: int,
    num_completions: int,
    micro_batch_size: int,
) -> Any:  # a GRPOTrainer
    """Make a trainer with TRL's equivalents of `settings`. It generates nothing.

    Args:
        folder: The Qwen3 model to train.
        tokenizer: The model's tokenizer.
        settings: Options of GRPO.
        scratch: Folder for TRL's output.
        temperature: Sampling temperature by which the logits are divided.
        max_tokens: Maximum tokens of a completion, the length of `constant_length`.
        num_completions: Number of completions of a step.
        micro_batch_size: Number of completions of a micro-batch.
    """
    options = GRPOConfig(
        output_dir=str(scratch),
        per_device_train_batch_size=micro_batch_size,
        gradient_accumulation_steps=num_completions // micro_batch_size,
        num_generations=settings.completions,
        max_completion_length=max_tokens,
        temperature=temperature,
        learning_rate=settings.learning_rate,
        weight_decay=0.0,
        max_grad_norm=settings.max_grad_norm,
        adam_beta2=0.99,
        loss_type=_LOSS_TYPES[settings.aggregation],
        importance_sampling_level=settings.ratio,
        epsilon=settings.clip_low,
        epsilon_high=settings.clip_high,
        beta=settings.kl_coefficient,
        use_bias_correction_kl=False,  # true would multiply k3 by the importance ratio
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to=[],
        logging_strategy="no",
        save_strategy="no",
    )
    trainer: Any = GRPOTrainer(
        model=Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=_no_reward,
        args=options,
        train_dataset=Dataset.from_list([{"prompt": "S"}] * num_completions),
        processing_class=tokenizer,
    )
    trainer.use_vllm = True  # makes the loss use the batch's importance ratio
    trainer.vllm_importance_sampling_correction = True
    trainer.current_gradient_accumulation_steps = num_completions // micro_batch_size
    trainer.model.train()
    return trainer


def trl_inputs(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    is_trained: np.ndarray,
    advantages: np.ndarray,
    importance_ratios: Sequence[np.ndarray],
    *,
    pad_id: int,
    old_logprobs: Sequence[np.ndarray] | None = None,
    reference_logprobs: Sequence[np.ndarray] | None = None,
) -> dict[str, torch.Tensor]:
    """Pad P prompts on the left and P * n completions on the right, as TRL does.

    Args:
        prompts: Token ids of P prompts.
        completions: Token ids of P * n completions; those of a prompt are adjacent.
        is_trained: bool (P, n). Completions with False get an all-zero mask, as TRL does with
            truncated ones.
        advantages: float32 (P, n).
        importance_ratios: float32 (tokens,) per completion, probability in trainer over engine.
        pad_id: Id of the padding token.
        old_logprobs: float32 (tokens,) per completion, before the update, in nats.
        reference_logprobs: float32 (tokens,) per completion, of the reference model, in nats.
    """
    completions_per_prompt = is_trained.shape[1]
    num_rows = len(completions)
    prompt_length, completion_length = max(map(len, prompts)), max(map(len, completions))
    ids = np.full((num_rows, prompt_length + completion_length), pad_id, np.int64)
    mask = np.zeros((num_rows, prompt_length + completion_length), np.int64)
    for row, tokens in enumerate(completions):
        prompt = prompts[row // completions_per_prompt]
        span = slice(prompt_length - len(prompt), prompt_length + len(tokens))
        ids[row, span] = [*prompt, *tokens]
        mask[row, span] = 1
    mask[~is_trained.reshape(-1), prompt_length:] = 0
    inputs = {
        "prompt_ids": ids[:, :prompt_length],
        "prompt_mask": mask[:, :prompt_length],
        "completion_ids": ids[:, prompt_length:],
        "completion_mask": mask[:, prompt_length:],
        "advantages": np.float32(advantages).reshape(-1),
        "importance_sampling_ratio": _pad_right(importance_ratios, 1.0),
        "num_items_in_batch": np.float32(mask[:, prompt_length:].sum()),
    }
    if old_logprobs is not None:
        inputs["old_per_token_logps"] = _pad_right(old_logprobs, 0.0)
    if reference_logprobs is not None:
        inputs["ref_per_token_logps"] = _pad_right(reference_logprobs, 0.0)
    return {name: torch.tensor(array) for name, array in inputs.items()}


def _pad_right(rows: Sequence[np.ndarray], value: float) -> np.ndarray:
    array = np.full((len(rows), max(map(len, rows))), value, np.float32)
    for row, values in zip(array, rows, strict=True):
        row[: len(values)] = values
    return array


def split_micro_batches(inputs: dict[str, Any], size: int) -> list[dict[str, Any]]:
    """Split a batch along its rows; scalars are part of every split."""
    return [
        {name: value[i : i + size] if value.dim() else value for name, value in inputs.items()}
        for i in range(0, len(inputs["advantages"]), size)
    ]
