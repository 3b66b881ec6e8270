"""Qwen3 (arXiv 2505.09388) as a Flax NNX module: the policy that learns and designs.

Axis letters in shape comments: B sequences, L tokens, V vocabulary, D hidden_size, N layers, H
query heads, K key/value heads, hd head_dim, F intermediate_size. In prompts that are shared: B
bundles of G prompts of P tokens and R rows of W tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.typing import DTypeLike

from training.policy.attention import (
    Attention,
    KeyValues,
    causal_attention,
    continued_attention,
    filling_attention,
    shared_prompt_attention,
    without_memory,
)
from training.policy.head import logits_of, target_scores
from training.policy.kernels import ATTENDED, EXACT, KERNELS, Implementation
from training.policy.precision import products_of

# Unrolled layers step up to a third faster on CPU; scanned layers compile in a time that does not
# grow with depth.
UNROLLED_LAYERS = 8
# Float32 logits on each device at once when `token_logprobs` chooses the chunk itself.
LOGITS_BYTES = 256 * 2**20

_ATTENDED_KEPT = jax.checkpoint_policies.save_only_these_names(ATTENDED)
KEPT: dict[bool | str, Callable[..., Any]] = {
    True: jax.checkpoint_policies.nothing_saveable,
    "all_but_attention": _ATTENDED_KEPT,
    "all_but_products": jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.dots_with_no_batch_dims_saveable, _ATTENDED_KEPT
    ),
}
"""What is kept of a layer beside its input, by the setting of what is computed again (`remat`)."""

_PASSIVE = {  # field: the values under which it changes nothing here
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "attention_dropout": (0, 0.0),
    "use_sliding_window": (False,),
    "rope_scaling": (None,),
    "num_experts": (None, 0),
    "quantization_config": (None,),
}


@dataclasses.dataclass(frozen=True)
class Qwen3Config:
    """Shape of a Qwen3 decoder, in the field names of Hugging Face's config.json.

    A `ValueError` names a field that is not as it must be.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int = 128
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    tie_word_embeddings: bool = False
    max_position_embeddings: int = 32_768
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            truth = isinstance(value, bool)
            if field.type == "bool":
                fits, allowed = truth, "true or false"
            elif field.type == "int":
                fits = isinstance(value, int) and not truth and value >= 1
                allowed = "an integer of at least 1"
            else:
                fits = isinstance(value, int | float) and not truth and value > 0
                allowed = "a number above 0"
            if not fits:
                raise ValueError(f"{field.name} is {value!r}; allowed is {allowed}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; rotary embedding needs an even number")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads is {self.num_attention_heads}; allowed is a multiple of "
                f"num_key_value_heads, which is {self.num_key_value_heads}"
            )

    @classmethod
    def from_hf(cls, fields: Mapping[str, Any]) -> Self:
        """Read the content of a config.json.

        Both spellings of the rotary base are read: `rope_theta` and `rope_parameters.rope_theta`
        (transformers 5). Fields that describe no shape, such as token ids, are passed over. A
        `ValueError` names one that is missing, or asks for what this decoder does not do.
        """
        if fields.get("model_type") != "qwen3":
            raise ValueError(f"model_type is {fields.get('model_type')!r}; allowed is 'qwen3'")
        for name, allowed in _PASSIVE.items():
            if name in fields and fields[name] not in allowed:
                raise ValueError(f"{name} is {fields[name]!r}; supported is only {allowed[-1]!r}")
        kinds = fields.get("layer_types") or ()
        if any(kind != "full_attention" for kind in kinds):
            raise ValueError(f"layer_types is {kinds!r}; supported is only 'full_attention'")
        rope = fields.get("rope_parameters") or {}
        if not isinstance(rope, Mapping) or rope.get("rope_type", "default") != "default":
            raise ValueError(f"rope_parameters is {rope!r}; supported is only rope_type 'default'")
        values = {
            field.name: fields[field.name]
            for field in dataclasses.fields(cls)
            if fields.get(field.name) is not None
        }
        required = (f for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING)
        if missing := [field.name for field in required if field.name not in values]:
            raise ValueError(f"{', '.join(missing)}: missing")
        if "rope_theta" in rope:
            values["rope_theta"] = rope["rope_theta"]
        return cls(**values)

    def to_hf(self) -> dict[str, Any]:
        """Return the content of a config.json that transformers 4 and 5 and vLLM read alike."""
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "use_sliding_window": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            **dataclasses.asdict(self),
        }


# The one table of parameters: the logical axes of each, outermost first. Shapes, shardings, initial
# values and Hugging Face's names follow from it. Kernels are stored (in, out), as Flax does.
PARAMETER_AXES: dict[str, tuple[str, ...]] = {
    "embed_tokens": ("vocab", "embed"),  # (V, D)
    "layers.input_layernorm": ("layers", "norm"),  # (N, D)
    "layers.q_proj": ("layers", "embed", "heads"),  # (N, D, H * hd)
    "layers.k_proj": ("layers", "embed", "kv_heads"),  # (N, D, K * hd)
    "layers.v_proj": ("layers", "embed", "kv_heads"),  # (N, D, K * hd)
    "layers.q_norm": ("layers", "head_dim"),  # (N, hd)
    "layers.k_norm": ("layers", "head_dim"),  # (N, hd)
    "layers.o_proj": ("layers", "heads", "embed"),  # (N, H * hd, D)
    "layers.post_attention_layernorm": ("layers", "norm"),  # (N, D)
    "layers.gate_proj": ("layers", "embed", "mlp"),  # (N, D, F)
    "layers.up_proj": ("layers", "embed", "mlp"),  # (N, D, F)
    "layers.down_proj": ("layers", "mlp", "embed"),  # (N, F, D)
    "norm": ("norm",),  # (D,)
    "lm_head": ("vocab", "embed"),  # (V, D)
}

# Logical axis -> mesh axis. Axes that are not named here are replicated.
SHARDING_RULES: dict[str, str] = {
    "batch": "fsdp",
    "embed": "fsdp",
    "vocab": "tensor",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
}


def parameter_shapes(config: Qwen3Config) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter by its dotted path; tied ones have no `lm_head`."""
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
    return {
        path: tuple(sizes[axis] for axis in axes)
        for path, axes in PARAMETER_AXES.items()
        if not (path == "lm_head" and config.tie_word_embeddings)
    }


class DecoderLayers(nnx.Module):
    """The parameters of all N decoder layers, stacked along a leading axis to be scanned."""


class Qwen3(nnx.Module):
    """A causal decoder, from token ids to hidden states; logits are a step of their own."""

    embed_tokens: nnx.Param[jax.Array]
    norm: nnx.Param[jax.Array]
    lm_head: nnx.Param[jax.Array]  # missing if tied

    def __init__(
        self,
        config: Qwen3Config,
        *,
        rngs: nnx.Rngs,
        param_dtype: DTypeLike = jnp.float32,
        dtype: DTypeLike = jnp.float32,
        remat: bool | str = False,
        attention: str = EXACT,
    ) -> None:
        """Make a decoder with random weights, normal with `initializer_range`.

        Matrix products and activations have `dtype`; norms, rotary embedding, softmax and logits
        are float32 whatever it is. Products of float32 are float32 on every device: GPUs and TPUs
        would round their factors to TF32 or bfloat16 to be faster. With `remat` each layer's input
        is kept for the backward pass, and what else `KEPT` names; the rest is computed again.
        `attention` is a kind that `training.policy.kernels.kind_for` chooses.
        """
        self.config = config
        self.dtype = jnp.dtype(dtype)
        self.remat = remat
        self.attention = attention
        self.mesh: Mesh | None = None
        self.layers = DecoderLayers()
        for path, shape in parameter_shapes(config).items():
            if path.endswith("norm"):
                value = jnp.ones(shape, param_dtype)
            else:
                normal = jax.random.normal(rngs.params(), shape, param_dtype)
                value = config.initializer_range * normal
            parent, _, name = path.rpartition(".")
            setattr(self.layers if parent else self, name, nnx.Param(value))

    def __call__(self, input_ids: jax.Array, positions: jax.Array, mask: jax.Array) -> jax.Array:
        """Return hidden states after the final norm, `dtype` (B, L, D); meaningless at padding.

        `input_ids`, int32 (B, L), may be any token at padding, where `mask`, bool (B, L), is False.
        `positions`, int32 (B, L), is each token's index in its own sequence. A token attends to the
        unmasked tokens up to itself.
        """
        attend = without_memory(causal_attention(mask, self._how))
        return self._decode(input_ids, positions, attend)[0]

    def continue_prompts(
        self,
        prompt_ids: jax.Array,
        prompt_mask: jax.Array,
        row_prompts: jax.Array,
        input_ids: jax.Array,
        positions: jax.Array,
        segments: jax.Array,
    ) -> jax.Array:
        """Return hidden states of sequences that continue prompts, each computed once.

        In each of B bundles are G prompts, `prompt_ids`, int32 (B, G, P), unmasked where
        `prompt_mask`, bool, is True, and R rows of sequences, `input_ids`, int32 (B, R, W). A row
        continues the prompt that `row_prompts`, int32 (B, R), names by its place, 0 to G - 1. A
        token attends to this prompt, and to the tokens up to itself that have its number in
        `segments`, int32 (B, R, W). `positions`, int32 (B, R, W), count from the prompt's start.

        The result, after the final norm, is `dtype` (B, R, W, D): what `__call__` gives for each
        prompt joined with each of its sequences.
        """
        shape = prompt_ids.shape
        prompt_positions = jax.lax.broadcasted_iota(jnp.int32, shape, 2)
        hidden, _ = self._decode(
            _join_bundle(prompt_ids, input_ids),
            _join_bundle(prompt_positions, positions),
            without_memory(shared_prompt_attention(prompt_mask, row_prompts, segments, self._how)),
        )
        return hidden[:, shape[1] * shape[2] :].reshape(*input_ids.shape, -1)

    @property
    def _how(self) -> Implementation:
        # A sampler may compute in float32 what is trained in bfloat16; kernels would round it.
        rounds = self.attention in KERNELS.values() and self.dtype != jnp.bfloat16
        return Implementation(EXACT if rounds else self.attention, self.mesh)

    def memory(self, batch: int, length: int) -> KeyValues:
        """Return empty room for the keys and values of `length` tokens of `batch` sequences."""
        config = self.config
        heads = (config.num_key_value_heads, length, config.head_dim)
        empty = jnp.zeros((config.num_hidden_layers, batch, *heads), self.dtype)
        return empty, empty

    def read_prompts(
        self, prompt_ids: jax.Array, prompt_mask: jax.Array
    ) -> tuple[jax.Array, KeyValues]:
        """Return the hidden state of each prompt's last token, and all keys and values.

        `prompt_ids`, int32 (B, P), are unmasked where `prompt_mask`, bool, is True: at their
        beginning. The states, after the final norm, are `dtype` (B, D).
        """
        batch, length = prompt_ids.shape
        positions = jax.lax.broadcasted_iota(jnp.int32, prompt_ids.shape, 1)
        hidden, memory = self._decode(
            prompt_ids, positions, filling_attention(prompt_mask), self.memory(batch, length)
        )
        last = prompt_mask.sum(axis=1) - 1
        return jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0], memory

    def read_token(
        self,
        token_ids: jax.Array,
        step: jax.Array,
        prompts: KeyValues,
        prompt_mask: jax.Array,
        memory: KeyValues,
    ) -> tuple[jax.Array, KeyValues]:
        """Return the hidden state of one more token of each sequence, and the memory with it.

        B * n sequences continue B prompts, those of the first prompt first. `token_ids`, int32
        (B * n,), are their tokens number `step`, int32 (), counted from 0. `prompts` is what
        `read_prompts` gave with this mask, and `memory` holds what was read since.
        """
        lengths = jnp.repeat(prompt_mask.sum(axis=1), len(token_ids) // len(prompt_mask))
        attend = continued_attention(prompts, prompt_mask, step)
        hidden, memory = self._decode(
            token_ids[:, None], (lengths + step)[:, None].astype(jnp.int32), attend, memory
        )
        return hidden[:, 0], memory

    def _decode(
        self, input_ids: jax.Array, positions: jax.Array, attend: Attention, memory: Any = None
    ) -> tuple[jax.Array, Any]:
        """Return hidden states after the final norm, `dtype` (B, L, D), and what is remembered."""
        config = self.config
        # nnx.Params are unwrapped to arrays, because lax.scan slices plain pytrees.
        layers: dict[str, jax.Array] = nnx.to_pure_dict(nnx.state(self.layers, nnx.Param))
        layer: Callable[..., tuple[jax.Array, Any]] = partial(
            _decoder_layer,
            rotation=_rotation(positions, config.head_dim, config.rope_theta),
            attend=attend,
            config=config,
            dtype=self.dtype,
            mesh=self.mesh,
        )
        if self.remat:
            layer = jax.checkpoint(layer, prevent_cse=False, policy=KEPT[self.remat])

        def body(carry: tuple[jax.Array, Any], of_layer: Any) -> tuple[tuple[jax.Array, Any], None]:
            hidden, memory = layer(*carry, *of_layer)
            return (self._constrain(hidden), memory), None

        hidden = self._constrain(self._look_up(input_ids))
        unroll = config.num_hidden_layers <= UNROLLED_LAYERS
        numbered = (layers, jnp.arange(config.num_hidden_layers))
        with products_of(self.dtype):
            (hidden, memory), _ = jax.lax.scan(body, (hidden, memory), numbered, unroll=unroll)
        return _rms_norm(hidden, self.norm[...], config.rms_norm_eps), memory

    def _look_up(self, input_ids: jax.Array) -> jax.Array:
        """Return the embeddings of tokens, `dtype` (B, L, D)."""
        hidden = self.embed_tokens[...][input_ids].astype(self.dtype)
        if self.mesh is None:
            return hidden
        # Every device looks up its part of hidden_size for all sequences, and then they exchange:
        # that takes less than gathering the table, and its gradient needs no sum over devices.
        spec = PartitionSpec(None, None, SHARDING_RULES["embed"])
        return jax.lax.with_sharding_constraint(hidden, NamedSharding(self.mesh, spec))

    def head(self) -> jax.Array:
        """Return the output embedding, `param_dtype` (V, D): `embed_tokens` itself if tied."""
        return (self.embed_tokens if self.config.tie_word_embeddings else self.lm_head)[...]

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Return the logits, float32 (..., V), of hidden states (..., D)."""
        return logits_of(hidden, self.head())

    def _constrain(self, hidden: jax.Array) -> jax.Array:
        # Without this GSPMD may split activations along hidden_size, as the fsdp axis splits the
        # kernels.
        if self.mesh is None:
            return hidden
        spec = PartitionSpec(SHARDING_RULES["batch"], None, None)
        return jax.lax.with_sharding_constraint(hidden, NamedSharding(self.mesh, spec))


def token_logprobs(
    model: Qwen3,
    input_ids: jax.Array,
    positions: jax.Array,
    mask: jax.Array,
    *,
    temperature: float | jax.Array = 1.0,
    chunk: int | None = None,
) -> jax.Array:
    """Return the log-probability of every token given what stands before it.

    `input_ids`, `positions` and `mask`, all (B, L), are as for `Qwen3.__call__`; `temperature`
    divides the logits. The head runs over `chunk` positions at a time and runs again in the
    backward pass, so that no more than B * chunk * V float32 logits exist at once. None chooses the
    largest chunk that keeps each device's within `LOGITS_BYTES`.

    The result is float32 (B, L), natural logarithm. It is 0 at padding, and at the first token of a
    sequence, before which nothing stands.

    Raises:
        ValueError: `temperature` or `chunk` is out of range.
    """
    hidden = model(input_ids, positions, mask)[:, :-1]  # the state before each target
    logprobs = target_logprobs(
        model, hidden, input_ids[:, 1:], temperature=temperature, chunk=chunk
    )
    wanted = mask[:, 1:] & mask[:, :-1]
    return jnp.pad(jnp.where(wanted, logprobs, 0), ((0, 0), (1, 0)))


def target_logprobs(
    model: Qwen3,
    hidden: jax.Array,
    targets: jax.Array,
    *,
    temperature: float | jax.Array = 1.0,
    chunk: int | None = None,
) -> jax.Array:
    """Return the log-probability, float32 (B, L), that each state gives to its target token.

    `hidden`, (B, L, D), are states after the final norm and `targets`, int32 (B, L), token ids;
    `temperature`, `chunk` and the errors are as for `token_logprobs`.
    """
    if isinstance(temperature, int | float) and not temperature > 0:
        raise ValueError(f"temperature is {temperature!r}; allowed is a number above 0")
    if chunk is None:
        batch, vocabulary = len(targets), model.config.vocab_size
        if model.mesh is not None:  # what one device has of both
            batch = max(1, batch // model.mesh.shape[SHARDING_RULES["batch"]])
            vocabulary //= model.mesh.shape[SHARDING_RULES["vocab"]]
        chunk = max(1, LOGITS_BYTES // (4 * batch * vocabulary))
    elif chunk < 1:
        raise ValueError(f"chunk is {chunk}; allowed is an integer of at least 1")
    chunk = min(chunk, targets.shape[1])
    return target_scores(hidden, model.head(), targets, temperature, chunk=chunk, mesh=model.mesh)


def make_mesh(fsdp: int, tensor: int = 1) -> Mesh:
    """Make a mesh of fsdp * tensor devices, whose layout the compiler propagates (GSPMD)."""
    if fsdp < 1 or tensor < 1 or fsdp * tensor > jax.device_count():
        raise ValueError(
            f"fsdp {fsdp} * tensor {tensor}: allowed are 1 to {jax.device_count()} devices"
        )
    devices, types = jax.devices()[: fsdp * tensor], (AxisType.Auto, AxisType.Auto)
    return jax.make_mesh((fsdp, tensor), ("fsdp", "tensor"), axis_types=types, devices=devices)


def parameter_shardings(config: Qwen3Config, mesh: Mesh) -> dict[str, NamedSharding]:
    """Say how a mesh with axes ("fsdp", "tensor") shares each parameter, by its dotted path.

    The fsdp axis splits every matrix along hidden_size, and the batch. The tensor axis splits
    heads, the inner axis of SwiGLU and the vocabulary (Megatron-LM, arXiv 1909.08053).

    Raises:
        ValueError: The mesh lacks an axis, or a parameter's axis does not divide by the mesh's.
    """
    lacking = sorted(set(SHARDING_RULES.values()) - set(mesh.axis_names))
    if lacking:
        raise ValueError(f"mesh has axes {mesh.axis_names}; it lacks {', '.join(lacking)}")
    if any(kind != AxisType.Auto for kind in mesh.axis_types):
        raise ValueError(f"mesh has axis types {mesh.axis_types}; allowed is Auto: see make_mesh")
    shardings = {}
    for path, shape in parameter_shapes(config).items():
        spec = [SHARDING_RULES.get(name) for name in PARAMETER_AXES[path]]
        for size, axis, name in zip(shape, spec, PARAMETER_AXES[path], strict=True):
            if axis is not None and size % mesh.shape[axis]:
                raise ValueError(
                    f"{path}: its axis {name} has {size} entries, which {mesh.shape[axis]} devices "
                    f"along the mesh axis {axis} cannot share equally"
                )
        # As compiled programs spell it: to a step's cache another spelling is another layout.
        used = [None if axis is None or mesh.shape[axis] == 1 else axis for axis in spec]
        while used and used[-1] is None:
            used.pop()
        shardings[path] = NamedSharding(mesh, PartitionSpec(*used))
    return shardings


def _decoder_layer(
    hidden: jax.Array,  # (B, L, D)
    memory: Any,
    weights: dict[str, jax.Array],
    number: jax.Array,
    *,
    rotation: tuple[jax.Array, jax.Array],
    attend: Attention,
    config: Qwen3Config,
    dtype: jnp.dtype,
    mesh: Mesh | None,
) -> tuple[jax.Array, Any]:
    batch, length, _ = hidden.shape
    eps = config.rms_norm_eps
    scales = {name: weights[name] for name in weights if name.endswith("norm")}
    kernels = {
        name: _gather_kernel(weights[name], PARAMETER_AXES[f"layers.{name}"][1:], dtype, mesh)
        for name in weights
        if name not in scales
    }
    join = mesh is None

    normed = _rms_norm(hidden, scales["input_layernorm"], eps)
    names = ("q_proj", "k_proj", "v_proj")
    query, key, value = (
        flat.reshape(batch, length, -1, config.head_dim)
        for flat in _project(normed, [kernels[name] for name in names], join=join)
    )
    query = _rotate(_rms_norm(query, scales["q_norm"], eps), rotation)
    key = _rotate(_rms_norm(key, scales["k_norm"], eps), rotation)
    attended, memory = attend(query, key, value, number, memory)
    hidden = hidden + attended.reshape(batch, length, -1) @ kernels["o_proj"]

    normed = _rms_norm(hidden, scales["post_attention_layernorm"], eps)
    gate, up = _project(normed, [kernels["gate_proj"], kernels["up_proj"]], join=join)
    return hidden + (jax.nn.silu(gate) * up) @ kernels["down_proj"], memory


def _gather_kernel(
    kernel: jax.Array, axes: Sequence[str], dtype: jnp.dtype, mesh: Mesh | None
) -> jax.Array:
    """Give each device along fsdp a whole kernel of a layer, `dtype`, for the time of its use.

    It is converted before it is exchanged, which halves what is sent. Its gradient is summed over
    the devices as each gets its part. (ZeRO, arXiv 1910.02054, stage 3.)
    """
    if mesh is None:
        return kernel.astype(dtype)
    spec = [SHARDING_RULES.get(name) for name in axes]
    part = NamedSharding(mesh, PartitionSpec(*spec))
    whole = [None if axis == SHARDING_RULES["embed"] else axis for axis in spec]
    param_dtype, constrain = kernel.dtype, jax.lax.with_sharding_constraint

    @jax.custom_vjp
    def gather(kernel: jax.Array) -> jax.Array:
        of_part = constrain(kernel.astype(dtype), part)
        return constrain(of_part, NamedSharding(mesh, PartitionSpec(*whole)))

    gather.defvjp(
        lambda kernel: (gather(kernel), None),
        lambda _, slope: (constrain(slope, part).astype(param_dtype),),
    )
    return gather(kernel)


def _project(inputs: jax.Array, kernels: Sequence[jax.Array], *, join: bool) -> list[jax.Array]:
    # One wide product saves a fifth of a training step on CPU; across a tensor axis the joined
    # kernel would have to be exchanged between devices, so there the products stay apart.
    if not join:
        return [inputs @ kernel for kernel in kernels]
    widths = [kernel.shape[-1] for kernel in kernels]
    bounds = [sum(widths[:count]) for count in range(1, len(widths))]
    return jnp.split(inputs @ jnp.concatenate(kernels, axis=-1), bounds, axis=-1)


def _rms_norm(inputs: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    """RMSNorm (arXiv 1910.07467) over the last axis, in float32; the inputs' dtype comes back."""
    wide = inputs.astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return (wide * inverse * scale.astype(jnp.float32)).astype(inputs.dtype)


def _rotation(positions: jax.Array, head_dim: int, theta: float) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines of RoFormer (arXiv 2104.09864), float32 (B, L, 1, hd / 2)."""
    exponents = jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim
    angles = positions[..., None, None].astype(jnp.float32) * (theta**-exponents)
    return jnp.cos(angles), jnp.sin(angles)


def _rotate(inputs: jax.Array, rotation: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Turn (B, L, heads, hd): entry i pairs with i + hd / 2, as in Hugging Face's checkpoints."""
    cosine, sine = rotation
    left, right = jnp.split(inputs.astype(jnp.float32), 2, axis=-1)
    turned = [left * cosine - right * sine, right * cosine + left * sine]
    return jnp.concatenate(turned, axis=-1).astype(inputs.dtype)


def _join_bundle(prompts: jax.Array, rows: jax.Array) -> jax.Array:
    """Put the tokens of prompts (B, G, P) before those of rows (B, R, W): (B, G * P + R * W)."""
    return jnp.concatenate([part.reshape(len(part), -1) for part in (prompts, rows)], axis=1)
