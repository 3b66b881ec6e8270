"""The sections on learning: `warm_start`, `grpo`, `rehearsal` and `reward`."""

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from jaxlake.user_code import check_importable, is_code_name
from training.errors import shorten
from training.schema.section import Fraction, Section


class WarmStartConfig(Section):
    """Supervised steps on solver plans and on the rule engineer's configurations."""

    steps: PositiveInt = Field(600, description="optimizer steps")
    instances: PositiveInt = Field(
        16_384, description="instances with demonstrations from which batches are drawn"
    )
    batch_size: PositiveInt = Field(64, description="plans per step")
    engineer_batch_size: NonNegativeInt = Field(
        8, description="contexts per engineer step; every third step is one; 0: no such steps"
    )
    learning_rate: PositiveFloat = Field(2e-3, description="peak learning rate of AdamW")
    warmup_steps: NonNegativeInt = Field(
        50, description="steps until the learning rate reaches its peak"
    )
    checkpoint_every: Annotated[int, Field(gt=0, multiple_of=10)] = Field(
        100, description="steps between checkpoints; metrics are written every 10 steps"
    )


class GrpoConfig(Section):
    """Group Relative Policy Optimization (Shao et al. 2024), by default with DAPO's token mean.

    docs/grpo.md lists the formulas and their sources.
    """

    prompts_per_update: PositiveInt = Field(32, description="instances per update")
    completions: Annotated[int, Field(ge=2)] = Field(8, description="completions per prompt")
    minibatches: PositiveInt = Field(1, description="optimizer steps per batch")
    micro_batch_size: PositiveInt = Field(
        64, description="completions in memory at once, a multiple of `completions`"
    )
    length_bucket: PositiveInt = Field(
        64, description="prompts and scored sequences are padded to multiples of this, tokens"
    )
    learning_rate: PositiveFloat = Field(1e-6, description="learning rate of AdamW")
    warmup_updates: NonNegativeInt = Field(
        0, description="steps until the full learning rate is reached"
    )
    schedule: Literal["constant", "cosine", "linear"] = Field(
        "constant",
        description="after the warm-up; cosine, linear: decay to 10% at the run's last step",
    )
    max_grad_norm: PositiveFloat = Field(1.0, description="norm to which gradients are clipped")
    clip_low: Fraction = Field(0.2, description="importance ratios are clipped below 1 - clip_low")
    clip_high: NonNegativeFloat = Field(0.28, description="ratios are clipped above 1 + clip_high")
    importance_cap: PositiveFloat = Field(
        2.0, description="upper limit of the trainer / engine probability ratio"
    )
    ratio: Literal["token", "sequence"] = Field(
        "token",
        description="unit of the importance ratio; sequence: GSPO (Zheng et al. 2025), which uses "
        "clip_low 3e-4 and clip_high 4e-4",
    )
    aggregation: Literal["token_mean", "sequence_mean", "constant_length"] = Field(
        "token_mean",
        description="token_mean: mean over tokens (DAPO); sequence_mean: mean of the means per "
        "completion (GRPO, GSPO); constant_length: sum / (completions * max_tokens) (Dr. GRPO)",
    )
    kl_coefficient: NonNegativeFloat = Field(
        0.0,
        description="weight of the KL divergence to the policy before the first update (k3, nats); "
        "0: keep no reference policy",
    )
    divide_by_std: bool = Field(
        True,
        description="divide advantages by the group's standard deviation; false: Dr. GRPO (Liu et "
        "al. 2025)",
    )
    mask_truncated: bool = Field(False, description="ignore answers that max_tokens cuts off")
    resamples: NonNegativeInt = Field(
        0,
        description="rounds in which instances with equal rewards are replaced by others of the "
        "stage (DAPO's dynamic sampling); 0: don't replace them",
    )
    prefetch: Literal[0, 1] = Field(
        0,
        description="1: draw the next rollout during an update, with the weights before the update",
    )
    checkpoint_every: PositiveInt = Field(10, description="updates between checkpoints")


class RehearsalConfig(Section):
    """Imitation of the rule engineer's designs during GRPO."""

    contexts: PositiveInt = Field(
        8, description="simulated contexts with the rule engineer's edits per update"
    )
    weight: PositiveFloat = Field(
        1.0, description="weight of their mean loss (nats per token) relative to GRPO's loss"
    )


REWARD_FUNCTIONS = "package.module:NAME of a function (text, board, score) -> float"
"""The allowed values of `reward.function`."""


def _read_function(name: str) -> str:
    if not is_code_name(name):
        raise ValueError(f"must be {REWARD_FUNCTIONS}, got {shorten(name)}")
    check_importable(name, REWARD_FUNCTIONS)
    return name


class RewardConfig(Section):
    """The reward of an answer by the verifier's outcome (see `jaxlake/language/rewards.py`).

    Style earns no reward unless `function` gives one. Answers close to the token limit can be
    penalised, as in DAPO.
    """

    optimal: float = Field(1.0, description="valid plan with the optimal sum of costs")
    valid: float = Field(0.6, description="valid but suboptimal plan")
    parsed: float = Field(0.0, description="well-formed plan that breaks a rule or misses a goal")
    function: Annotated[str, AfterValidator(_read_function)] | None = Field(
        None,
        description=f"{REWARD_FUNCTIONS} that returns the reward; `score.reward` is the reward by "
        "the values above (docs/tutorials/your_hooks.md)",
    )
    overlong_buffer: NonNegativeInt = Field(
        0,
        description="tokens before prompt.max_tokens over which the length penalty rises (DAPO); "
        "0: no penalty",
    )
    overlong_penalty: PositiveFloat = Field(
        1.0, description="penalty of an answer with prompt.max_tokens tokens"
    )

    @model_validator(mode="after")
    def _check_order(self) -> "RewardConfig":
        if not self.optimal > self.valid > self.parsed >= 0:
            raise ValueError(
                "must satisfy optimal > valid > parsed >= 0, got "
                f"optimal {self.optimal}, valid {self.valid}, parsed {self.parsed}"
            )
        return self
