"""The section `engineer`: who writes the next configuration, and within which limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from engineer import BlockName, ContextStyle, Engineer, GateSettings
from engineer.engineers.catalogue import SCRIPTED
from engineer.engineers.controls import CONTROL_NAMES, split_control
from jaxlake.user_code import check_function, import_function, names_code
from training.errors import UserError, did_you_mean
from training.schema.endpoints import check_key, check_request, check_url, check_variable
from training.schema.section import Count, NonNegative, Positive, PositiveFloat, Section, Share

MODELS = ("checkpoint", "base", "model", "endpoint")
"""Engineers that read the context: the newest checkpoint, the model that the run began with, any
model in vLLM, any OpenAI-compatible endpoint."""

SYMBOLS: tuple[BlockName, ...] = ("failure_breakdown", "training_details", "history")
"""The blocks that a compact context shows."""

NOTE_TOKENS = 128
"""Longest notes for the summary block."""

_ALLOWED = (
    f"{', '.join((*MODELS, *SCRIPTED))}, package.module:NAME of an engineer, each also as "
    f"{CONTROL_NAMES}"
)


def known_engineer(kind: str) -> str:
    """Return a name that `engineer.kind` may have; a `ValueError` says which are allowed."""
    asked = split_control(kind)[1]
    if names_code(asked) and split_control(asked)[0] is None:
        check_function(asked, _ALLOWED)
    elif asked not in (*MODELS, *SCRIPTED):
        control, colon, _ = kind.rpartition(":")
        names = [f"{control}{colon}{name}" for name in (*MODELS, *SCRIPTED)]
        raise ValueError(f"got {kind!r}, allowed are {_ALLOWED}{did_you_mean(kind, names)}")
    return kind


def own_engineer(name: str) -> Engineer:
    """Make the engineer that `package.module:NAME` makes when it is called without arguments.

    Raises:
        UserError: It can't be made, or lacks a method or property of an `Engineer`.
    """
    try:
        made: Engineer = import_function(name, _ALLOWED)()
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"engineer.kind: {name}() can't be made ({why:.300})") from error
    if not isinstance(getattr(made, "name", None), str) or not callable(
        getattr(made, "propose", None)
    ):
        raise UserError(
            f"engineer.kind: {name}() made a {type(made).__name__}, an engineer with a name and a "
            "method propose(task) is needed"
        )
    return made


def check_engineer(choice: EngineerChoice) -> None:
    """Raise a `UserError`, before anything is trained, if the engineer could not be asked."""
    check_key(choice)
    if names_code(choice.asked):
        own_engineer(choice.asked)


class AtlasChoice(Section):
    """Which boards an atlas has the policy answer, and how often."""

    levels: Annotated[int, Field(ge=2)] = Field(
        4, description="hole ratios per map size, from 0 to the largest of which boards can be made"
    )
    boards_per_cell: Positive = Field(
        64,
        description="boards per size and hole ratio that need a wait, and as many that need none",
    )
    answers: Annotated[int, Field(ge=2)] = Field(
        8, description="answers per board, at the sampling temperature"
    )
    after_last: bool = Field(
        False, description="a run measures the atlas of its last stage for its report"
    )


class DesignLearning(Section):
    """Kind checkpoint: before it is asked, the policy learns from designs of its own.

    A design is sampled without constraints. In style full it is the whole text, reasoning included,
    of up to reasoning_tokens + max_tokens tokens.
    """

    updates: Positive = Field(8, description="GRPO updates after every stage")
    designs: Annotated[int, Field(ge=2)] = Field(
        16,
        description="answers per update to the stage's context, scored by its atlas; they are in "
        "memory at once",
    )


class Picking(Section):
    """Kind fixed: boards are picked one by one, whatever the configuration says."""

    method: Literal["sfl", "plr"] = Field(
        description="sfl: from a pool that the policy answers; plr: from boards of earlier stages"
    )
    pool: Annotated[int, Field(ge=4)] = Field(
        2_048,
        description="fresh boards per stage, of every kind of the atlas; a quarter as many boards "
        "are picked, those of the largest p(1-p), for half of the stage",
    )


class EngineerChoice(Section):
    """Who writes the next configuration, what the engineer reads, and how far it may go."""

    kind: Annotated[str, AfterValidator(known_engineer)] = Field(
        "checkpoint",
        description=f"{', '.join(MODELS)}, a scripted one, package.module:NAME of your own "
        f"(docs/tutorials/your_engineer.md), or {CONTROL_NAMES}",
    )
    model: str | None = Field(
        None, description="kind model: a folder or a hub name; kind endpoint: the model's name"
    )
    base_url: Annotated[str, AfterValidator(check_url)] | None = Field(
        None, description="kind endpoint: the address of the API, ending in /v1"
    )
    api_key_env: Annotated[str, AfterValidator(check_variable)] | None = Field(
        "OPENAI_API_KEY",
        description="kind endpoint: environment variable that holds the key; null: no key is sent",
    )
    request: Annotated[dict[str, Any], AfterValidator(check_request)] = Field(
        {},
        description="kind endpoint: further fields of each request, such as reasoning_effort; they "
        "stand in config.yaml",
    )
    timeout_seconds: PositiveFloat = Field(
        120.0, description="longest wait for one answer of a model other than the policy"
    )
    style: ContextStyle = Field("compact", description="wording of the context: full or compact")
    blocks: tuple[BlockName, ...] = Field(
        ("failure_breakdown", "training_details", "history"),
        description="blocks of the context; their order is fixed",
    )
    reading: Count = Field(
        0, description="contexts on which each stage's reading is measured; 0: it is not"
    )
    max_context_tokens: Positive | None = Field(None, description="cut to fit it; null: no limit")
    temperature: NonNegative = Field(0.3, description="sampling temperature of answers and notes")
    reasoning_tokens: Count = Field(
        0,
        description="style full: the engineer first writes freely, up to so many tokens; 0: it "
        "writes the configuration at once",
    )
    max_tokens: Positive = Field(256, description="longest answer, tokens; notes have up to 128")
    max_step: Share | None = Field(None, description="most a knob may change per stage; null: any")
    learning: DesignLearning | None = Field(
        None,
        description="null: the policy learns to design by imitation alone; style compact also "
        "rehearses the rule's edits here, style full has no such anchor",
    )
    picking: Picking | None = Field(
        None, description="null: instances are drawn from the configuration"
    )
    atlas: AtlasChoice = AtlasChoice()
    gate: GateSettings = GateSettings()

    @property
    def asked(self) -> str:
        """The engineer that answers: the kind without a control around it."""
        return split_control(self.kind)[1]

    @property
    def text_tokens(self) -> int:
        """The most tokens of reasoning and answer together."""
        return self.reasoning_tokens + self.max_tokens

    def token_limit(self, answer: bool) -> int:
        """Return how many tokens an answer, or else a note, may have."""
        return self.max_tokens if answer else NOTE_TOKENS

    @model_validator(mode="after")
    def _complete(self) -> EngineerChoice:
        if self.asked in ("model", "endpoint") and not self.model:
            raise ValueError(f"model: kind {self.asked!r} needs a model's name")
        if self.asked == "endpoint" and not self.base_url:
            raise ValueError("base_url: kind 'endpoint' needs the API's address")
        if self.style == "compact" and (unknown := [b for b in self.blocks if b not in SYMBOLS]):
            raise ValueError(
                f"blocks: got {', '.join(unknown)}, which style compact has no symbols for;"
                f" allowed are {', '.join(SYMBOLS)}"
            )
        if self.style == "compact" and self.reasoning_tokens:
            raise ValueError(
                f"reasoning_tokens: got {self.reasoning_tokens} with style compact, allowed is 0:"
                " a model that reads symbols writes edits alone"
            )
        if self.learning and self.kind != "checkpoint":
            raise ValueError(
                f"learning: got updates with kind {self.kind}, allowed is null, or kind checkpoint"
            )
        if self.picking and self.kind != "fixed":
            raise ValueError(
                f"picking: got method {self.picking.method} with kind {self.kind}, allowed is null,"
                " or kind fixed: picked boards follow no configuration"
            )
        if self.reading == 1 or (self.reading and self.style != "compact"):
            raise ValueError(
                f"reading: got {self.reading} with style {self.style}, allowed are 0, and from 2 on"
                " with style compact"
            )
        return self
