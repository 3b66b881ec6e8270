"""Adapters as files, in the format of Hugging Face's PEFT, which vLLM reads, too.

`adapter_config.json` says rank, alpha and targets; `adapter_model.safetensors` holds the factors of
each layer, transposed as Hugging Face stores kernels. They belong to the frozen weights that they
were learned beside: the file names these by their version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx
from jax.sharding import NamedSharding
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from training.errors import UserError
from training.policy.parameters import LORA_A, LORA_B
from training.policy.whole_folders import replaced, restore
from training.processes import local_copy, place
from training.schema import Lora

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_BASE = "base_weights"  # the only entry of the metadata: of several the order would be random


def adapter_tensors(adapters: nnx.State) -> dict[str, np.ndarray]:
    """Return the factors of each layer by PEFT's names, float32 (rank, in) and (out, rank).

    Several processes ask for them together.
    """
    tensors = {}
    for path, leaf in nnx.to_flat_state(adapters):
        stacked = np.asarray(local_copy(leaf[...]))
        for layer, value in enumerate(stacked):
            tensors[_name(str(path[-1]), layer)] = np.ascontiguousarray(value.T)
    return tensors


def save_adapters(
    tensors: dict[str, np.ndarray], lora: Lora, folder: Path, *, base: str, base_name: str
) -> None:
    """Write a folder of adapters that PEFT and vLLM load; it appears whole.

    `base` is the version of the frozen weights, and `base_name` the model that they came from.
    """
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "target_modules": list(lora.targets),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    with replaced(folder) as partial:
        text = json.dumps(config, indent=2) + "\n"
        (partial / CONFIG_FILE).write_text(text, encoding="utf-8")
        try:
            save_file(tensors, partial / WEIGHTS_FILE, metadata={_BASE: base})
        except SafetensorError as error:  # such as a full disk
            raise UserError(f"{folder / WEIGHTS_FILE}: can't be written: {error}") from error


def load_adapters(folder: Path, like: nnx.State) -> tuple[nnx.State, str]:
    """Read the adapters of a folder, and the version of the frozen weights that they belong to.

    They are placed as those of `like`, whose shapes they have.

    Raises:
        UserError: The folder is missing or can't be read, or holds other factors.
    """
    restore(folder)
    file = folder / WEIGHTS_FILE
    try:
        with safe_open(file, framework="numpy") as opened:
            base = (opened.metadata() or {}).get(_BASE, "")
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file}: can't be read: {error}") from error

    def read(path: tuple[Any, ...], leaf: nnx.Variable) -> nnx.Variable:
        names = [_name(str(path[-1]), layer) for layer in range(len(leaf[...]))]
        shape = leaf.shape[:0:-1]
        for name in names:
            found = None if name not in tensors else tensors[name].shape
            if found != shape:
                raise UserError(f"{file}: {name} has shape {found}; allowed is {shape}")
        value = np.stack([tensors[name].T for name in names]).astype(np.float32)
        if not np.isfinite(value).all():
            raise UserError(f"{file}: {names[0]} or its other layers aren't finite numbers")
        found_at = leaf[...].sharding
        sharding = found_at if isinstance(found_at, NamedSharding) else None
        return leaf.replace(place(value, sharding))

    found = nnx.map_state(read, like)
    wanted = {
        _name(str(path[-1]), layer)
        for path, leaf in nnx.to_flat_state(like)
        for layer in range(len(leaf[...]))
    }
    if others := sorted(tensors.keys() - wanted):
        raise UserError(f"{file}: holds {others[0]}, which model.lora has no place for")
    return found, base


def _name(factor: str, layer: int) -> str:
    """PEFT's name of a factor in one layer, such as that of `q_proj_lora_a`."""
    target = factor.removesuffix(LORA_A).removesuffix(LORA_B)
    block = "self_attn" if target in ("q_proj", "k_proj", "v_proj", "o_proj") else "mlp"
    letter = "A" if factor.endswith(LORA_A) else "B"
    return f"base_model.model.model.layers.{layer}.{block}.{target}.lora_{letter}.weight"
