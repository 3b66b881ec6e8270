"""The schema of `recipe.yaml`: the complete configuration of a base model."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from training.schema.model_sections import ScratchModelConfig
from training.schema.sampling_sections import SamplingConfig
from training.schema.section import Fraction, Section

BoardSize = Annotated[int, Field(ge=2, le=10)]
HoleRatio = Annotated[float, Field(ge=0.0, le=0.5)]


class Boards(Section):
    """Solved boards; the model imitates their plans."""

    num_agents: Annotated[int, Field(ge=2, le=5)] = 2
    shares: dict[BoardSize, Fraction] = Field(min_length=1)  # of the boards, by map size
    hole_ratios: dict[HoleRatio, Fraction] = Field(min_length=1)  # shares of each size's boards
    wait_ratio: Fraction = 0.5
    count: PositiveInt = 100_000
    max_candidates: PositiveInt = 400_000  # for one size and hole ratio
    steps: bool = False  # before its plan, an answer writes the agents' cells step by step

    @property
    def sizes(self) -> tuple[int, ...]:
        """The map sizes, ascending."""
        return tuple(sorted(self.shares))


class Designs(Section):
    """Simulated contexts; the model imitates the rule's answers to them."""

    sizes: tuple[BoardSize, ...] = Field((2, 3, 4, 5, 6, 7, 8, 9, 10), min_length=1)
    groups: tuple[PositiveInt, PositiveInt] = (2, 5)  # range of the number of sizes in a context
    count: PositiveInt = 60_000  # half of them with one fact swapped
    share: Fraction = 0.15  # fraction of each batch; the rest are plans for boards
    initial_share: Fraction = 0.6  # during `initial_steps`, because early reading is cheap to learn
    initial_steps: NonNegativeInt = 1_000
    final_share: Fraction = 0.5  # while the learning rate decays


class Optimization(Section):
    """Muon at a constant learning rate that falls to 0 over the last steps."""

    batch_size: PositiveInt = 32
    learning_rate: PositiveFloat = 4e-3
    warmup_steps: PositiveInt = 100
    weight_decay: NonNegativeFloat = 0.1
    max_steps: PositiveInt = 10_000
    decay_steps: PositiveInt = 1_500
    evaluate_every: PositiveInt = 250
    checkpoint_every: PositiveInt = 100


class Goal(Section):
    """The goals on held-out contexts and boards that end the training."""

    min_edit_accuracy: Fraction = 0.97  # fraction of edits that equal the rule's
    min_flip_rate: Fraction = (
        0.95  # per fact: share of the rule's changed edits that the model changes too
    )
    min_valid_rate: Fraction = 0.1  # in every cell of size, holes and waits, at temperature 1
    contexts: PositiveInt = 64  # pairs of held-out contexts per fact
    boards_per_cell: PositiveInt = 32
    validate_every: PositiveInt = 1_000  # steps; a multiple of optimization.evaluate_every


class Recipe(Section):
    """The complete configuration of a base model."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    scratch: ScratchModelConfig = ScratchModelConfig()
    boards: Boards
    designs: Designs = Designs()
    optimization: Optimization = Optimization()
    goal: Goal = Goal()
    sampling: SamplingConfig = SamplingConfig()
    max_tokens: PositiveInt = 48  # of an answered plan
