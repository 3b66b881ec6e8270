"""The sections `environment`, `prompt` and `validation` of runs on the lake."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from engineer.lake import Bounds, LakeConfiguration
from jaxlake.files import decode_text
from jaxlake.user_code import check_importable, is_code_name
from training.errors import shorten
from training.schema.section import Fraction, NumAgents, PositiveFraction, Section


class EnvironmentConfig(Section):
    """The lake: its agents, its initial configuration and the engineer's bounds."""

    kind: Literal["lake"] = Field(
        "lake",
        description="lake, or package.module:NAME of your environment, which has the keys "
        "settings and initial (docs/tutorials/your_environment.md)",
    )
    num_agents: NumAgents = Field(2, description="agents on every board")
    initial: LakeConfiguration = Field(
        description="configuration of the first stage; `random`: draw it with the seed"
    )
    bounds: Bounds = Field(description="bounds of every later configuration")
    max_candidates: PositiveInt = Field(
        200_000, description="maximum number of boards drawn to fill one request"
    )


TEMPLATES = (
    "the path of a text file, the text itself with {board} in it, and package.module:NAME of a "
    "function (board) -> str"
)
"""The allowed values of `prompt.template`."""


def read_template(value: str) -> str:
    """Return the text of a template, or the name of a function that writes prompts.

    A value without a brace is the path of a file. Its text is returned, so that a run's
    `config.yaml` contains the text itself.

    Raises:
        ValueError: The file can't be read, the function can't be imported, or `check_template`
            rejects the text.
    """
    if is_code_name(value):
        check_importable(value, TEMPLATES)
        return value
    from jaxlake.language.prompts import check_template  # imports JAX

    if "{" not in value:
        try:
            value = decode_text(Path(value).read_bytes())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ValueError(
                f"must be one of {TEMPLATES}, got {shorten(value)}, which can't be read ({reason})"
            ) from error
    try:
        return check_template(value)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("template: ")) from error


class PromptConfig(Section):
    """The wording of a board's prompt and the length limits of an answer."""

    style: Literal["compact", "full", "reasoned"] = Field(
        "compact",
        description="wording of the prompt; reasoned: the model thinks first and writes its plan "
        "between <answer> and </answer>",
    )
    template: Annotated[str, AfterValidator(read_template)] | None = Field(
        None,
        description=f"custom wording, replaces style: {TEMPLATES} (docs/tutorials/your_hooks.md)",
    )
    chat: bool = Field(False, description="wrap the prompt in the tokenizer's chat template")
    thinking: bool = Field(
        False,
        description="passed to the chat template as enable_thinking; with evaluate --endpoint, the "
        "answer starts after the thinking block unless the server returns reasoning separately",
    )
    max_tokens: PositiveInt = Field(48, description="longest completion, tokens")
    max_steps: PositiveInt = Field(64, description="longest plan per agent, steps")


class ValidationConfig(Section):
    """The fixed validation set: boards of every size, hole ratio and wait ratio."""

    sizes: tuple[Annotated[int, Field(ge=2, le=10)], ...] = Field(description="map sizes")
    hole_ratios: tuple[Annotated[float, Field(ge=0.0, le=0.5)], ...] = Field(
        description="fractions of cells that are holes"
    )
    wait_ratios: tuple[Fraction, ...] = Field(description="fractions of boards that need a wait")
    per_cell: PositiveInt = Field(
        10, description="boards per combination of size, hole ratio and wait ratio"
    )
    seed: int = Field(1, description="seed of the boards")
    temperature: NonNegativeFloat = Field(
        0.0, description="sampling temperature of the answers; 0: greedy"
    )
    top_p: PositiveFraction = Field(
        1.0, description="sample from the likeliest tokens of this total probability"
    )
    top_k: NonNegativeInt = Field(
        0, description="sample from this many likeliest tokens; 0: from all"
    )

    @property
    def num_settings(self) -> int:
        """The number of combinations of size, hole ratio and wait ratio."""
        return len(self.sizes) * len(self.hole_ratios) * len(self.wait_ratios)
