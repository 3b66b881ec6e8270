"""Worker that takes TRL's GRPO update in PyTorch: loss, backward and optimizer step."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.lake.protocol import ROOT, repeat, serve
from benchmarks.trainee.batches import ROLLOUT_SETS, read_update
from benchmarks.trainee.trl_trainer import make_trainer, split_micro_batches, trl_inputs
from training.policy.tokenizer import load_tokenizer
from training.schema import load


class TrlUpdate:
    """Takes updates on batches that are padded and split into micro-batches beforehand."""

    def prepare(self, folder: str) -> dict[str, Any]:
        """Make the trainers and take an update with each; return its loss and gradient norm."""
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        config = load(ROOT / "configs/scratch.yaml")
        self._scratch = tempfile.TemporaryDirectory()
        tokenizer = load_tokenizer(Path(folder) / "model")
        self._trainers, self._parts, self._max_grad_norm = {}, {}, config.grpo.max_grad_norm
        for rollout_set in ROLLOUT_SETS:
            update = read_update(Path(folder), rollout_set)
            inputs = trl_inputs(
                update.prompts,
                update.completions,
                np.ones(update.rewards.shape, bool),
                update.advantages(config.grpo),
                update.importance,
                pad_id=tokenizer.pad_token_id,
            )
            size = config.grpo.micro_batch_size
            trainer = make_trainer(
                Path(folder) / "model",
                tokenizer,
                config.grpo,
                Path(self._scratch.name) / rollout_set,
                temperature=config.sampling.temperature,
                max_tokens=config.prompt.max_tokens,
                num_completions=len(update.completions),
                micro_batch_size=size,
            )
            trainer.create_optimizer()
            self._trainers[rollout_set] = trainer
            self._parts[rollout_set] = split_micro_batches(inputs, size)
        return {rollout_set: self._update(rollout_set) for rollout_set in ROLLOUT_SETS}

    def measure(self, rollout_set: str, seconds: float) -> dict[str, Any]:
        """Take updates for `seconds`."""

        def call() -> float:
            self._update(rollout_set)
            return 1.0

        return repeat(call, seconds)

    def _update(self, rollout_set: str) -> dict[str, float]:
        trainer, total_loss = self._trainers[rollout_set], 0.0
        for micro_batch in self._parts[rollout_set]:
            loss = trainer.compute_loss(trainer.model, micro_batch)
            loss.backward()
            total_loss += float(loss.detach())
        grad_norm = torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), self._max_grad_norm)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        return {"loss": total_loss, "grad_norm": float(grad_norm)}


if __name__ == "__main__":
    serve(TrlUpdate())
