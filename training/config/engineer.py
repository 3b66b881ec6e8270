"""The engineer's section of a run's configuration: who designs, and within which limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from engineer import BlockName, Budget, GateSettings, Style
from engineer.engineers.catalogue import SCRIPTED, SHUFFLED
from engineer.engineers.endpoint import LONGEST_WAIT, check_url, check_variable
from training.config.sections import Positive, Section, Share


def known_engineer(kind: str) -> str:
    """A name that `engineer.kind` may have.

    Raises:
      ValueError: it may not; the message says what may.
    """
    if kind != ORACLE and not _known_candidate(kind):
        allowed = ", ".join((*MODELS, *SCRIPTED))
        raise ValueError(
            f"got {kind!r}, allowed are {allowed}, each also as shuffled:NAME, and {ORACLE}"
        )
    return kind


def _known_candidate(kind: str) -> bool:
    return kind.removeprefix(SHUFFLED) in (*MODELS, *SCRIPTED)


def _known_candidates(kinds: tuple[str, ...]) -> tuple[str, ...]:
    if unknown := [kind for kind in kinds if not _known_candidate(kind)]:
        allowed = ", ".join((*MODELS, *SCRIPTED))
        raise ValueError(f"got {unknown[0]!r}, allowed are {allowed}, each also as shuffled:NAME")
    return kinds


def _address(base_url: str) -> str:
    check_url(base_url)
    return base_url


def _variable(name: str) -> str:
    check_variable(name)
    return name


MODELS = ("checkpoint", "stale", "base", "model", "endpoint")
"""Engineers that read the context: the newest checkpoint, an old one, the model that the run began
with, any model in vLLM, any OpenAI-compatible endpoint."""


ORACLE = "oracle"
"""The engineer that tries out what others propose, by training on it."""


class OracleChoice(Section):
    """Kind oracle: who proposes, and what trying a proposal out may cost."""

    candidates: Annotated[
        tuple[str, ...], Field(min_length=1), AfterValidator(_known_candidates)
    ] = Field(
        ("copy_previous", "failure_proportional", "learnability", "checkpoint"),
        description="other engineers, in the order in which they are asked",
    )
    max_probes: Positive = Field(4, description="configurations tried out after a round, at most")
    updates: Positive = Field(4, description="GRPO updates on each")
    per_cell: Positive = Field(10, description="fresh boards of each validation cell that score it")


class EngineerChoice(Section):
    """Who writes the next configuration, what they get to read, and how far they may go."""

    kind: Annotated[str, AfterValidator(known_engineer)] = Field(
        "checkpoint",
        description=f"{', '.join(MODELS)}, a scripted one, shuffled:NAME, or {ORACLE}",
    )
    model: str | None = Field(None, description="kind model: folder or hub name; endpoint: name")
    lag: Positive = Field(1, description="kind stale: how many stages old the checkpoint is")
    base_url: Annotated[str, AfterValidator(_address)] | None = Field(
        None, description="kind endpoint: the API's base, ending in /v1"
    )
    api_key_env: Annotated[str, AfterValidator(_variable)] | None = Field(
        "OPENAI_API_KEY", description="the variable that holds the key; null: none is sent"
    )
    timeout_seconds: Annotated[float, Field(gt=0.0)] = Field(
        120.0, description="of one answer of a model that is not the policy"
    )
    load_seconds: Annotated[float, Field(gt=0.0)] = Field(
        900.0, description="kinds stale, base and model: until the weights are loaded"
    )
    requests_per_minute: Annotated[float, Field(ge=60.0 / LONGEST_WAIT)] | None = Field(
        None, description="kind endpoint: the most that are sent; null: no limit"
    )
    style: Style = "compact"
    blocks: tuple[BlockName, ...] = ("failure_breakdown", "training_details", "history")
    max_context_tokens: Positive | None = Field(
        None, description="the context is cut to fit; null: any length"
    )
    attempts: Positive = Field(3, description="answers asked for before the last one is kept")
    temperature: Annotated[float, Field(ge=0.0)] = 0.3
    max_tokens: Positive = 256
    summary_tokens: Positive = Field(128, description="of the notes that the Summary block shows")
    max_step: Share | None = Field(
        None, description="largest change of any knob from one round to the next; null: any"
    )
    oracle: OracleChoice = OracleChoice()
    budget: Budget = Budget()
    gate: GateSettings = GateSettings()

    @property
    def asked(self) -> tuple[str, ...]:
        """Who answers in the end: the kind without a control around it, or all candidates."""
        kinds = self.oracle.candidates if self.kind == ORACLE else (self.kind,)
        return tuple(kind.rpartition(":")[2] for kind in kinds)

    def most_tokens(self, answer: bool, left: int | None) -> int:
        """How long an answer, or else a note, may be where so many tokens may still be spent."""
        most = self.max_tokens if answer else self.summary_tokens
        return most if left is None else min(most, left)

    @model_validator(mode="after")
    def _complete(self) -> EngineerChoice:
        for kind in self.asked:
            if kind in ("model", "endpoint") and not self.model:
                raise ValueError(f"model: kind {kind!r} needs a model's name")
            if kind == "endpoint" and not self.base_url:
                raise ValueError("base_url: kind 'endpoint' needs the API's address")
        return self
