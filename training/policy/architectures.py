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
    free_head_dim: bool = True  # False: head_dim must be that quotient
    ungrouped: bool = False  # default of num_key_value_heads: one key/value head per query head
    fields: Mapping[str, Any] = field(default_factory=dict)  # written in every config.json
    none: tuple[str, ...] = ()  # fields that must be present and null


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
        free_head_dim=False,
        fields={"attention_dropout": 0.0, "use_sliding_window": False},
    ),
    # Llama 2 and 3, arXiv 2407.21783; SmolLM2, arXiv 2502.02737
    "llama": Architecture(
        "LlamaForCausalLM",
        ungrouped=True,
        fields={"attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False},
    ),
    # Mistral 7B from version 0.2 on; version 0.1 has a sliding window
    "mistral": Architecture(
        "MistralForCausalLM",
        fields={"attention_dropout": 0.0, "sliding_window": None},
        none=("sliding_window",),
    ),
}
"""The families by the `model_type` of their config.json."""

_NEUTRAL_VALUES = {  # field: the values that leave the computation unchanged
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
        for one in dataclasses.fields(self):
            _require_valid_field(one.name, float, getattr(self, one.name))
        if not self.high_freq_factor > self.low_freq_factor:
            raise ValueError(
                f"high_freq_factor is {self.high_freq_factor}; it must be more than "
                f"low_freq_factor, which is {self.low_freq_factor}"
            )

    @classmethod
    def from_hf(cls, name: str, rope: Mapping[str, Any]) -> Self:
        """Parse a rotary scaling in a config.json; raise a `ValueError` if it is invalid."""
        names = [one.name for one in dataclasses.fields(cls)]
        if missing := [name for name in names if rope.get(name) is None]:
            raise ValueError(f"{name} of type 'llama3': {', '.join(missing)}: missing")
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
                f"model_type is {self.model_type!r:.300}; it must be one of {_format_families()}"
            )
        if isinstance(self.rope_scaling, Mapping):  # as `dataclasses.asdict` gives it
            object.__setattr__(self, "rope_scaling", Llama3Rope(**self.rope_scaling))
        for one in dataclasses.fields(self):
            _require_valid_field(one.name, one.type, getattr(self, one.name))
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; rotary embedding needs an even number")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads is {self.num_attention_heads}; it must be a multiple of "
                f"num_key_value_heads, which is {self.num_key_value_heads}"
            )
        quotient = self.hidden_size / self.num_attention_heads
        if not self.architecture.free_head_dim and self.head_dim != quotient:
            raise ValueError(
                f"head_dim is {self.head_dim}; in a {self.model_type} model it must be hidden_size "
                f"/ num_attention_heads, which is {quotient:g}"
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
            raise ValueError(
                f"model_type is {family!r:.100}; it must be one of {_format_families()}"
            )
        architecture = ARCHITECTURES[family]
        fields = {**fields, "rope_parameters": _rope_parameters(fields)}
        _require_supported(architecture, fields)
        values = {
            one.name: fields[one.name]
            for one in dataclasses.fields(cls)
            if fields.get(one.name) is not None
        }
        required = [one for one in dataclasses.fields(cls) if one.default is dataclasses.MISSING]
        if architecture.ungrouped and "num_attention_heads" in values:
            values.setdefault("num_key_value_heads", values["num_attention_heads"])
        if missing := [one.name for one in required if one.name not in values]:
            raise ValueError(f"{', '.join(missing)}: missing")
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
        written = dataclasses.asdict(self)
        del written["model_type"], written["rope_scaling"]
        if self.rope_scaling is not None:
            written["rope_scaling"] = rope
        return {
            "architectures": [self.architecture.class_name],
            "model_type": self.model_type,
            "hidden_act": "silu",
            **self.architecture.fields,
            "rope_parameters": rope,
            **written,
        }


def _format_families() -> str:
    return ", ".join(repr(name) for name in ARCHITECTURES)


def _require_valid_field(name: str, kind: Any, value: Any) -> None:
    """Raise a `ValueError` if a field of `DecoderConfig` does not match its type."""
    truth = isinstance(value, bool)
    if kind is bool:
        fits, allowed = truth, "true or false"
    elif kind is int:
        fits = isinstance(value, int) and not truth and value >= 1
        allowed = "an integer of at least 1"
    elif kind is float:
        fits = isinstance(value, int | float) and not truth and 0 < value < math.inf
        allowed = "a finite number above 0"
    else:
        return
    if not fits:
        raise ValueError(f"{name} is {value!r:.300}; it must be {allowed}")


def _require_supported(architecture: Architecture, fields: Mapping[str, Any]) -> None:
    for name, allowed in _NEUTRAL_VALUES.items():
        if name in fields and fields[name] not in allowed:
            raise ValueError(f"{name} is {fields[name]!r:.300}; supported is only {allowed[-1]!r}")
    for name in architecture.none:
        if fields.get(name, "missing") is not None:
            raise ValueError(
                f"{name} is {fields.get(name)!r:.300}; supported is only null, written out"
            )
    kinds = fields.get("layer_types") or []
    if not isinstance(kinds, list | tuple) or any(kind != "full_attention" for kind in kinds):
        raise ValueError(f"layer_types is {kinds!r:.300}; supported is only 'full_attention'")
    for name in ("rope_scaling", "rope_parameters"):
        rope = fields.get(name)
        whole = isinstance(rope, Mapping) and rope.get("partial_rotary_factor") in (None, 1, 1.0)
        if rope and not (whole and _rope_type(rope) in ("default", "llama3")):
            raise ValueError(
                f"{name} is {rope!r:.300}; supported are only rope_type 'default' and 'llama3', of "
                "whole heads"
            )


def _rope_parameters(fields: Mapping[str, Any]) -> Any:
    """Return `rope_parameters`, or its entry for full attention if it is given per layer type."""
    rope = fields.get("rope_parameters")
    if isinstance(rope, Mapping) and any(isinstance(value, Mapping) for value in rope.values()):
        if "full_attention" not in rope:
            raise ValueError(
                f"rope_parameters is {rope!r:.300}; the only layer type must be 'full_attention'"
            )
        return rope["full_attention"]
    return rope


def _rope_type(rope: Mapping[str, Any]) -> Any:
    return rope.get("rope_type", rope.get("type", "default"))


def _default_head_dim(architecture: Architecture, values: Mapping[str, Any]) -> Any:
    """Return the default of head_dim; raise a `ValueError` if it is not an integer."""
    if architecture.head_dim is not None:
        return architecture.head_dim
    hidden, heads = values["hidden_size"], values["num_attention_heads"]
    if not isinstance(hidden, int) or not isinstance(heads, int) or heads < 1 or hidden % heads:
        raise ValueError(
            f"hidden_size is {hidden!r:.300}; without head_dim it must be a multiple of "
            f"num_attention_heads, which is {heads!r:.300}"
        )
    return hidden // heads
