"""LoRA (Hu et al. 2021, arXiv 2106.09685): low-rank adapters for frozen kernels.

A kernel W, (in, out), acts as W + alpha / rank * A B, with A (in, rank) and B (rank, out). Adapters
are saved in the format of Hugging Face's PEFT.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from training.errors import UserError
from training.policy.decoder import Decoder
from training.policy.folder_checks import ADAPTER_FILE
from training.policy.kernels import matmul_precision
from training.policy.model_folders import replace_folder, restore_folder
from training.policy.parameters import LORA_A, LORA_B, parameter_shapes, parameter_shardings
from training.processes import local_copy, put_on_devices
from training.schema import LoraConfig

_WEIGHTS_FILE = "adapter_model.safetensors"
_BASE = "base_weights"  # the only metadata key, because safetensors orders several keys randomly


class Adapter(nnx.Param[jax.Array]):
    """A factor of an adapter, float32: (N, in, rank) or (N, rank, out)."""


def add_adapters(model: Decoder, lora: LoraConfig, *, seed: int) -> None:
    """Add adapters to a decoder in place, without changing its output.

    A is uniform within ±1 / sqrt(in), as in Hugging Face's PEFT, and depends on the seed and the
    kernel's name; B is 0. `parameter_shardings` defines their placement.
    """
    shapes = parameter_shapes(model.config, lora)
    shardings = {} if model.mesh is None else parameter_shardings(model.config, model.mesh, lora)
    for target in lora.targets:
        for suffix in (LORA_A, LORA_B):
            path = f"layers.{target}{suffix}"
            value = np.zeros(shapes[path], np.float32)
            if suffix == LORA_A:
                bound = shapes[path][1] ** -0.5
                rng = np.random.default_rng([seed, *target.encode()])
                value = rng.uniform(-bound, bound, shapes[path]).astype(np.float32)
            setattr(
                model.layers, target + suffix, Adapter(put_on_devices(value, shardings.get(path)))
            )
    model.lora = lora


def remove_adapters(model: Decoder) -> None:
    """Remove the adapters from a decoder in place, leaving the frozen weights."""
    for target in () if model.lora is None else model.lora.targets:
        for suffix in (LORA_A, LORA_B):
            delattr(model.layers, target + suffix)
    model.lora = None


def get_trainable(params: Any) -> Any:
    """Return the trainable weights of a decoder: its adapters, or all weights without LoRA."""
    adapters = nnx.filter_state(params, Adapter) if isinstance(params, nnx.State) else None
    return adapters or params


def replace_trainable(params: Any, trainable: Any) -> Any:
    """Return the weights with their trainable part replaced.

    `trainable` is a pytree like `get_trainable(params)`.
    """
    return trainable if get_trainable(params) is params else nnx.merge_state(params, trainable)


def get_frozen(params: Any) -> Any:
    """Return the frozen weights of a decoder with adapters, or None without LoRA."""
    if get_trainable(params) is params:
        return None
    return nnx.filter_state(params, nnx.Not(Adapter))


def merge_factors(
    kernel: jax.Array, factor_a: jax.Array, factor_b: jax.Array, scale: float | jax.Array
) -> jax.Array:
    """Return the kernel (in, out) plus `scale * factor_a @ factor_b`, in the kernel's dtype.

    `factor_a` is (in, rank), `factor_b` is (rank, out), and the scale is alpha / rank.
    """
    with matmul_precision(jnp.float32):
        merged_kernel = kernel.astype(jnp.float32) + scale * (factor_a @ factor_b)
    return merged_kernel.astype(kernel.dtype)


def adapter_tensors(adapters: nnx.State) -> dict[str, np.ndarray]:
    """Return the factors of each layer by PEFT's names, float32 (rank, in) and (out, rank).

    In a run of several processes, all of them must call this together.
    """
    tensors = {}
    for path, leaf in nnx.to_flat_state(adapters):
        factor = np.asarray(local_copy(leaf[...]))
        for layer, value in enumerate(factor):
            tensors[_peft_name(str(path[-1]), layer)] = np.ascontiguousarray(value.T)
    return tensors


def save_adapters(
    tensors: dict[str, np.ndarray], lora: LoraConfig, folder: Path, *, base: str, base_name: str
) -> None:
    """Write a folder of adapters for PEFT and vLLM, atomically.

    `base` is the version of the frozen weights, and `base_name` the name of their model.

    Raises:
        UserError: The weights can't be written.
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
    with replace_folder(folder) as partial_folder:
        text = json.dumps(config, indent=2) + "\n"
        (partial_folder / ADAPTER_FILE).write_text(text, encoding="utf-8")
        try:
            save_file(tensors, partial_folder / _WEIGHTS_FILE, metadata={_BASE: base})
        except SafetensorError as error:  # such as a full disk
            raise UserError(f"{folder / _WEIGHTS_FILE}: can't be written: {error}") from error


def load_adapters(folder: Path, template: nnx.State) -> tuple[nnx.State, str]:
    """Read the adapters of a folder and the version of their frozen weights.

    `template` holds adapters with the expected names, shapes and placement.

    Raises:
        UserError: The folder is missing or unreadable, or its factors don't match `template`.
    """
    restore_folder(folder)
    file = folder / _WEIGHTS_FILE
    try:
        with safe_open(file, framework="numpy") as handle:
            base_version = (handle.metadata() or {}).get(_BASE, "")
            tensors = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file}: can't be read: {error}") from error

    def read_factor(path: tuple[Any, ...], leaf: nnx.Variable) -> nnx.Variable:
        names = [_peft_name(str(path[-1]), layer) for layer in range(len(leaf[...]))]
        shape = leaf.shape[:0:-1]
        for name in names:
            actual_shape = None if name not in tensors else tensors[name].shape
            if actual_shape != shape:
                raise UserError(f"{file}: the shape of {name} must be {shape}, got {actual_shape}")
        value = np.stack([tensors[name].T for name in names]).astype(np.float32)
        if not np.isfinite(value).all():
            raise UserError(f"{file}: {names[0]} must be finite in all layers")
        sharding = leaf[...].sharding
        mesh_sharding = sharding if isinstance(sharding, NamedSharding) else None
        return leaf.replace(put_on_devices(value, mesh_sharding))

    adapters = nnx.map_state(read_factor, template)
    expected_names = {
        _peft_name(str(path[-1]), layer)
        for path, leaf in nnx.to_flat_state(template)
        for layer in range(len(leaf[...]))
    }
    if unexpected_names := sorted(tensors.keys() - expected_names):
        raise UserError(f"{file}: contains {unexpected_names[0]}, which is not in model.lora")
    return adapters, base_version


def _peft_name(factor: str, layer: int) -> str:
    """Return PEFT's name of a factor, such as `q_proj_lora_a`, in one layer."""
    target = factor.removesuffix(LORA_A).removesuffix(LORA_B)
    block = "self_attn" if target in ("q_proj", "k_proj", "v_proj", "o_proj") else "mlp"
    letter = "A" if factor.endswith(LORA_A) else "B"
    return f"base_model.model.model.layers.{layer}.{block}.{target}.lora_{letter}.weight"
