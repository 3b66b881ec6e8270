"""The schema of `configs/*.yaml`: one frozen `RunConfig` decides a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engineer.configuration import Bounds, LakeConfiguration
from engineer.context import BLOCKS, BlockName
from jaxlake import infeasibility
from training.errors import UserError

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


class EngineerChoice(Section):
    """Who writes the next configuration, and what they get to read."""

    kind: Literal["checkpoint", "model", "endpoint", "rule"] = "checkpoint"
    model: str | None = Field(None, description="kind model: folder or hub name; endpoint: name")
    base_url: str | None = Field(None, description="kind endpoint: the API's base, ending in /v1")
    api_key_env: str = Field("OPENAI_API_KEY", description="the variable that holds the key")
    timeout_seconds: Annotated[float, Field(gt=0.0)] = 120.0
    style: Literal["compact", "full"] = "compact"
    blocks: tuple[BlockName, ...] = BLOCKS
    attempts: Positive = Field(3, description="answers asked for before the last one is kept")
    temperature: Annotated[float, Field(ge=0.0)] = 0.3
    max_tokens: Positive = 256

    @model_validator(mode="after")
    def _complete(self) -> EngineerChoice:
        if self.kind in ("model", "endpoint") and not self.model:
            raise ValueError(f"model: kind {self.kind!r} needs a model's name")
        if self.kind == "endpoint" and not self.base_url:
            raise ValueError("base_url: kind 'endpoint' needs the API's address")
        return self


class RunConfig(Section):
    """Everything that decides a run. Two runs of one `RunConfig` on one machine are equal."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    model: Model = Model()
    environment: Environment
    prompt: Prompt = Prompt()
    sampling: Sampling = Sampling()
    warm_start: WarmStart | None = Field(None, description="null: start from the model as it is")
    stages: Rounds = Rounds()
    grpo: Grpo = Grpo()
    reward: Reward = Reward()
    validation: Validation
    engineer: EngineerChoice = EngineerChoice()

    @model_validator(mode="after")
    def _consistent(self) -> RunConfig:
        sizes = set(self.environment.bounds.sizes)
        if set(self.environment.initial.sizes) != sizes:
            raise ValueError(
                f"environment.initial.sizes: has {sorted(self.environment.initial.sizes)}, "
                f"environment.bounds.sizes has {sorted(sizes)}: they must be the same"
            )
        if self.warm_start is None and self.model.pretrained is None:
            raise ValueError("warm_start: a model made from scratch needs one; null is not allowed")
        requests = [
            ("environment.initial.sizes", size, knobs.hole_ratio)
            for size, knobs in self.environment.initial.sizes.items()
        ] + [
            ("validation", size, holes)
            for size in self.validation.sizes
            for holes in self.validation.hole_ratios
        ]
        for where, size, holes in requests:
            if reason := infeasibility(size, holes, self.environment.num_agents):
                raise ValueError(f"{where}: {reason}")
        batch = self.grpo.prompts_per_update * self.grpo.completions
        step = self.grpo.minibatches * self.grpo.micro_batch_size
        if batch % step:
            raise ValueError(
                f"grpo.micro_batch_size: {batch} completions an update do not divide into "
                f"{self.grpo.minibatches} minibatches of micro-batches of "
                f"{self.grpo.micro_batch_size}"
            )
        for name, rows in (
            ("grpo.micro_batch_size", self.grpo.micro_batch_size),
            ("sampling.sync_sequences", self.sampling.sync_sequences),
        ):
            if rows % self.model.mesh.fsdp:
                raise ValueError(
                    f"{name}: got {rows}, allowed are multiples of model.mesh.fsdp = "
                    f"{self.model.mesh.fsdp}, whose devices share the rows"
                )
        if self.stages.instances < self.grpo.prompts_per_update:
            raise ValueError(
                f"stages.instances: got {self.stages.instances}, allowed is at least "
                f"grpo.prompts_per_update = {self.grpo.prompts_per_update}"
            )
        return self

    @property
    def updates_per_round(self) -> int:
        """GRPO updates in a round; a remainder smaller than a batch of prompts is not used."""
        return self.stages.instances // self.grpo.prompts_per_update


def load(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a YAML file, apply `key.sub=value` overrides and validate.

    Raises:
      UserError: the file can't be read, is not YAML, or a key or value is not allowed; the message
        names file, key and value.
    """
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict):
        raise UserError(f"{path}: must hold a mapping of keys, got {type(tree).__name__}")
    for override in overrides:
        _override(tree, override)
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise UserError("\n".join(_problems(str(path), error))) from error


def dump(config: RunConfig) -> str:
    """The resolved configuration as YAML that `load` reads back to an equal value."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, width=100)


def _override(tree: dict[Any, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise UserError(f"--set {override!r}: must be key.sub=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"--set {override!r}: the value is not YAML") from error
    path: list[Any] = [int(part) if part.isdigit() else part for part in key.split(".")]
    *parents, leaf = path
    for part in parents:
        below = tree.setdefault(part, {})
        if not isinstance(below, dict):
            raise UserError(f"--set {override!r}: {part!r} holds {below!r}, not a mapping")
        tree = below
    tree[leaf] = value


def _problems(source: str, error: ValidationError) -> Iterable[str]:
    """One line for each problem: file, dotted key, what is wrong, the value that came."""
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            yield f"{source}: {key}: unknown key; allowed are {_allowed(problem['loc'])}"
        elif problem["type"] == "missing":
            yield f"{source}: {key}: required, but missing"
        elif problem["type"] == "value_error":
            message = problem["msg"].removeprefix("Value error, ")
            yield f"{source}: {key}: {message}" if key else f"{source}: {message}"
        else:
            yield f"{source}: {key}: got {problem['input']!r}: {problem['msg']}"


def _allowed(location: tuple[int | str, ...]) -> str:
    """The names that stand beside an unknown key, found by walking the schema."""
    model: Any = RunConfig
    for part in location[:-1]:
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            return "the schema's own"
        model = next(
            (kind for kind in _types(field.annotation) if hasattr(kind, "model_fields")), None
        )
    return ", ".join(model.model_fields) if model is not None else "none"


def _types(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__args__", (annotation,))
