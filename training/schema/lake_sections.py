"""The sections `environment`, `prompt` and `validation` of runs on the lake."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from engineer.lake import Bounds, LakeConfiguration
from jaxlake.language.prompts import PromptStyle
from training.schema.section import Agents, NonNegative, Positive, Section, Share


class Environment(Section):
    """The lake: how many agents, the first configuration, and what the engineer may ask for."""

    kind: Literal["lake"] = Field(
        "lake",
        description="lake, or package.module:NAME of an environment of your own, which then has "
        "the keys settings and initial (docs/tutorials/your_environment.md)",
    )
    num_agents: Agents = Field(2, description="agents on every board")
    initial: LakeConfiguration = Field(
        description="the configuration of the first stage; `random`: drawn by the seed"
    )
    bounds: Bounds = Field(description="what every later configuration must keep to")
    max_candidates: Positive = Field(200_000, description="most boards drawn to fill one request")


class Prompt(Section):
    """How a board is put into words, and how long an answer may be."""

    style: PromptStyle = Field(
        "compact",
        description="wording of the prompt; reasoned: the model thinks first, and its plan stands "
        "between <answer> and </answer>",
    )
    chat: bool = Field(False, description="wrap the prompt in the tokenizer's chat template")
    thinking: bool = Field(False, description="passed to the chat template as enable_thinking")
    max_tokens: Positive = Field(48, description="longest completion, tokens")
    max_steps: Positive = Field(64, description="longest plan of an agent, steps")


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
