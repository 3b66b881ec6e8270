"""The sections of a run's configuration, but the engineer's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from engineer import Bounds, LakeConfiguration

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[int, Field(gt=0)]
Precision = Literal["float32", "bfloat16"]


class Section(BaseModel):
    """A part of the configuration: frozen, and strict about names it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Scratch(Section):
    """The shape of a Qwen3 decoder that is made here, with random weights and its own tokenizer."""

    vocab_size: Positive = Field(512, description="entries of the byte-level BPE vocabulary")
    hidden_size: Positive = 160
    intermediate_size: Positive = 448
    num_hidden_layers: Positive = 4
    num_attention_heads: Positive = 5
    num_key_value_heads: Positive = 5
    head_dim: Positive = 32


class Mesh(Section):
    """How many devices share the trainer's weights, along each axis."""

    fsdp: Positive = Field(1, description="devices that split every weight matrix and the batch")
    tensor: Positive = Field(1, description="devices that split heads and hidden units")


class Model(Section):
    """The policy: a pretrained Hugging Face model, or a small one made from scratch."""

    pretrained: str | None = Field(None, description="hub name or local folder; null: from scratch")
    scratch: Scratch = Scratch()
    param_dtype: Precision = Field("float32", description="dtype of weights and optimizer state")
    dtype: Precision = Field("float32", description="dtype of activations")
    remat: bool = Field(False, description="recompute each layer's activations going backward")
    mesh: Mesh = Mesh()


class Environment(Section):
    """The lake: how many agents walk it, what it is like at first, what the engineer may ask."""

    num_agents: Annotated[int, Field(ge=2, le=5)] = 2
    initial: LakeConfiguration = Field(description="the configuration of the first round")
    bounds: Bounds = Field(description="what every later configuration must keep to")
    max_candidates: Positive = Field(
        200_000, description="boards drawn for one map size before it is said what can't be made"
    )


class Prompt(Section):
    """How a board is put into words, and how many tokens an answer may take."""

    style: Literal["compact", "full"] = "compact"
    chat: bool = Field(False, description="wrap the prompt in the tokenizer's chat template")
    thinking: bool = Field(False, description="passed to the chat template as enable_thinking")
    max_tokens: Positive = Field(48, description="tokens a completion may have")
    max_steps: Positive = Field(64, description="moves an agent's plan may have")


class Sampling(Section):
    """The vLLM engine that writes completions."""

    temperature: Annotated[float, Field(gt=0.0)] = 1.0
    max_model_len: Positive = 1024
    max_num_seqs: Positive = 256
    max_num_batched_tokens: Positive = 8192
    dtype: Precision = "float32"
    enforce_eager: bool = Field(True, description="false: capture graphs (accelerators)")
    gpu_memory_utilization: Share = Field(0.45, description="vLLM's share of each accelerator")
    tensor_parallel_size: Positive = 1
    cpu_kv_cache_gib: Positive = Field(1, description="key-value cache, GiB (CPU only)")
    sync_tolerance: Annotated[float, Field(gt=0.0)] = Field(
        1e-3, description="largest |vLLM - trainer| log-probability, nats, allowed after a sync"
    )
    sync_sequences: Positive = Field(4, description="sequences compared after each sync")


class WarmStart(Section):
    """Supervised steps on solver plans, and on configurations written by the rule engineer."""

    steps: Positive = 600
    instances: Positive = Field(16_384, description="solved boards to draw batches from")
    batch_size: Positive = 64
    engineer_batch_size: Annotated[int, Field(ge=0)] = Field(
        8, description="contexts with target configurations in an engineer's step; 0: none"
    )
    engineer_every: Positive = Field(4, description="every how many steps one is an engineer's")
    learning_rate: Annotated[float, Field(gt=0.0)] = 2e-3
    warmup_steps: Annotated[int, Field(ge=0)] = 50
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.01
    checkpoint_every: Annotated[int, Field(gt=0, multiple_of=10)] = Field(
        100, description="steps between checkpoints; metrics are written every 10 steps"
    )


class Grpo(Section):
    """Group Relative Policy Optimization (Shao et al. 2024), with DAPO's token mean."""

    prompts_per_update: Positive = 32
    completions: Annotated[int, Field(ge=2)] = Field(8, description="completions a prompt")
    minibatches: Positive = Field(1, description="optimizer steps that one batch is split into")
    micro_batch_size: Positive = Field(64, description="sequences in memory at once")
    length_bucket: Positive = Field(64, description="sequence lengths are padded to multiples")
    learning_rate: Annotated[float, Field(gt=0.0)] = 1e-6
    warmup_updates: Annotated[int, Field(ge=0)] = 0
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0.0)] = 1.0
    clip_low: Share = 0.2
    clip_high: Annotated[float, Field(ge=0.0)] = 0.28
    importance_cap: Annotated[float, Field(gt=0.0)] = Field(
        2.0, description="cap on trainer / vLLM probability ratios (truncated importance sampling)"
    )
    divide_by_std: bool = Field(True, description="false: Dr. GRPO's advantages (Liu et al. 2025)")
    mask_truncated: bool = Field(False, description="leave completions cut by max_tokens out")
    checkpoint_every: Positive = Field(10, description="updates between checkpoints")


class Reward(Section):
    """What a verified answer is worth; the verifier alone decides."""

    optimal: float = Field(1.0, description="valid, and of the optimal sum of costs")
    valid: float = Field(0.6, description="valid, but dearer than the optimum")
    parsed: float = Field(0.0, description="well-formed, but breaks a rule or misses a goal")
    unparsable: Literal[0] = Field(0, description="nothing for an answer that can't be read")

    @model_validator(mode="after")
    def _ordered(self) -> Reward:
        if not self.optimal > self.valid > self.parsed >= 0:
            raise ValueError(
                f"optimal {self.optimal}, valid {self.valid}, parsed {self.parsed}: "
                "must satisfy optimal > valid > parsed >= 0"
            )
        return self


class Rounds(Section):
    """The budget: how many rounds, and how many training instances each may use."""

    rounds: Positive = 3
    instances: Positive = Field(4_000, description="training instances a round")


class Validation(Section):
    """The fixed validation set: every size, hole ratio and wait ratio, `per_cell` each."""

    sizes: tuple[Annotated[int, Field(ge=2, le=10)], ...]
    hole_ratios: tuple[Annotated[float, Field(ge=0.0, le=0.5)], ...]
    wait_ratios: tuple[Share, ...]
    per_cell: Positive = 10
    seed: int = 1
    temperature: Annotated[float, Field(ge=0.0)] = Field(0.0, description="0: greedy")
