"""The sections `environment`, `prompt` and `validation` of runs on the lake."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from engineer.lake import Bounds, LakeConfiguration
from jaxlake.files import decode_text
from jaxlake.user_code import check_function, names_code
from training.errors import shortened
from training.schema.section import (
    Agents,
    Count,
    NonNegative,
    Positive,
    PositiveShare,
    Section,
    Share,
)


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


TEMPLATES = (
    "the path of a text file, the text itself with {board} in it, and package.module:NAME of a "
    "function (board) -> str"
)
"""The values that `prompt.template` may have."""


def read_template(value: str) -> str:
    """Return a template's text, or the name of the function that writes prompts.

    A value without a brace is the path of a file, of which the text is returned: a run's
    `config.yaml` then holds the text itself.

    Raises:
        ValueError: The file can't be read, the function can't be imported, or as `check_template`.
    """
    if names_code(value):
        check_function(value, TEMPLATES)
        return value
    from jaxlake.language.prompts import check_template  # imports JAX

    if "{" not in value:
        try:
            value = decode_text(Path(value).read_bytes())
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise ValueError(
                f"got {shortened(value)}, which can't be read ({why}); allowed are {TEMPLATES}"
            ) from error
    try:
        return check_template(value)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("template: ")) from error


class Prompt(Section):
    """How a board is put into words, and how long an answer may be."""

    style: Literal["compact", "full", "reasoned"] = Field(
        "compact",
        description="wording of the prompt; reasoned: the model thinks first, and its plan stands "
        "between <answer> and </answer>",
    )
    template: Annotated[str, AfterValidator(read_template)] | None = Field(
        None,
        description=f"wording in place of the style's: {TEMPLATES} (docs/tutorials/your_hooks.md)",
    )
    chat: bool = Field(False, description="wrap the prompt in the tokenizer's chat template")
    thinking: bool = Field(
        False,
        description="passed to the chat template as enable_thinking; with evaluate --endpoint: the "
        "answer counts after its thinking block, unless the server returns the reasoning apart",
    )
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
    top_p: PositiveShare = Field(
        1.0, description="answers are drawn from the likeliest tokens of this total probability"
    )
    top_k: Count = Field(0, description="answers are drawn from so many tokens; 0: from all")

    @property
    def cells(self) -> int:
        """The number of combinations of size, hole ratio and wait ratio."""
        return len(self.sizes) * len(self.hole_ratios) * len(self.wait_ratios)
