"""`RunConfig`: the complete configuration of a run, and checks across its sections."""

from collections.abc import Mapping
from itertools import product
from operator import attrgetter
from typing import Annotated, Any

import numpy as np
from pydantic import (
    BaseModel,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    WrapValidator,
    field_validator,
    model_validator,
)

from engineer.engineers.baselines import random_configuration
from engineer.lake import Bounds, LakeConfiguration, SizeKnobs, lake_domain
from jaxlake.board.limits import infeasibility
from training.errors import UserError
from training.schema.engineer_section import EngineerConfig
from training.schema.environment_sections import LAKE, UserEnvironmentConfig, UserValidationConfig
from training.schema.lake_sections import EnvironmentConfig, PromptConfig, ValidationConfig
from training.schema.learning_sections import (
    GrpoConfig,
    RehearsalConfig,
    RewardConfig,
    WarmStartConfig,
)
from training.schema.model_sections import ModelConfig
from training.schema.sampling_sections import BFLOAT16_TOLERANCE, SamplingConfig
from training.schema.section import NumAgents, Section

RANDOM = "random"
"""Value of `environment.initial`: draw it with the run's seed, as the random engineer does."""

Seed = Annotated[int, Field(ge=0, lt=2**31)]

_SERVED_ENGINEERS = frozenset({"base", "model"})
"""Engineers whose answers come from a vLLM server, in addition to the policy's engine."""

_LAKE_ONLY = (
    *("engineer.learning", "engineer.picking", "engineer.atlas.after_last", "prompt.style"),
    *("prompt.template", "prompt.max_steps"),
    *("reward.optimal", "reward.valid", "reward.parsed", "reward.function"),
)
"""Keys that only the lake reads; other environments define their own prompts and rewards."""


class StagesConfig(Section):
    """The number of stages and of training instances per stage."""

    count: int = Field(
        3, gt=0, le=10_000, description="rounds of Train, Validate and Design, at most 10,000"
    )
    instances: PositiveInt = Field(4_000, description="training instances per stage")


class TrackingConfig(Section):
    """External trackers and profiling; these settings don't change a run's results."""

    tensorboard: bool = Field(
        False, description="write events to RUN/tensorboard (the extra `tensorboard`)"
    )
    wandb: bool = Field(
        False,
        description="log to Weights & Biases (the extra `wandb`); its environment variables, such "
        "as WANDB_PROJECT and WANDB_MODE, apply",
    )
    profile_updates: tuple[PositiveInt, ...] = Field(
        (), description="updates to trace into RUN/profile, counted from 1 over all stages"
    )


class StartedFrom(Section):
    """The earlier run that this run starts from."""

    run: str = Field(description="directory of the earlier run, as given on the command line")
    stage: NonNegativeInt = Field(description="last complete stage of the earlier run")
    weights: str = Field(
        pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the weights in force after that stage"
    )


class _RandomInitial(BaseModel):
    """The settings that determine a randomly drawn initial configuration."""

    seed: Seed
    num_agents: NumAgents = 2
    bounds: Bounds

    @property
    def initial(self) -> LakeConfiguration:
        rng = np.random.default_rng([self.seed, *RANDOM.encode()])
        configuration = random_configuration(rng, lake_domain(self.bounds, self.num_agents))
        return LakeConfiguration.model_validate(configuration.model_dump())


def _read_environment(tree: Any, _: object) -> Any:
    """Read the section as the lake's or as the one of the environment named by `kind`."""
    if isinstance(tree, EnvironmentConfig | UserEnvironmentConfig):
        return tree
    is_custom = isinstance(tree, Mapping) and tree.get("kind", LAKE) != LAKE
    return (UserEnvironmentConfig if is_custom else EnvironmentConfig).model_validate(tree)


class RunConfig(Section):
    """The complete configuration of a run.

    Two runs of the same `RunConfig` on the same CPU are bit-identical. On GPUs, XLA adds some terms
    in varying order unless XLA_FLAGS contains `--xla_gpu_deterministic_ops=true`.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")] = Field(
        description="name of the run; its files go to runs/NAME unless --run-dir is given"
    )
    seed: Seed = Field(
        0, description="seed of all random numbers except those of the validation set"
    )
    started_from: StartedFrom | None = Field(
        None, description="written by `jaxlake run --from`; null: start from `model`"
    )
    model: ModelConfig = ModelConfig()
    environment: Annotated[
        EnvironmentConfig | UserEnvironmentConfig, WrapValidator(_read_environment)
    ]
    prompt: PromptConfig = PromptConfig()
    sampling: SamplingConfig = SamplingConfig()
    warm_start: WarmStartConfig | None = Field(
        None, description="null: start from the model as it is"
    )
    stages: StagesConfig = StagesConfig()
    grpo: GrpoConfig = GrpoConfig()
    rehearsal: RehearsalConfig | None = Field(None, description="null: GRPO only, no rehearsal")
    reward: RewardConfig = RewardConfig()
    validation: ValidationConfig | UserValidationConfig
    engineer: EngineerConfig = EngineerConfig()
    tracking: TrackingConfig = TrackingConfig()

    @property
    def lake(self) -> EnvironmentConfig:
        """The lake's section `environment`; raises `UserError` on another environment."""
        if isinstance(self.environment, UserEnvironmentConfig):
            raise UserError(
                f"environment.kind must be {LAKE} for this operation, got {self.environment.kind}"
            )
        return self.environment

    @property
    def validation_grid(self) -> ValidationConfig:
        """The lake's section `validation`; raises `UserError` on another environment."""
        if isinstance(self.validation, UserValidationConfig):
            raise UserError(
                f"environment.kind must be {LAKE} for this operation: only its validation set "
                "has cells"
            )
        return self.validation

    @property
    def updates_per_stage(self) -> int:
        """The number of GRPO updates per stage; an incomplete last batch is dropped."""
        return self.stages.instances // self.grpo.prompts_per_update

    @property
    def grpo_steps(self) -> int:
        """The total number of GRPO's optimizer steps over all stages."""
        return self.stages.count * self.updates_per_stage * self.grpo.minibatches

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches in a GRPO minibatch."""
        completions = self.grpo.prompts_per_update * self.grpo.completions
        return completions // self.grpo.minibatches // self.grpo.micro_batch_size

    @property
    def engine_sampling(self) -> SamplingConfig:
        """The settings of each vLLM engine: `sampling` with the engine's share of the memory."""
        uses_memory = [self.sampling.starts_vllm, self.engineer.base_kind in _SERVED_ENGINEERS]
        memory_share = self.sampling.gpu_memory_utilization / max(sum(uses_memory), 1)
        return self.sampling.model_copy(update={"gpu_memory_utilization": memory_share})

    @model_validator(mode="before")
    @classmethod
    def _draw_initial(cls, tree: Any) -> Any:
        """Replace `environment.initial: random` by a drawn configuration."""
        section = tree.get("environment") if isinstance(tree, dict) else None
        if not isinstance(section, dict) or not isinstance(value := section.get("initial"), str):
            return tree
        if section.get("kind", LAKE) != LAKE:
            return tree
        if value != RANDOM:
            raise ValueError(
                f"environment.initial must be {RANDOM} or a mapping with sizes, got {value!r}"
            )
        try:
            initial = _RandomInitial.model_validate(section | {"seed": tree.get("seed", 0)}).initial
        except ValidationError:  # reported when the whole tree is validated
            knobs = SizeKnobs(data_ratio=1.0, hole_ratio=0.0, wait_ratio=0.0)
            initial = LakeConfiguration(sizes={3: knobs})
        return tree | {"environment": section | {"initial": initial}}

    @model_validator(mode="before")
    @classmethod
    def _tolerate_bfloat16(cls, tree: Any) -> Any:
        """Default to the bfloat16 tolerance if the trainer or the engine computes in bfloat16."""
        if not isinstance(tree, dict):
            return tree
        model, sampling = tree.get("model"), tree.get("sampling", {})
        if not isinstance(sampling, dict) or "gap_tolerance" in sampling:
            return tree
        sections = [section for section in (model, sampling) if isinstance(section, dict)]
        if "bfloat16" not in [section.get("dtype") for section in sections]:
            return tree
        return tree | {"sampling": sampling | {"gap_tolerance": BFLOAT16_TOLERANCE}}

    @field_validator("validation", mode="wrap")
    @classmethod
    def _read_validation(cls, tree: Any, read: Any, info: ValidationInfo) -> Any:
        """Read the section as required by the environment, a field that is validated earlier."""
        environment = info.data.get("environment")
        if isinstance(environment, UserEnvironmentConfig):
            return UserValidationConfig.read(tree, environment.settings.space)
        if environment is None and isinstance(tree, Mapping) and "configuration" in tree:
            return tree  # the error in the environment is already reported
        return tree if isinstance(tree, ValidationConfig) else ValidationConfig.model_validate(tree)

    @model_validator(mode="after")
    def _check_environment(self) -> "RunConfig":
        if not isinstance(self.environment, UserEnvironmentConfig):
            return self
        kind, environment = self.environment.kind, self.environment.settings
        space, initial = environment.space, self.environment.initial
        if problem := space.violation(initial) or space.grid_violation(initial):
            raise ValueError(f"environment.initial.groups: {problem}")
        if self.warm_start is not None and not environment.demonstrates:
            raise ValueError(
                f"warm_start must be null: {kind} has no demonstration(instance) to imitate"
            )
        for key in _LAKE_ONLY:
            section, _, name = key.rpartition(".")
            settings = attrgetter(section)(self)
            if (value := getattr(settings, name)) != type(settings).model_fields[name].default:
                raise ValueError(
                    f"{key} must not be set with environment.kind {kind}, got {value!s:.100}: it "
                    f"applies to {LAKE} only"
                )
        return self

    @model_validator(mode="after")
    def _check_boards(self) -> "RunConfig":
        if isinstance(self.environment, UserEnvironmentConfig):
            return self
        bounds, initial = self.environment.bounds, self.environment.initial
        if problem := bounds.violation(initial) or bounds.grid_violation(initial):
            raise ValueError(f"environment.initial.sizes: {problem}")
        start_cells = [(size, knobs.hole_ratio) for size, knobs in initial.sizes.items()]
        grid_cells = list(product(self.validation_grid.sizes, self.validation_grid.hole_ratios))
        for key, cells in (("environment.initial.sizes", start_cells), ("validation", grid_cells)):
            for size, hole_ratio in cells:
                if reason := infeasibility(size, hole_ratio, self.environment.num_agents):
                    raise ValueError(f"{key}: {reason}")
        return self

    @model_validator(mode="after")
    def _check_warm_start(self) -> "RunConfig":
        starts = (self.warm_start, self.model.pretrained, self.started_from)
        if all(start is None for start in starts):
            raise ValueError("warm_start must not be null for a model made from scratch")
        return self

    @model_validator(mode="after")
    def _check_batches(self) -> "RunConfig":
        grpo, fsdp = self.grpo, self.model.mesh.fsdp
        num_completions = grpo.prompts_per_update * grpo.completions
        if num_completions % (grpo.minibatches * grpo.micro_batch_size):
            raise ValueError(
                "grpo.minibatches * grpo.micro_batch_size must divide the "
                f"{num_completions} completions of an update, got "
                f"{grpo.minibatches} * {grpo.micro_batch_size}"
            )
        if grpo.micro_batch_size % (grpo.completions * fsdp):
            raise ValueError(
                "grpo.micro_batch_size must be a multiple of grpo.completions * model.mesh.fsdp = "
                f"{grpo.completions} * {fsdp}, got {grpo.micro_batch_size}: each device along fsdp "
                "processes the same number of whole groups"
            )
        for key, batch_size in self._supervised_batch_sizes().items():
            if batch_size % fsdp:
                raise ValueError(
                    f"{key} must be a multiple of model.mesh.fsdp = {fsdp}, got {batch_size}: the "
                    "devices share the rows evenly"
                )
        if self.stages.instances < self.grpo.prompts_per_update:
            raise ValueError(
                f"stages.instances must be at least grpo.prompts_per_update = "
                f"{self.grpo.prompts_per_update}, got {self.stages.instances}"
            )
        return self

    def _supervised_batch_sizes(self) -> dict[str, int]:
        """Return the batch sizes of the run's supervised steps by configuration key."""
        batch_sizes: dict[str, int] = {}
        if self.warm_start is not None:
            batch_sizes["warm_start.batch_size"] = self.warm_start.batch_size
            batch_sizes["warm_start.engineer_batch_size"] = self.warm_start.engineer_batch_size
        if self.rehearsal is not None:
            batch_sizes["rehearsal.contexts"] = self.rehearsal.contexts
        elif self.engineer.learning is not None and self.engineer.style == "compact":
            batch_sizes["rehearsal.contexts"] = RehearsalConfig().contexts
        return batch_sizes

    @model_validator(mode="after")
    def _check_grpo(self) -> "RunConfig":
        buffer, max_tokens = self.reward.overlong_buffer, self.prompt.max_tokens
        if buffer >= max_tokens:
            raise ValueError(
                f"reward.overlong_buffer must be less than prompt.max_tokens = {max_tokens}, got "
                f"{buffer}: otherwise every answer is penalised"
            )
        min_instances = 2 * self.grpo.prompts_per_update
        if self.grpo.resamples and self.stages.instances < min_instances:
            raise ValueError(
                f"grpo.resamples must be 0 if stages.instances = {self.stages.instances} is less "
                f"than 2 * grpo.prompts_per_update = {min_instances}, got {self.grpo.resamples}: "
                "no instances remain as replacements"
            )
        if self.grpo.prefetch and self.grpo.resamples:
            raise ValueError(
                f"grpo.prefetch must be 0 with grpo.resamples = {self.grpo.resamples}: the "
                "prefetched rollout and its replacements would come from different weights"
            )
        return self

    @model_validator(mode="after")
    def _check_prompt_length(self) -> "RunConfig":
        if self.prompt.max_tokens >= self.sampling.max_model_len:
            raise ValueError(
                f"prompt.max_tokens must be less than sampling.max_model_len = "
                f"{self.sampling.max_model_len}, which includes the prompt, got "
                f"{self.prompt.max_tokens}"
            )
        if self.engineer.base_kind not in (*_SERVED_ENGINEERS, "checkpoint"):
            return self  # the engineer does not use vLLM
        reasoning_tokens = self.engineer.reasoning_tokens
        max_context = self.sampling.max_model_len - self.engineer.max_tokens - reasoning_tokens
        if max_context < 1:
            key = "engineer.reasoning_tokens" if reasoning_tokens else "engineer.max_tokens"
            raise ValueError(
                f"{key} must be less than sampling.max_model_len = {self.sampling.max_model_len}, "
                f"which includes the prompt, got {reasoning_tokens or self.engineer.max_tokens}"
            )
        context_tokens = self.engineer.max_context_tokens
        if context_tokens is not None and context_tokens > max_context:
            subtrahend = "engineer.max_tokens" + (
                " - engineer.reasoning_tokens" if reasoning_tokens else ""
            )
            raise ValueError(
                f"engineer.max_context_tokens must be at most sampling.max_model_len - {subtrahend}"
                f" = {max_context}, got {context_tokens}"
            )
        return self
