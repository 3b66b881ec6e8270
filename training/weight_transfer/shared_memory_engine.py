"""Weights to vLLM's workers through files in memory: the workers' side.

`worker_extension.py` registers the engine with vLLM's factory wherever a worker starts. This module
is imported there, so it imports nothing of JAX.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)


@dataclass
class InitInfo(WeightTransferInitInfo):
    """Nothing has to be agreed upon."""


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """A file, and the tensors that stand in it one after another; all have one dtype."""

    path: str
    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]


class SharedMemoryEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """Loads tensors from a file that the trainer wrote and removes afterwards."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Prepare for updates; there is nothing to prepare."""

    def start_weight_update(self) -> None:
        """Prepare for all weights to be replaced, in any number of buckets."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load one bucket; vLLM's own method waits for an accelerator, which a CPU has not."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Load the tensors of a file."""
        model: Any = self.model
        model.load_weights(_tensors_of(update_info))

    def finish_weight_update(self) -> None:
        """Let the new weights take the place of the old ones."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Let go of what connects to the trainer; there is nothing."""


def _tensors_of(told: UpdateInfo) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield copies: vLLM keeps tensors of a layer until it has all, and the file is removed."""
    dtype = getattr(torch, told.dtype_names[0])
    counts = [torch.Size(shape).numel() for shape in told.shapes]
    memory = torch.from_file(told.path, shared=True, size=sum(counts), dtype=dtype)
    for name, shape, values in zip(told.names, told.shapes, memory.split(counts), strict=True):
        yield name, values.reshape(shape).clone()
