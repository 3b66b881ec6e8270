"""The schema of `configs/base.yaml`: everything that decides the base model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from jaxlake.board.limits import infeasibility
from training.schema.loading import load_as
from training.schema.model_sections import Scratch
from training.schema.sampling_sections import Sampling
from training.schema.section import Count, NonNegative, Positive, PositiveFloat, Section, Share

BoardSize = Annotated[int, Field(ge=2, le=10)]
HoleRatio = Annotated[float, Field(ge=0.0, le=0.5)]


class Boards(Section):
    """The solved boards whose plans are imitated."""

    num_agents: Annotated[int, Field(ge=2, le=5)] = 2
    shares: dict[BoardSize, Share] = Field(
        min_length=1, description="share of the boards by map size; they sum to 1"
    )
    hole_ratios: dict[HoleRatio, Share] = Field(
        min_length=1, description="share of the boards of each size by hole ratio; they sum to 1"
    )
    wait_ratio: Share = Field(0.5, description="share of the boards that need a wait")
    count: Positive = Field(100_000, description="different boards to draw batches from")
    max_candidates: Positive = Field(400_000, description="most boards drawn for one request")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The map sizes, ascending."""
        return tuple(sorted(self.shares))

    @model_validator(mode="after")
    def _can_be_made(self) -> Boards:
        for name, shares in (("shares", self.shares), ("hole_ratios", self.hole_ratios)):
            total = sum(shares.values())
            if abs(total - 1.0) > 1e-6:
                raise ValueError(f"{name}: must sum to 1, they sum to {total:g}")
        for size in self.shares:
            for holes in self.hole_ratios:
                if reason := infeasibility(size, holes, self.num_agents):
                    raise ValueError(f"hole_ratios: {reason}")
        return self


class Designs(Section):
    """The made-up contexts whose answers are imitated."""

    sizes: tuple[BoardSize, ...] = Field(
        (2, 3, 4, 5, 6, 7, 8, 9, 10), min_length=1, description="map sizes that contexts speak of"
    )
    groups: tuple[Positive, Positive] = Field(
        (2, 5), description="least and largest number of map sizes in one context"
    )
    count: Positive = Field(60_000, description="different contexts, half of them contrasts")
    share: Share = Field(0.15, description="share of the examples of a batch")
    first_share: Share = Field(
        0.6, description="share in the first steps: reading is learned fastest in few steps"
    )
    first_steps: Count = Field(1_000, description="steps with this share")
    last_share: Share = Field(0.5, description="share while the learning rate decays")

    @model_validator(mode="after")
    def _enough_sizes(self) -> Designs:
        least, most = self.groups
        if not least <= most <= len(self.sizes):
            raise ValueError(
                f"groups: got {least} to {most}, allowed are ascending numbers up to"
                f" {len(self.sizes)}, the number of sizes"
            )
        return self


class Optimization(Section):
    """How it is trained: by Muon, at a constant rate that falls to 0 over the last steps."""

    batch_size: Positive = Field(32, description="examples per step")
    learning_rate: PositiveFloat = Field(4e-3, description="of Muon, until it decays")
    warmup_steps: Positive = Field(100, description="steps until the learning rate is reached")
    weight_decay: NonNegative = Field(0.1, description="of the matrices of layers")
    most_steps: Positive = Field(10_000, description="it ends here whether the goal is met or not")
    decay_steps: Positive = Field(1_500, description="steps over which the learning rate decays")
    evaluate_every: Positive = Field(250, description="steps between two looks at the goal")
    checkpoint_every: Positive = Field(100, description="steps between two checkpoints")

    @model_validator(mode="after")
    def _in_order(self) -> Optimization:
        if self.warmup_steps + self.decay_steps > self.most_steps:
            raise ValueError(
                f"most_steps: got {self.most_steps}, allowed are at least warmup_steps +"
                f" decay_steps = {self.warmup_steps + self.decay_steps}"
            )
        return self


class Goal(Section):
    """What ends the pretraining, once it holds on held-out contexts and boards."""

    edits_right: Share = Field(0.97, description="share of edits that equal the rule's")
    flips: Share = Field(
        0.95, description="by fact: share of edits that change where the rule's change with it"
    )
    least_valid: Share = Field(
        0.1, description="valid rate in every cell of size, holes and waits, at temperature 1"
    )
    contexts: Positive = Field(64, description="pairs of held-out contexts per fact")
    boards_per_cell: Positive = Field(32, description="held-out boards per cell")
    validate_every: Positive = Field(1_000, description="steps between answers to these boards")


class PretrainConfig(Section):
    """Everything that decides a base model."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")] = Field(
        description="its files go to runs/NAME unless --run-dir says otherwise"
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    scratch: Scratch = Scratch()
    boards: Boards
    designs: Designs = Designs()
    optimization: Optimization = Optimization()
    goal: Goal = Goal()
    sampling: Sampling = Sampling()
    max_tokens: Positive = Field(48, description="longest plan, tokens")

    @model_validator(mode="after")
    def _validates_where_it_evaluates(self) -> PretrainConfig:
        every = self.optimization.evaluate_every
        if self.goal.validate_every % every:
            raise ValueError(
                f"goal.validate_every: got {self.goal.validate_every}, allowed are multiples of"
                f" optimization.evaluate_every = {every}"
            )
        return self


def load_pretrain(path: Path, overrides: list[str] | tuple[str, ...] = ()) -> PretrainConfig:
    """Read a YAML file; a `UserError` names the key, the value and what is allowed."""
    config: Any = load_as(PretrainConfig, path, overrides)
    assert isinstance(config, PretrainConfig)
    return config
