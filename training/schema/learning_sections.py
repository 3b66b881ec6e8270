"""What is learned from: the sections `warm_start`, `grpo`, `rehearsal` and `reward`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from jaxlake.user_code import check_function, names_code
from training.errors import shortened
from training.schema.section import Count, NonNegative, Positive, PositiveFloat, Section, Share


class WarmStart(Section):
    """Supervised steps on solver plans, and on configurations written by the rule engineer."""

    steps: Positive = Field(600, description="optimizer steps")
    instances: Positive = Field(
        16_384, description="instances with answers to imitate, to draw batches from"
    )
    batch_size: Positive = Field(64, description="plans per step")
    engineer_batch_size: Count = Field(
        8, description="contexts per engineer step, which every third step is; 0: none is"
    )
    learning_rate: PositiveFloat = Field(2e-3, description="peak learning rate of AdamW")
    warmup_steps: Count = Field(50, description="steps until the learning rate is at its peak")
    checkpoint_every: Annotated[int, Field(gt=0, multiple_of=10)] = Field(
        100, description="steps between checkpoints; metrics are written every 10 steps"
    )


class Grpo(Section):
    """Group Relative Policy Optimization (Shao et al. 2024), by default with DAPO's token mean.

    docs/grpo.md has the formulas, and says where they come from.
    """

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
    schedule: Literal["constant", "cosine", "linear"] = Field(
        "constant",
        description="after the warm-up; cosine, linear: down to a tenth at the run's last step",
    )
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
        "before it",
    )
    checkpoint_every: Positive = Field(10, description="updates between checkpoints")


class Rehearsal(Section):
    """Designs of the rule that the policy goes on imitating while GRPO goes on."""

    contexts: Positive = Field(8, description="made-up contexts with the rule's edits per update")
    weight: PositiveFloat = Field(
        1.0, description="factor of their mean loss, nats per token, beside that of GRPO"
    )


REWARD_FUNCTIONS = "package.module:NAME of a function (text, board, score) -> float"
"""The values that `reward.function` may have."""


def _read_function(name: str) -> str:
    if not names_code(name):
        raise ValueError(f"got {shortened(name)}, allowed is {REWARD_FUNCTIONS}")
    check_function(name, REWARD_FUNCTIONS)
    return name


class Reward(Section):
    """The reward of an answer, by the verifier's outcome (see `jaxlake/language/rewards.py`).

    Nothing is paid for style, unless `function` does. What comes close to the token limit may be
    penalised, as in DAPO.
    """

    optimal: float = Field(1.0, description="valid plan of optimal sum of costs")
    valid: float = Field(0.6, description="valid but suboptimal plan")
    parsed: float = Field(0.0, description="well-formed plan that breaks a rule or misses a goal")
    function: Annotated[str, AfterValidator(_read_function)] | None = Field(
        None,
        description=f"{REWARD_FUNCTIONS}, which decides the reward; `score.reward` is the one by "
        "the values above (docs/tutorials/your_hooks.md)",
    )
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
