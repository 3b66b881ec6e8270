"""The sections of a run's configuration, apart from the engineer's."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from engineer.lake import Bounds, LakeConfiguration

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Agents = Annotated[int, Field(ge=2, le=5)]
Positive = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Precision = Literal["float32", "bfloat16"]


class Section(BaseModel):
    """A part of the configuration: frozen, and strict about names it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    left_out_if_default: ClassVar[frozenset[str]] = frozenset()
    """Keys that are not written where they have their default, so that older files are equal."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = dump(self)
        for name in self.left_out_if_default:
            default = type(self).model_fields[name].get_default(call_default_factory=True)
            if name in plain and getattr(self, name) == default:
                del plain[name]
        return plain


Projection = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Scratch(Section):
    """The shape of a Qwen3 decoder that is made here, with random weights and its own tokenizer."""

    vocab_size: Positive = Field(512, description="entries of the byte-level BPE vocabulary")
    hidden_size: Positive = Field(160, description="width of the residual stream")
    intermediate_size: Positive = Field(448, description="hidden units of each MLP")
    num_hidden_layers: Positive = Field(4, description="decoder layers")
    num_attention_heads: Positive = Field(5, description="query heads of each layer")
    num_key_value_heads: Positive = Field(5, description="key and value heads of each layer")
    head_dim: Positive = Field(32, description="width of each head")


class Mesh(Section):
    """How many devices share the trainer's weights, along each axis."""

    fsdp: Positive = Field(1, description="devices that split every weight matrix and the batch")
    tensor: Positive = Field(1, description="devices that split heads and hidden units")


class Lora(Section):
    """Adapters of low rank that are trained in place of the weights (Hu et al. 2021)."""

    rank: Positive = Field(16, description="columns of each factor")
    alpha: PositiveFloat = Field(32.0, description="adapters are multiplied with alpha / rank")
    targets: tuple[Projection, ...] = Field(
        get_args(Projection), min_length=1, description="the kernels of every layer that have one"
    )

    @field_validator("targets")
    @classmethod
    def _each_once(cls, value: tuple[Projection, ...]) -> tuple[Projection, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"got {list(value)}, allowed is each kernel once")
        return value

    @property
    def scale(self) -> float:
        """What the product of an adapter's factors is multiplied with."""
        return self.alpha / self.rank


class Model(Section):
    """The policy: a pretrained Hugging Face model, or a small one made from scratch."""

    left_out_if_default = frozenset({"lora"})

    pretrained: str | None = Field(
        None, description="local folder, hub name or jaxlake-base; null: from scratch"
    )
    scratch: Scratch = Scratch()
    param_dtype: Precision = Field(
        "float32", description="dtype of weights and optimizer state: float32, see `dtype`"
    )
    dtype: Precision = Field("float32", description="dtype of activations")
    remat: bool | Literal["all_but_attention", "all_but_mlp", "all_but_products"] = Field(
        False,
        description="recompute activations: slower, in less memory; all_but_attention keeps what "
        "kernels or blocks give, all_but_mlp also the products before and after attention, "
        "all_but_products all matrix products",
    )
    attention: Literal["auto", "plain", "blockwise", "triton", "splash"] = Field(
        "auto",
        description="auto: the device's kernel in bfloat16, else exact; plain: all scores at once; "
        "blockwise: in XLA; triton: a kernel for NVIDIA GPUs; splash: one for TPUs",
    )
    mesh: Mesh = Mesh()
    lora: Lora | None = Field(None, description="null: all weights are trained")

    @field_validator("param_dtype")
    @classmethod
    def _steps_are_not_rounded_away(cls, value: Precision) -> Precision:
        """Refuse bfloat16: its numbers are 1.2e-4 apart at 0.02 and 0.0078 apart at 1."""
        if value != "float32":
            raise ValueError(
                f"got {value}, allowed is float32: weights in bfloat16 lie 0.4% to 0.8% apart, and "
                "steps of a learning rate such as 1e-6 are rounded away. model.dtype: bfloat16 "
                "computes in bfloat16 on float32 weights"
            )
        return value


class Environment(Section):
    """The lake: how many agents, the first configuration, and what the engineer may ask for."""

    kind: Literal["lake"] = Field(
        "lake",
        description="lake, or package.module:NAME of an environment of your own, which then has "
        "the keys settings and initial (docs/your_environment.md)",
    )
    num_agents: Agents = Field(2, description="agents on every board")
    initial: LakeConfiguration = Field(
        description="the configuration of the first stage; `random`: drawn by the seed"
    )
    bounds: Bounds = Field(description="what every later configuration must keep to")
    max_candidates: Positive = Field(200_000, description="most boards drawn to fill one request")

    @model_serializer(mode="wrap")
    def _without_the_usual_kind(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave the kind out: files of runs from before it was there stay as they are."""
        plain: dict[str, Any] = dump(self)
        del plain["kind"]
        return plain


class Prompt(Section):
    """How a board is put into words, and how long an answer may be."""

    style: Literal["compact", "full"] = Field("compact", description="wording of the prompt")
    chat: bool = Field(False, description="wrap the prompt in the tokenizer's chat template")
    thinking: bool = Field(False, description="passed to the chat template as enable_thinking")
    max_tokens: Positive = Field(48, description="longest completion, tokens")
    max_steps: Positive = Field(64, description="longest plan of an agent, steps")


Address = Annotated[str, Field(pattern=r"^https?://[^/\s?#@]+(/[^\s?#]*[^\s?#/])?$")]


class Servers(Section):
    """The vLLM servers of `sampling.engine: servers`: started on this machine, or elsewhere.

    docs/servers.md says how to start them, and what they have to be told.
    """

    count: Positive | None = Field(
        None,
        description="servers to start on this machine, each with tensor_parallel_size of "
        "sampling.devices; null: one, or none where there are addresses",
    )
    addresses: tuple[Address, ...] | None = Field(
        None, description="servers that are there, such as http://host:8000; null: start some"
    )
    folder: str | None = Field(
        None,
        description="folder that this machine and the servers share, for new weights; null: shared "
        "memory, for servers on this machine",
    )
    start_seconds: PositiveFloat = Field(600.0, description="until all servers have to be ready")
    answer_seconds: PositiveFloat = Field(
        1800.0, description="for one request; a server that takes longer counts as gone"
    )
    silence_seconds: PositiveFloat = Field(
        60.0, description="without an answer to a health check, after which a server is gone"
    )

    @model_validator(mode="after")
    def _started_or_there(self) -> Servers:
        if self.addresses is None:
            return self
        if self.count is not None:
            raise ValueError(
                f"count: got {self.count} beside addresses, allowed is null: servers are started "
                "here, or are there"
            )
        if not self.addresses or len(set(self.addresses)) < len(self.addresses):
            raise ValueError(
                f"addresses: got {list(self.addresses)}, allowed are one or more different ones"
            )
        return self

    @property
    def started(self) -> int:
        """The number of servers to start on this machine."""
        return 0 if self.addresses else self.count or 1


class Sampling(Section):
    """The engine that generates completions.

    `gpu_memory_utilization` is for all vLLM engines of a run together. Where the engineer is a
    model beside the policy (`stale`, `base`, `model`), each of the two gets half, since the
    policy's engine keeps its memory while the other one answers.
    """

    left_out_if_default = frozenset({"servers"})

    engine: Literal["vllm", "servers", "jax"] = Field(
        "vllm",
        description="vllm: with the trainer; servers: vLLM servers, here or elsewhere; jax: the "
        "trainer's own decoder, for small models",
    )
    servers: Servers | None = Field(
        None, description="the servers of engine servers; null: one on this machine"
    )
    temperature: PositiveFloat = Field(1.0, description="of completions that are learned from")
    max_model_len: Positive = Field(1024, description="longest prompt and answer, tokens")
    max_num_seqs: Positive = Field(256, description="sequences that are decoded at once")
    max_num_batched_tokens: Positive = Field(8192, description="tokens per step (vLLM)")
    dtype: Precision = Field("float32", description="dtype of the engine's weights and activations")
    enforce_eager: bool = Field(True, description="false: capture CUDA graphs (accelerators)")
    gpu_memory_utilization: Share = Field(
        0.45, description="share of each accelerator's memory for all vLLM engines of a run"
    )
    tensor_parallel_size: Positive = Field(1, description="accelerators that share vLLM's weights")
    devices: tuple[Count, ...] | None = Field(
        None,
        description="numbers of the accelerators that vLLM's workers have, tensor_parallel_size "
        "for each server in turn; null: the first ones",
    )
    weight_transfer: Literal["auto", "in_process", "shared_memory", "cuda_ipc", "nccl"] = Field(
        "auto",
        description="how vLLM gets the weights; auto: in_process for one worker, else nccl to GPUs "
        "that the trainer has not, cuda_ipc to others, shared_memory without GPUs",
    )
    cpu_kv_cache_gib: Positive = Field(1, description="key-value cache, GiB (CPU only)")
    sync_tolerance: PositiveFloat = Field(
        1e-3,
        description="nats that |engine - trainer| log-probability may be after a sync, for 99% of "
        "the tokens; ten times that for all",
    )
    sync_sequences: Positive = Field(4, description="sequences compared after each sync")

    @property
    def served(self) -> Servers:
        """The section `servers`, or what stands for null."""
        return self.servers or Servers()

    @property
    def runs_vllm_here(self) -> bool:
        """Whether the run itself starts engines of vLLM for the policy."""
        return self.engine == "vllm" or (self.engine == "servers" and self.served.started > 0)

    @model_validator(mode="after")
    def _workers_can_be_reached(self) -> Sampling:
        servers = self.served.started if self.engine == "servers" else 1
        workers = self.tensor_parallel_size * servers
        if self.devices is not None and (
            len(self.devices) != workers or len(set(self.devices)) != workers
        ):
            factor = f" * {servers} servers" if self.engine == "servers" else ""
            raise ValueError(
                f"devices: got {list(self.devices)}, allowed are as many different ones as "
                f"tensor_parallel_size{factor} = {workers}"
            )
        if self.weight_transfer == "in_process" and self.tensor_parallel_size > 1:
            raise ValueError(
                f"weight_transfer: got in_process, but tensor_parallel_size = "
                f"{self.tensor_parallel_size} workers are processes of their own: allowed are "
                "auto, shared_memory, cuda_ipc and nccl"
            )
        if self.engine == "jax" and (self.weight_transfer != "auto" or self.devices is not None):
            raise ValueError(
                f"weight_transfer: got {self.weight_transfer}, and devices {self.devices}: engine "
                "jax has the trainer's weights and device, allowed are auto and null"
            )
        if self.weight_transfer == "nccl" and self.devices is None:
            raise ValueError(
                "weight_transfer: got nccl, which needs GPUs that the trainer has not: name them "
                "in sampling.devices"
            )
        return self

    @model_validator(mode="after")
    def _servers_fit_the_engine(self) -> Sampling:
        if self.engine != "servers":
            if self.servers is not None:
                raise ValueError(
                    f"servers: set, but engine is {self.engine}; allowed is null, or engine servers"
                )
            return self
        if self.weight_transfer != "auto":
            raise ValueError(
                f"weight_transfer: got {self.weight_transfer}, allowed is auto with engine "
                "servers: servers.folder says how they get the weights"
            )
        return self


class WarmStart(Section):
    """Supervised steps on solver plans, and on configurations written by the rule engineer."""

    steps: Positive = Field(600, description="optimizer steps")
    instances: Positive = Field(
        16_384, description="instances with answers to imitate, to draw batches from"
    )
    batch_size: Positive = Field(64, description="plans per step")
    engineer_batch_size: Count = Field(8, description="contexts per engineer step; 0: no such step")
    engineer_every: Positive = Field(4, description="every how many steps one is an engineer step")
    learning_rate: PositiveFloat = Field(2e-3, description="peak learning rate of AdamW")
    warmup_steps: Count = Field(50, description="steps until the learning rate is at its peak")
    weight_decay: NonNegative = Field(0.01, description="of AdamW")
    checkpoint_every: Annotated[int, Field(gt=0, multiple_of=10)] = Field(
        100, description="steps between checkpoints; metrics are written every 10 steps"
    )


class Grpo(Section):
    """Group Relative Policy Optimization (Shao et al. 2024), by default with DAPO's token mean.

    docs/grpo.md has the formulas, and says where they come from.
    """

    left_out_if_default = frozenset({"prefetch"})

    prompts_per_update: Positive = Field(32, description="instances per update")
    completions: Annotated[int, Field(ge=2)] = Field(8, description="completions per prompt")
    minibatches: Positive = Field(1, description="optimizer steps that one batch is split into")
    micro_batch_size: Positive = Field(
        64, description="completions in memory at once: whole groups, so a multiple of completions"
    )
    length_bucket: Positive = Field(
        64, description="prompts are padded to multiples of it, tokens; so is what is scored whole"
    )
    learning_rate: PositiveFloat = Field(1e-6, description="learning rate of AdamW")
    warmup_updates: Count = Field(0, description="steps until the learning rate is reached")
    warmup_share: Share = Field(
        0.0, description="the same as a share of all optimizer steps, instead of warmup_updates"
    )
    schedule: Literal["constant", "cosine", "linear"] = Field(
        "constant",
        description="after the warm-up; cosine, linear: down to a tenth at the run's last step",
    )
    weight_decay: NonNegative = Field(0.0, description="of AdamW")
    max_grad_norm: PositiveFloat = Field(1.0, description="larger gradients are scaled down to it")
    clip_low: Share = Field(0.2, description="importance ratios are clipped below 1 - clip_low")
    clip_high: NonNegative = Field(0.28, description="ratios are clipped above 1 + clip_high")
    importance_cap: PositiveFloat = Field(2.0, description="cap on trainer / engine probabilities")
    ratio: Literal["token", "sequence"] = Field(
        "token",
        description="what has an importance ratio of its own; sequence: GSPO (Zheng et al. 2025), "
        "whose clip_low and clip_high are 3e-4 and 4e-4",
    )
    aggregation: Literal["token_mean", "sequence_mean", "constant_length"] = Field(
        "token_mean",
        description="mean of the loss over tokens (DAPO), over the means of completions (GRPO, "
        "GSPO), or its sum over completions * max_tokens (Dr. GRPO)",
    )
    kl_coefficient: NonNegative = Field(
        0.0,
        description="factor of the KL divergence to the policy before the first update (k3, nats); "
        "0: no such policy is held",
    )
    divide_by_std: bool = Field(True, description="false: Dr. GRPO's advantages (Liu et al. 2025)")
    mask_truncated: bool = Field(False, description="learn nothing from answers cut by max_tokens")
    resamples: Count = Field(
        0,
        description="rounds in which instances whose rewards are all equal are replaced by others "
        "of the stage (DAPO's dynamic sampling); 0: nothing is learned from them",
    )
    prefetch: Literal[0, 1] = Field(
        0,
        description="1: the next rollout is drawn while an update is computed, with the weights "
        "before it (engines servers and jax)",
    )
    checkpoint_every: Positive = Field(10, description="updates between checkpoints")

    @model_validator(mode="after")
    def _one_warm_up(self) -> Grpo:
        if self.warmup_updates and self.warmup_share:
            raise ValueError(
                f"warmup_share: got {self.warmup_share:g}, allowed is 0 beside warmup_updates "
                f"{self.warmup_updates}: the warm-up has one length"
            )
        return self


class Rehearsal(Section):
    """Designs of the rule that the policy goes on imitating while GRPO goes on."""

    contexts: Positive = Field(8, description="made-up contexts with the rule's edits per update")
    weight: PositiveFloat = Field(
        1.0, description="factor of their mean loss, nats per token, beside that of GRPO"
    )


class Reward(Section):
    """The reward of an answer, by the verifier's outcome (see `jaxlake/rewards.py`).

    Nothing is paid for style. What comes close to the token limit may be penalised, as in DAPO.
    """

    optimal: float = Field(1.0, description="valid plan of optimal sum of costs")
    valid: float = Field(0.6, description="valid but suboptimal plan")
    parsed: float = Field(0.0, description="well-formed plan that breaks a rule or misses a goal")
    unparsable: Literal[0] = Field(0, description="answer that can't be read as a plan")
    overlong_buffer: Count = Field(
        0, description="tokens before prompt.max_tokens in which a penalty rises; 0: none (DAPO)"
    )
    overlong_penalty: PositiveFloat = Field(
        1.0, description="what is taken from the reward of an answer of prompt.max_tokens tokens"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Reward:
        if not self.optimal > self.valid > self.parsed >= 0:
            raise ValueError(
                f"optimal {self.optimal}, valid {self.valid}, parsed {self.parsed}: "
                "must satisfy optimal > valid > parsed >= 0"
            )
        return self


class Wandb(Section):
    """A run on Weights & Biases, through its own library (the extra `wandb`)."""

    project: str = Field("jaxlake", description="the project that the run belongs to")
    entity: str | None = Field(None, description="user or team; null: the account's default")
    mode: Literal["online", "offline"] = Field(
        "online", description="offline: into the run's directory alone, for `wandb sync` later"
    )


class Tracking(Section):
    """Who is told of a run beside its own files; nothing of it decides what the run does."""

    tensorboard: bool = Field(
        False, description="write events to RUN/tensorboard (the extra `tensorboard`)"
    )
    wandb: Wandb | None = Field(None, description="null: nothing is told to Weights & Biases")
    profile_updates: tuple[Positive, ...] = Field(
        (), description="updates, counted over all stages from 1, whose trace goes to RUN/profile"
    )
    peak_tflops: PositiveFloat | None = Field(
        None,
        description="most TFLOP/s of a device in model.dtype, for the MFU; null: where it is known",
    )


class Stages(Section):
    """How many stages, and how many training instances each may use."""

    count: Positive = Field(3, description="passes through Train, Validate, Design")
    instances: Positive = Field(4_000, description="training instances per stage")


class Validation(Section):
    """The fixed validation set: boards of every size, hole ratio and wait ratio."""

    sizes: tuple[Annotated[int, Field(ge=2, le=10)], ...] = Field(description="map sizes")
    hole_ratios: tuple[Annotated[float, Field(ge=0.0, le=0.5)], ...] = Field(
        description="shares of holes"
    )
    wait_ratios: tuple[Share, ...] = Field(description="shares of boards that need a wait")
    per_cell: Positive = Field(10, description="boards per cell: per combination of these three")
    seed: int = Field(1, description="the boards follow from it; another seed gives other boards")
    temperature: NonNegative = Field(0.0, description="of sampling the answers; 0: greedy")

    @property
    def cells(self) -> int:
        """The number of combinations of size, hole ratio and wait ratio."""
        return len(self.sizes) * len(self.hole_ratios) * len(self.wait_ratios)
