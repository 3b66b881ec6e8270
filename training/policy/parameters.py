"""The parameters of a decoder: axes, shapes and shardings.

Axis letters: V vocabulary, D hidden_size, N layers, H query heads, K key/value heads, hd head_dim,
F intermediate_size, r rank of adapters.
"""

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from training.errors import UserError
from training.policy.architectures import DecoderConfig
from training.schema import LoraConfig

# The logical axes of each parameter, outermost first. Shapes, shardings, initial values and Hugging
# Face's names are derived from this table. Kernels are stored (in, out), as in Flax.
PARAMETER_AXES: dict[str, tuple[str, ...]] = {
    "embed_tokens": ("vocab", "embed"),  # (V, D)
    "layers.input_layernorm": ("layers", "norm"),  # (N, D)
    "layers.q_proj": ("layers", "embed", "heads"),  # (N, D, H * hd)
    "layers.k_proj": ("layers", "embed", "kv_heads"),  # (N, D, K * hd)
    "layers.v_proj": ("layers", "embed", "kv_heads"),  # (N, D, K * hd)
    "layers.q_proj_bias": ("layers", "heads"),  # (N, H * hd), if the family has biases
    "layers.k_proj_bias": ("layers", "kv_heads"),  # (N, K * hd)
    "layers.v_proj_bias": ("layers", "kv_heads"),  # (N, K * hd)
    "layers.q_norm": ("layers", "head_dim"),  # (N, hd), if the family has norms of q and k
    "layers.k_norm": ("layers", "head_dim"),  # (N, hd)
    "layers.o_proj": ("layers", "heads", "embed"),  # (N, H * hd, D)
    "layers.post_attention_layernorm": ("layers", "norm"),  # (N, D)
    "layers.gate_proj": ("layers", "embed", "mlp"),  # (N, D, F)
    "layers.up_proj": ("layers", "embed", "mlp"),  # (N, D, F)
    "layers.down_proj": ("layers", "mlp", "embed"),  # (N, F, D)
    "norm": ("norm",),  # (D,)
    "lm_head": ("vocab", "embed"),  # (V, D), if it is not tied
}

LORA_A, LORA_B = "_lora_a", "_lora_b"
"""Suffixes of the names of an adapter's factors, after the name of the kernel."""

# Logical axis -> mesh axis. All other axes are replicated.
SHARDING_RULES: dict[str, str] = {
    "batch": "fsdp",
    "embed": "fsdp",
    "vocab": "tensor",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
}


def parameter_axes(
    config: DecoderConfig, lora: LoraConfig | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the logical axes of each parameter, outermost first, by its dotted path.

    Tied models have no `lm_head`. The family determines biases and the norms of queries and keys.

    Args:
        config: Shape of the decoder.
        lora: If given, each of its targets has two more parameters: A, (N, in, r), and B,
            (N, r, out).
    """
    family = config.architecture
    absent_paths = {"lm_head"} if config.tie_word_embeddings else set()
    if not family.qk_norm:
        absent_paths |= {"layers.q_norm", "layers.k_norm"}
    if not family.qkv_bias:
        absent_paths |= {path for path in PARAMETER_AXES if path.endswith("_bias")}
    parameters = {path: axes for path, axes in PARAMETER_AXES.items() if path not in absent_paths}
    for target in () if lora is None else lora.targets:
        layers, inputs, outputs = PARAMETER_AXES[f"layers.{target}"]
        parameters[f"layers.{target}{LORA_A}"] = (layers, inputs, "rank")
        parameters[f"layers.{target}{LORA_B}"] = (layers, "rank", outputs)
    return parameters


def parameter_shapes(
    config: DecoderConfig, lora: LoraConfig | None = None
) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter by its dotted path; see `parameter_axes`."""
    sizes = {
        "vocab": config.vocab_size,
        "embed": config.hidden_size,
        "norm": config.hidden_size,
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads * config.head_dim,
        "kv_heads": config.num_key_value_heads * config.head_dim,
        "head_dim": config.head_dim,
        "mlp": config.intermediate_size,
    }
    if lora is not None:
        sizes["rank"] = lora.rank
    return {
        path: tuple(sizes[axis] for axis in axes)
        for path, axes in parameter_axes(config, lora).items()
    }


def make_mesh(fsdp: int, tensor: int = 1) -> Mesh:
    """Return a mesh of fsdp * tensor devices with automatic sharding propagation (GSPMD)."""
    devices, types = jax.devices()[: fsdp * tensor], (AxisType.Auto, AxisType.Auto)
    return jax.make_mesh((fsdp, tensor), ("fsdp", "tensor"), axis_types=types, devices=devices)


class MeshError(UserError, ValueError):
    """A model's weights can't be split equally over a mesh."""


def require_divisible_weights(
    config: DecoderConfig, *, fsdp: int, tensor: int, lora: LoraConfig | None = None
) -> None:
    """Raise a `MeshError` if an axis of a parameter is not a multiple of its mesh axis."""
    sizes = {"fsdp": fsdp, "tensor": tensor}
    shapes = parameter_shapes(config, lora)
    for path, axes in parameter_axes(config, lora).items():
        for size, name in zip(shapes[path], axes, strict=True):
            axis = SHARDING_RULES.get(name)
            if axis is not None and size % sizes[axis]:
                raise MeshError(
                    f"model.mesh.{axis} must divide {size}, the size of {path} along its axis "
                    f"{name}, got {sizes[axis]}"
                )


def parameter_shardings(
    config: DecoderConfig, mesh: Mesh, lora: LoraConfig | None = None
) -> dict[str, NamedSharding]:
    """Return the sharding of each parameter over a mesh, by its dotted path.

    The fsdp axis splits every matrix along hidden_size, and the batch. The tensor axis splits
    heads, the inner axis of SwiGLU and the vocabulary (Megatron-LM, arXiv 1909.08053). Factors of
    adapters are split like their kernels, but not along their rank.

    Raises:
        MeshError: An axis of a parameter is not a multiple of its mesh axis.
    """
    fsdp, tensor = mesh.shape["fsdp"], mesh.shape["tensor"]
    require_divisible_weights(config, fsdp=fsdp, tensor=tensor, lora=lora)
    shardings = {}
    for path, axes in parameter_axes(config, lora).items():
        spec = [SHARDING_RULES.get(name) for name in axes]
        # Compiled programs return specs without axes of size 1 and without trailing Nones. Equal
        # specs avoid another compilation.
        canonical_spec = [None if axis is None or mesh.shape[axis] == 1 else axis for axis in spec]
        while canonical_spec and canonical_spec[-1] is None:
            canonical_spec.pop()
        shardings[path] = NamedSharding(mesh, PartitionSpec(*canonical_spec))
    return shardings
