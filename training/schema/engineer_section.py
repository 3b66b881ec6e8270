"""The section `engineer`: the engineer, its context and the limits of its answers."""

import importlib.util
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from engineer import BlockName, ContextStyle, Engineer, GateSettings
from engineer.engineers.catalogue import SCRIPTED_ENGINEERS
from engineer.engineers.controls import CONTROL_NAMES, split_control_name
from jaxlake.user_code import check_importable, import_function, is_code_name
from training.errors import UserError, did_you_mean
from training.schema.endpoints import check_key, check_request, check_url, check_variable
from training.schema.section import Fraction, Section

MODELS = ("checkpoint", "base", "model", "endpoint")
"""Engineers that read the context: the newest checkpoint, the run's initial model, any model in
vLLM, or any OpenAI-compatible endpoint."""

COMPACT_BLOCKS: tuple[BlockName, ...] = ("failure_breakdown", "training_details", "history")
"""The context blocks that style compact supports."""

NOTE_TOKENS = 128
"""Maximum length of the notes in the summary block, in tokens."""

_ALLOWED = (
    f"{', '.join((*MODELS, *SCRIPTED_ENGINEERS))}, package.module:NAME of an engineer, each also "
    f"as {CONTROL_NAMES}"
)


def check_engineer_kind(kind: str) -> str:
    """Return an `engineer.kind` unchanged; raise a `ValueError` if it is unknown."""
    base_kind = split_control_name(kind)[1]
    if is_code_name(base_kind) and split_control_name(base_kind)[0] is None:
        check_importable(base_kind, _ALLOWED)
    elif base_kind not in (*MODELS, *SCRIPTED_ENGINEERS):
        control, colon, _ = kind.rpartition(":")
        names = [f"{control}{colon}{name}" for name in (*MODELS, *SCRIPTED_ENGINEERS)]
        raise ValueError(f"got {kind!r}; it must be one of {_ALLOWED}{did_you_mean(kind, names)}")
    return kind


def import_engineer(name: str) -> Engineer:
    """Create the engineer `package.module:NAME`; raise a `UserError` if it is not an engineer."""
    try:
        engineer: Engineer = import_function(name, _ALLOWED)()
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"engineer.kind: {name}() raised {reason:.300}") from error
    if not isinstance(getattr(engineer, "name", None), str) or not callable(
        getattr(engineer, "propose", None)
    ):
        raise UserError(
            f"engineer.kind: {name}() must return an engineer with a name and a method "
            f"propose(task), got {type(engineer).__name__}"
        )
    return engineer


def check_engineer(settings: "EngineerConfig", sampler: str) -> None:
    """Raise a `UserError` if the engineer can't be used with this `sampling.engine`."""
    check_key(settings)
    if is_code_name(settings.base_kind):
        import_engineer(settings.base_kind)
    needs_xgrammar = sampler == "jax" and settings.base_kind == "checkpoint"
    if needs_xgrammar and importlib.util.find_spec("xgrammar") is None:
        raise UserError(
            f"engineer.kind is {settings.kind}, which needs xgrammar with sampling.engine jax: "
            "pip install xgrammar"
        )


class AtlasConfig(Section):
    """The boards of an atlas and the number of answers to each."""

    levels: Annotated[int, Field(ge=2)] = Field(
        4, description="hole ratios per map size, from 0 to the largest feasible one"
    )
    boards_per_cell: PositiveInt = Field(
        64,
        description="boards with a required wait per size and hole ratio, and as many without one",
    )
    answers: Annotated[int, Field(ge=2)] = Field(
        8, description="answers per board, at the sampling temperature"
    )
    after_last: bool = Field(
        False, description="measure the atlas of the last stage for the report"
    )


class DesignLearningConfig(Section):
    """Kind checkpoint: the policy learns from its own designs before it acts as the engineer.

    Designs are sampled without constraints. In style full, a design is the whole text, including
    the reasoning, of at most reasoning_tokens + max_tokens tokens.
    """

    updates: PositiveInt = Field(8, description="GRPO updates after every stage")
    designs: Annotated[int, Field(ge=2)] = Field(
        16,
        description="answers per update to the stage's context, scored by its atlas; memory must "
        "hold all of them",
    )


class PickingConfig(Section):
    """Kind fixed: pick boards one by one, independently of the configuration."""

    method: Literal["sfl", "plr"] = Field(
        description="sfl: pick from a pool that the policy answers; plr: from earlier stages"
    )
    pool: Annotated[int, Field(ge=4)] = Field(
        2_048,
        description="new boards per stage, from all cells of the atlas; the 25% with the largest "
        "p(1-p) make up half of the stage's boards",
    )


class EngineerConfig(Section):
    """The engineer that writes the next configuration, its context and its limits."""

    kind: Annotated[str, AfterValidator(check_engineer_kind)] = Field(
        "checkpoint",
        description=f"{', '.join(MODELS)}, a scripted one, package.module:NAME of your own "
        f"(docs/tutorials/your_engineer.md), or {CONTROL_NAMES}",
    )
    model: str | None = Field(
        None, description="kind model: folder or hub name; kind endpoint: name of the model"
    )
    base_url: Annotated[str, AfterValidator(check_url)] | None = Field(
        None, description="kind endpoint: address of the API, ending in /v1"
    )
    api_key_env: Annotated[str, AfterValidator(check_variable)] | None = Field(
        "OPENAI_API_KEY",
        description="kind endpoint: environment variable with the API key; null: send no key",
    )
    request: Annotated[dict[str, Any], AfterValidator(check_request)] = Field(
        {},
        description="kind endpoint: additional fields of each request, such as reasoning_effort; "
        "they are saved in config.yaml",
    )
    timeout_seconds: PositiveFloat = Field(
        120.0, description="timeout for one answer of a model other than the policy"
    )
    style: ContextStyle = Field("compact", description="wording of the context: full or compact")
    blocks: tuple[BlockName, ...] = Field(
        ("failure_breakdown", "training_details", "history"),
        description="blocks of the context; their order is fixed",
    )
    reading: NonNegativeInt = Field(
        0, description="contexts on which each stage's reading is measured; 0: don't measure it"
    )
    max_context_tokens: PositiveInt | None = Field(
        None, description="longest context, tokens; longer ones are cut; null: no limit"
    )
    temperature: NonNegativeFloat = Field(
        0.3, description="sampling temperature of answers and notes"
    )
    reasoning_tokens: NonNegativeInt = Field(
        0,
        description="style full: longest free text before the configuration, tokens; 0: write the "
        "configuration at once",
    )
    max_tokens: PositiveInt = Field(
        256, description="longest answer, tokens; notes are limited to 128 tokens"
    )
    max_step: Fraction | None = Field(
        None, description="largest change of a knob per stage; null: no limit"
    )
    learning: DesignLearningConfig | None = Field(
        None,
        description="null: the policy learns to design by imitation only; style compact also "
        "rehearses the rule's edits during these updates, style full does not",
    )
    picking: PickingConfig | None = Field(
        None, description="null: draw instances from the configuration"
    )
    atlas: AtlasConfig = AtlasConfig()
    gate: GateSettings = GateSettings()

    @property
    def base_kind(self) -> str:
        """The kind without its control prefix, such as `rule` for a shuffled rule."""
        return split_control_name(self.kind)[1]

    @property
    def text_tokens(self) -> int:
        """The maximum number of tokens of reasoning and answer together."""
        return self.reasoning_tokens + self.max_tokens

    def token_limit(self, is_answer: bool) -> int:
        """Return the maximum number of tokens of an answer, or of a note."""
        return self.max_tokens if is_answer else NOTE_TOKENS

    @model_validator(mode="after")
    def _check_consistency(self) -> "EngineerConfig":
        if self.base_kind in ("model", "endpoint") and not self.model:
            raise ValueError(f"model: kind {self.base_kind!r} needs a model's name")
        if self.base_kind == "endpoint" and not self.base_url:
            raise ValueError("base_url: kind 'endpoint' needs the API's address")
        unsupported_blocks = [block for block in self.blocks if block not in COMPACT_BLOCKS]
        if self.style == "compact" and unsupported_blocks:
            raise ValueError(
                f"blocks must be among {', '.join(COMPACT_BLOCKS)} in style compact, got"
                f" {', '.join(unsupported_blocks)}"
            )
        if self.style == "compact" and self.reasoning_tokens:
            raise ValueError(
                f"reasoning_tokens must be 0 with style compact, got {self.reasoning_tokens}:"
                " compact answers consist of edits only"
            )
        if self.learning and self.kind != "checkpoint":
            raise ValueError(
                f"learning must be null unless kind is checkpoint, got kind {self.kind}"
            )
        if self.picking and self.kind != "fixed":
            raise ValueError(
                f"picking must be null unless kind is fixed, got kind {self.kind}: it picks boards"
                " independently of the configuration"
            )
        if self.reading == 1 or (self.reading and self.style != "compact"):
            raise ValueError(
                "reading must be 0, or at least 2 with style compact, got "
                f"{self.reading} with style {self.style}"
            )
        return self
