"""TRL's GRPOTrainer on a given batch: its loss and its optimizer step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from training.schema import Grpo

_LOSS_TYPES = {"token_mean": "dapo", "sequence_mean": "grpo", "constant_length": "dr_grpo"}


def _no_reward(completions: list[Any], **_: Any) -> list[float | None]:
    return [0.0] * len(completions)


def make_trainer(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    settings: Grpo,
    scratch: Path,
    *,
    temperature: float,
    limit: int,
    rows: int,
    micro_batch: int,
) -> Any:  # a GRPOTrainer
    """Make a trainer of the model in `folder` with TRL's equivalents of `settings`.

    A step takes `rows` completions of at most `limit` tokens in micro-batches. Nothing is
    generated. The batch contains the importance ratio of trainer to engine.
    """
    options = GRPOConfig(
        output_dir=str(scratch),
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=rows // micro_batch,
        num_generations=settings.completions,
        max_completion_length=limit,
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
        train_dataset=Dataset.from_list([{"prompt": "S"}] * rows),
        processing_class=tokenizer,
    )
    trainer.use_vllm = True  # makes the loss use the batch's importance ratio
    trainer.vllm_importance_sampling_correction = True
    trainer.current_gradient_accumulation_steps = rows // micro_batch
    trainer.model.train()
    return trainer


def trl_inputs(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    learned: np.ndarray,
    advantages: np.ndarray,
    importance: Sequence[np.ndarray],
    *,
    pad_id: int,
    old: Sequence[np.ndarray] | None = None,
    reference: Sequence[np.ndarray] | None = None,
) -> dict[str, torch.Tensor]:
    """Pad P prompts on the left and P * n completions on the right, as TRL does.

    `learned` and `advantages` are (P, n). Completions that are not learned have an empty mask, like
    truncated ones in TRL. The other arguments are float32 (tokens,) per completion.
    """
    per_prompt = learned.shape[1]
    rows = len(completions)
    prompt_length, completion_length = max(map(len, prompts)), max(map(len, completions))
    ids = np.full((rows, prompt_length + completion_length), pad_id, np.int64)
    mask = np.zeros((rows, prompt_length + completion_length), np.int64)
    values = {
        name: np.zeros((rows, completion_length), np.float32) for name in ("old", "reference")
    }
    factors = np.ones((rows, completion_length), np.float32)
    for row, tokens in enumerate(completions):
        prompt = prompts[row // per_prompt]
        span = slice(prompt_length - len(prompt), prompt_length + len(tokens))
        ids[row, span] = [*prompt, *tokens]
        mask[row, span] = 1
        factors[row, : len(tokens)] = importance[row]
        for name, logprobs in (("old", old), ("reference", reference)):
            if logprobs is not None:
                values[name][row, : len(tokens)] = logprobs[row]
    mask[~learned.reshape(-1), prompt_length:] = 0
    inputs = {
        "prompt_ids": ids[:, :prompt_length],
        "prompt_mask": mask[:, :prompt_length],
        "completion_ids": ids[:, prompt_length:],
        "completion_mask": mask[:, prompt_length:],
        "advantages": np.float32(advantages).reshape(-1),
        "importance_sampling_ratio": factors,
        "num_items_in_batch": np.float32(mask[:, prompt_length:].sum()),
    }
    if old is not None:
        inputs["old_per_token_logps"] = values["old"]
    if reference is not None:
        inputs["ref_per_token_logps"] = values["reference"]
    return {name: torch.tensor(array) for name, array in inputs.items()}


def split_micro_batches(inputs: dict[str, Any], size: int) -> list[dict[str, Any]]:
    """Split a batch along its rows; scalars are part of every split."""
    rows = len(inputs["advantages"])
    return [
        {
            name: value[first : first + size] if value.dim() else value
            for name, value in inputs.items()
        }
        for first in range(0, rows, size)
    ]
