"""Supported families of dense decoders with RMSNorm, RoPE, grouped queries and SwiGLU."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True)
class Architecture:
    """The properties that distinguish one family of decoders from another."""

    class_name: str  # of transformers and vLLM, in config.json's `architectures`
    qk_norm: bool = False  # RMSNorm over each head's query and key, before they are rotated
    qkv_bias: bool = False  # biases in the projections to query, key and value
    head_dim: int | None = None  # default of config.json; None: hidden_size / query heads
    has_free_head_dim: bool = True  # False: head_dim must be hidden_size / query heads
    is_ungrouped: bool = False  # default of num_key_value_heads: one key/value head per query head
    fields: Mapping[str, Any] = field(default_factory=dict)  # constant fields of config.json
    null_fields: tuple[str, ...] = ()  # fields that config.json must contain with the value null


ARCHITECTURES: Mapping[str, Architecture] = {
    # Qwen3, arXiv 2505.09388
    "qwen3": Architecture(
        "Qwen3ForCausalLM",
        qk_norm=True,
        head_dim=128,
        fields={"attention_bias": False, "attention_dropout": 0.0, "use_sliding_window": False},
    ),
    # Qwen2 and Qwen2.5, arXiv 2412.15115
    "qwen2": Architecture(
        "Qwen2ForCausalLM",
        qkv_bias=True,
        has_free_head_dim=False,
        fields={"attention_dropout": 0.0, "use_sliding_window": False},
    ),
    # Llama 2 and 3, arXiv 2407.21783; SmolLM2, arXiv 2502.02737
    "llama": Architecture(
        "LlamaForCausalLM",
        is_ungrouped=True,
        fields={"attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False},
    ),
    # Mistral 7B from version 0.2 on; version 0.1 has a sliding window
    "mistral": Architecture(
        "MistralForCausalLM",
        fields={"attention_dropout": 0.0, "sliding_window": None},
        null_fields=("sliding_window",),
    ),
}
"""The families by the `model_type` of their config.json."""

_NEUTRAL_VALUES = {  # field: values with which the feature is off
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "attention_dropout": (0, 0.0),
    "use_sliding_window": (False,),
    "num_experts": (None, 0),
    "quantization_config": (None,),
}


@dataclass(frozen=True)
class Llama3Rope:
    """Llama 3.1's scaled rotary embedding, with the field names of config.json.

    Frequencies with a wavelength above `original_max_position_embeddings / low_freq_factor` tokens
    are divided by `factor`. Those with a wavelength below `original_max_position_embeddings /
    high_freq_factor` are unchanged. In between, the two are interpolated.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            _require_valid_field(name, float, value)
        if not self.high_freq_factor > self.low_freq_factor:
            raise ValueError(
                f"high_freq_factor must be greater than low_freq_factor = {self.low_freq_factor}, "
                f"got {self.high_freq_factor}"
            )

    @classmethod
    def from_hf(cls, name: str, rope: Mapping[str, Any]) -> Self:
        """Parse a rotary scaling in a config.json; raise a `ValueError` if it is invalid."""
        names = [item.name for item in dataclasses.fields(cls)]
        if missing_names := [name for name in names if rope.get(name) is None]:
            raise ValueError(f"{name} of type 'llama3': {', '.join(missing_names)}: missing")
        return cls(**{name: rope[name] for name in names})


@dataclass(frozen=True)
class DecoderConfig:
    """Shape of a decoder, with the field names of Hugging Face's config.json.

    Raises:
        ValueError: A field is invalid.
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
    model_type: str = "qwen3"
    rope_scaling: Llama3Rope | None = None

    def __post_init__(self) -> None:
        if self.model_type not in ARCHITECTURES:
            raise ValueError(
                f"model_type must be one of {_format_families()}, got {self.model_type!r:.300}"
            )
        if isinstance(self.rope_scaling, Mapping):  # as `dataclasses.asdict` gives it
            object.__setattr__(self, "rope_scaling", Llama3Rope(**self.rope_scaling))
        for item in dataclasses.fields(self):
            _require_valid_field(item.name, item.type, getattr(self, item.name))
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for the rotary embedding, got {self.head_dim}")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                "num_attention_heads must be a multiple of num_key_value_heads = "
                f"{self.num_key_value_heads}, got {self.num_attention_heads}"
            )
        default_head_dim = self.hidden_size / self.num_attention_heads
        if not self.architecture.has_free_head_dim and self.head_dim != default_head_dim:
            raise ValueError(
                "head_dim must be hidden_size / num_attention_heads = "
                f"{default_head_dim:g} in a {self.model_type} model, got {self.head_dim}"
            )

    @property
    def architecture(self) -> Architecture:
        """The entry of `ARCHITECTURES` for this family."""
        return ARCHITECTURES[self.model_type]

    @classmethod
    def from_hf(cls, fields: Mapping[str, Any]) -> Self:
        """Parse the content of a config.json.

        Both formats of the rotary embedding are supported: `rope_theta` with `rope_scaling`, and
        `rope_parameters` (transformers 5), for all layers or per layer type. Fields that don't
        describe the shape, such as token ids, are ignored.

        Raises:
            ValueError: A field is missing, invalid, or requires an unsupported feature.
        """
        family: Any = fields.get("model_type")
        if not isinstance(family, str) or family not in ARCHITECTURES:
            raise ValueError(f"model_type must be one of {_format_families()}, got {family!r:.100}")
        architecture = ARCHITECTURES[family]
        fields = {**fields, "rope_parameters": _rope_parameters(fields)}
        _require_supported(architecture, fields)
        defaults = {item.name: item.default for item in dataclasses.fields(cls)}
        values = {name: fields[name] for name in defaults if fields.get(name) is not None}
        if architecture.is_ungrouped and "num_attention_heads" in values:
            values.setdefault("num_key_value_heads", values["num_attention_heads"])
        required_names = [name for name in defaults if defaults[name] is dataclasses.MISSING]
        if missing_names := [name for name in required_names if name not in values]:
            raise ValueError(f"{', '.join(missing_names)}: missing")
        if "head_dim" not in values:
            values["head_dim"] = _default_head_dim(architecture, values)
        values["rope_scaling"] = None
        for name in ("rope_scaling", "rope_parameters"):
            rope = fields.get(name) or {}
            if "rope_theta" in rope:
                values["rope_theta"] = rope["rope_theta"]
            if _rope_type(rope) == "llama3":
                values["rope_scaling"] = Llama3Rope.from_hf(name, rope)
        return cls(**values)

    def to_hf(self) -> dict[str, Any]:
        """Return the content of a config.json for transformers 4, transformers 5 and vLLM."""
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": self.rope_theta}
        if self.rope_scaling is not None:
            rope |= {"rope_type": "llama3"} | dataclasses.asdict(self.rope_scaling)
        fields = dataclasses.asdict(self)
        del fields["model_type"], fields["rope_scaling"]
        if self.rope_scaling is not None:
            fields["rope_scaling"] = rope
        return {
            "architectures": [self.architecture.class_name],
            "model_type": self.model_type,
            "hidden_act": "silu",
            **self.architecture.fields,
            "rope_parameters": rope,
            **fields,
        }


def _format_families() -> str:
    return ", ".join(repr(name) for name in ARCHITECTURES)


def _require_valid_field(name: str, kind: Any, value: Any) -> None:
    """Raise a `ValueError` if a field's value does not match its type."""
    is_bool = isinstance(value, bool)
    if kind is bool:
        is_valid, allowed = is_bool, "true or false"
    elif kind is int:
        is_valid = isinstance(value, int) and not is_bool and value >= 1
        allowed = "an integer of at least 1"
    elif kind is float:
        is_valid = isinstance(value, int | float) and not is_bool and 0 < value < math.inf
        allowed = "a finite number above 0"
    else:
        return
    if not is_valid:
        raise ValueError(f"{name} must be {allowed}, got {value!r:.300}")


def _require_supported(architecture: Architecture, fields: Mapping[str, Any]) -> None:
    for name, allowed in _NEUTRAL_VALUES.items():
        if name in fields and fields[name] not in allowed:
            raise ValueError(f"{name} must be {allowed[-1]!r}, got {fields[name]!r:.300}")
    for name in architecture.null_fields:
        if fields.get(name, "missing") is not None:
            value = repr(fields[name]) if name in fields else "no such field"
            raise ValueError(f"{name} must be an explicit null, got {value:.300}")
    layer_types = fields.get("layer_types") or []
    if not isinstance(layer_types, list | tuple) or set(map(str, layer_types)) - {"full_attention"}:
        raise ValueError(f"layer_types must be 'full_attention' only, got {layer_types!r:.300}")
    for name in ("rope_scaling", "rope_parameters"):
        rope = fields.get(name)
        is_whole = isinstance(rope, Mapping) and rope.get("partial_rotary_factor") in (None, 1, 1.0)
        if rope and not (is_whole and _rope_type(rope) in ("default", "llama3")):
            raise ValueError(
                f"{name} must have rope_type 'default' or 'llama3' and rotate whole heads, got "
                f"{rope!r:.300}"
            )


def _rope_parameters(fields: Mapping[str, Any]) -> Any:
    """Return `rope_parameters`, or its entry for full attention if it has one per layer type."""
    rope = fields.get("rope_parameters")
    if isinstance(rope, Mapping) and any(isinstance(value, Mapping) for value in rope.values()):
        if "full_attention" not in rope:
            raise ValueError(
                f"rope_parameters must have the layer type 'full_attention', got {rope!r:.300}"
            )
        return rope["full_attention"]
    return rope


def _rope_type(rope: Mapping[str, Any]) -> Any:
    return rope.get("rope_type", rope.get("type", "default"))


def _default_head_dim(architecture: Architecture, values: Mapping[str, Any]) -> Any:
    """Return the default of head_dim; raise a `ValueError` if it is not an integer."""
    if architecture.head_dim is not None:
        return architecture.head_dim
    width, heads = values["hidden_size"], values["num_attention_heads"]
    if not isinstance(width, int) or not isinstance(heads, int) or heads < 1 or width % heads:
        raise ValueError(
            "hidden_size must be a multiple of num_attention_heads = "
            f"{heads!r:.300} if head_dim is missing, got {width!r:.300}"
        )
    return width // heads
