"""The section `model`: the policy, its precision and its devices."""

from typing import Literal, get_args

from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from training.schema.section import Precision, Section

Projection = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class ScratchModelConfig(Section):
    """The shape of a new Qwen3 decoder with random weights and its own tokenizer."""

    vocab_size: PositiveInt = Field(512, description="entries of the byte-level BPE vocabulary")
    hidden_size: PositiveInt = Field(160, description="width of the residual stream")
    intermediate_size: PositiveInt = Field(448, description="hidden units of each MLP")
    num_hidden_layers: PositiveInt = Field(4, description="decoder layers")
    num_attention_heads: PositiveInt = Field(5, description="query heads of each layer")
    num_key_value_heads: PositiveInt = Field(5, description="key and value heads of each layer")
    head_dim: PositiveInt = Field(32, description="width of each head")


class MeshConfig(Section):
    """The number of devices that share the trainer's weights, per axis."""

    fsdp: PositiveInt = Field(1, description="devices that split every weight matrix and the batch")
    tensor: PositiveInt = Field(1, description="devices that split heads and hidden units")


class LoraConfig(Section):
    """Low-rank adapters, trained while the weights stay frozen (Hu et al. 2021)."""

    rank: PositiveInt = Field(16, description="columns of each factor")
    alpha: PositiveFloat = Field(32.0, description="adapters are multiplied by alpha / rank")
    targets: tuple[Projection, ...] = Field(
        get_args(Projection), min_length=1, description="kernels of every layer with an adapter"
    )

    @field_validator("targets")
    @classmethod
    def _check_distinct(cls, value: tuple[Projection, ...]) -> tuple[Projection, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"must list each kernel once, got {list(value)}")
        return value

    @property
    def scale(self) -> float:
        """The scale of the product of an adapter's factors."""
        return self.alpha / self.rank


class ModelConfig(Section):
    """The policy: a pretrained Hugging Face model, or a small one made from scratch."""

    pretrained: str | None = Field(
        None, description="local folder, hub name or jaxlake-base; null: from scratch"
    )
    scratch: ScratchModelConfig = ScratchModelConfig()
    dtype: Precision = Field("float32", description="dtype of activations; weights stay float32")
    remat: bool | Literal["all_but_attention"] = Field(
        False,
        description="recompute activations, which is slower and needs less memory; "
        "all_but_attention keeps the outputs of attention",
    )
    attention: Literal["auto", "blockwise"] = Field(
        "auto",
        description="auto: a Triton kernel for bfloat16 on NVIDIA GPUs, otherwise exact attention; "
        "blockwise: exact attention, block by block, on any device",
    )
    mesh: MeshConfig = MeshConfig()
    lora: LoraConfig | None = Field(None, description="null: train all weights")
