"""Measure whether a designing model reads its evidence, by swapping one fact at a time.

`docs/reading.md` defines gaps and flips.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
from pydantic import ConfigDict, Field

from engineer.context.symbols import GroupReadout, Readout, symbols_text
from engineer.domain import Domain
from engineer.edits import EditError, Edits, edits_text, read_edits
from engineer.engineers.rule import teacher_edits
from engineer.space import FrozenModel
from engineer.synthetic import FACTS, Fact, replace_fact, synthetic_readouts

MIN_FLIP_RATE = 0.9
"""Minimum share of flipped edits for a model to count as reading a fact."""

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class MeasuredModel(Protocol):
    """Protocol of the measured models."""

    def answers(self, contexts: Sequence[str]) -> list[str]:
        """Return the greedy answer to each context, without constrained decoding."""

    def answer_costs(self, contexts: Sequence[str], answers: Sequence[str]) -> list[float]:
        """Return the negative log-probability of each answer, including its end, in nats."""


class FactEffect(FrozenModel):
    """The effect of swapping one fact on a model."""

    # Aliases are the keys of `reading.json`.
    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    fact: Fact
    gap: float  # mean increase of the rule's answer's cost, nats
    gap_error: float = Field(ge=0.0)
    """Standard error of `gap`, assuming independent contexts. It is too small for contexts of a
    real run, where the same few recur."""
    rule_changes: int = Field(alias="turned", ge=0)  # edits of the rule that change with the swap
    flip_rate: Share | None = Field(alias="flips")
    """Share of these at which the model's edit changes too; null: there are none."""


class ReadingReport(FrozenModel):
    """The reading measurements of a model."""

    # Aliases are the keys of `reading.json`.
    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    contexts: int = Field(ge=1)  # contexts shown as they are
    answer_cost: float = Field(alias="nats", ge=0.0)  # mean cost of the rule's answers, nats
    well_formed: Share  # share of answers that hold edits, sums included
    right: Share  # share of the edits that equal the rule's
    unedited: Share  # the same for no edits at all
    facts: tuple[FactEffect, ...]

    @property
    def unread(self) -> tuple[Fact, ...]:
        """The facts that the model does not follow."""
        return tuple(
            effect.fact
            for effect in self.facts
            if effect.flip_rate is not None and effect.flip_rate < MIN_FLIP_RATE
        )

    @property
    def reads(self) -> bool:
        """Whether the model follows all measurable facts, and there is at least one."""
        return not self.unread and any(effect.flip_rate is not None for effect in self.facts)

    def sentence(self) -> str:
        """Return a sentence about the facts that the model reads."""
        rates = [effect.flip_rate for effect in self.facts if effect.flip_rate is not None]
        if not rates:
            return "Cannot tell whether it reads: no swap changes the rule's edits."
        if not self.unread:
            gaps = [effect.gap for effect in self.facts]
            return (
                f"It reads: for every fact at least {min(rates):.1%} of its edits change where the"
                f" rule's do, and one swapped fact makes the rule's answer {min(gaps):.1f} to"
                f" {max(gaps):.1f} nats less probable."
            )
        lacking = ", ".join(
            f"{effect.fact} ({effect.flip_rate:.1%})"
            for effect in self.facts
            if effect.fact in self.unread
        )
        followed = ", ".join(
            effect.fact
            for effect in self.facts
            if effect.flip_rate is not None and effect.fact not in self.unread
        )
        if not followed:
            return f"It doesn't read: it does not follow {lacking}."
        return f"It reads part of its evidence: it follows {followed}, but not {lacking}."


@dataclass(frozen=True)
class ReadingSet:
    """Contexts of one domain, and variants with one fact taken from another context."""

    domain: Domain
    plain: tuple[Readout, ...]
    swapped: dict[Fact, tuple[Readout, ...]]  # in the order of `plain`


def make_reading_set(domain: Domain, count: int, seed: int) -> ReadingSet:
    """Draw `count` stages of simulated runs with all blocks, and their variants."""
    rng = np.random.default_rng(seed)
    readouts: list[Readout] = []
    while len(readouts) < 2 * count:
        readouts += _complete_readouts(synthetic_readouts(rng, domain))
    plain, others = readouts[:count], readouts[count : 2 * count]
    swapped = {
        fact: tuple(
            replace_fact(one, other, fact) for one, other in zip(plain, others, strict=True)
        )
        for fact in FACTS
    }
    return ReadingSet(domain, tuple(plain), swapped)


def measure_reading(contexts: ReadingSet, model: MeasuredModel) -> ReadingReport:
    """Measure a model on all contexts of a set; errors of the model propagate."""
    domain, space = contexts.domain, contexts.domain.space
    truth = [teacher_edits(readout, domain) for readout in contexts.plain]
    shown = [contexts.plain, *contexts.swapped.values()]
    edits, *edits_by_fact = _ask_all(model, shown, domain)
    cost, *costs = _costs(model, truth, shown, domain)
    effects = []
    swaps = zip(contexts.swapped.items(), edits_by_fact, costs, strict=True)
    for (fact, swapped), swapped_edits, swapped_cost in swaps:
        increase = swapped_cost - cost
        swapped_truth = [teacher_edits(readout, domain) for readout in swapped]
        flipped = [
            old[group][knob] != new[group][knob]
            and _MALFORMED not in (old[group][knob], new[group][knob])
            for before, after, old, new in zip(
                truth, swapped_truth, edits, swapped_edits, strict=True
            )
            for group in space.groups
            for knob in space.knobs
            if before[group][knob] != after[group][knob]
        ]
        effects.append(
            FactEffect(
                fact=fact,
                gap=float(increase.mean()),
                gap_error=float(increase.std(ddof=1) / np.sqrt(len(increase))),
                rule_changes=len(flipped),
                flip_rate=float(np.mean(flipped)) if flipped else None,
            )
        )
    well_formed = [_balanced(one, domain) for one in edits]
    return ReadingReport(
        contexts=len(truth),
        answer_cost=float(cost.mean()),
        well_formed=float(np.mean(well_formed)),
        right=_share_right(edits, truth),
        unedited=_share_right([_every(domain, 0)] * len(truth), truth),
        facts=tuple(effects),
    )


def _complete_readouts(readouts: Sequence[Readout]) -> list[Readout]:
    """Return the contexts without omitted blocks."""

    def whole(row: GroupReadout) -> bool:
        return row.valid is not None and row.learnability is not None

    return [
        one for one in readouts if one.state is not None and all(map(whole, one.groups.values()))
    ]


def _texts(readouts: Sequence[Readout], domain: Domain) -> list[str]:
    return [symbols_text(readout, domain) for readout in readouts]


_MALFORMED = 2
"""Placeholder for the edits of unusable answers, which never match or flip."""


def _ask_all(
    model: MeasuredModel, shown: Sequence[Sequence[Readout]], domain: Domain
) -> list[list[Edits]]:
    """Ask about all lists of contexts in one call, which is faster on batching engines."""
    texts = [text for readouts in shown for text in _texts(readouts, domain)]
    edits = iter([_read_answer(text, domain) for text in model.answers(texts)])
    return [[next(edits) for _ in readouts] for readouts in shown]


def _read_answer(text: str, domain: Domain) -> Edits:
    try:
        edits = read_edits(text, domain)
    except EditError:
        edits = None
    return edits if edits is not None else _every(domain, _MALFORMED)


def _costs(
    model: MeasuredModel, truth: Sequence[Edits], shown: Sequence[Sequence[Readout]], domain: Domain
) -> np.ndarray:
    """Return the negative log-probability of the rule's answers, float (lists, contexts), nats."""
    answers = [edits_text(one, domain) for one in truth] * len(shown)
    texts = [text for readouts in shown for text in _texts(readouts, domain)]
    return np.reshape(model.answer_costs(texts, answers), (len(shown), len(truth)))


def _every(domain: Domain, edit: int) -> Edits:
    return {group: dict.fromkeys(domain.space.knobs, edit) for group in domain.space.groups}


def _share_right(edits: Sequence[Edits], truth: Sequence[Edits]) -> float:
    right = [
        answer[group][knob] == edit
        for answer, expected in zip(edits, truth, strict=True)
        for group, knobs in expected.items()
        for knob, edit in knobs.items()
    ]
    return float(np.mean(right))


def _balanced(edits: Edits, domain: Domain) -> bool:
    """Return whether edits of shares go both up and down, or do not occur."""
    moves = {edits[group][domain.space.share] for group in domain.space.groups}
    return _MALFORMED not in moves and (1 in moves) == (-1 in moves)


def format_reading(reading: ReadingReport) -> str:
    """Format a reading as a table and sentences."""
    lines = [
        f"{reading.contexts} contexts, {reading.answer_cost:.2f} nats per answer of the rule",
        f"well-formed answers {reading.well_formed:.1%}",
        f"edits as the rule's {reading.right:.1%} (no edits at all {reading.unedited:.1%})",
    ]
    lines += ["", f"{'fact':<14}{'gap, nats':>16}{'flips':>8}{'edits':>7}"]
    for effect in reading.facts:
        gap = f"{effect.gap:.2f} +- {effect.gap_error:.2f}"
        rate = "-" if effect.flip_rate is None else f"{effect.flip_rate:.1%}"
        lines.append(f"{effect.fact:<14}{gap:>16}{rate:>8}{effect.rule_changes:>7}")
    return "\n".join([*lines, "", reading.sentence()])
