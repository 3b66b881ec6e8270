"""Measure whether a model reads the evidence in its context, by swapping one fact at a time.

A swap replaces one fact of a context by the same fact of another context. A model that reads the
fact changes its edits where the rule changes its own (a flip), and gives the previous answer of the
rule a lower probability (the gap). `docs/reading.md` defines both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
from pydantic import ConfigDict, Field

from engineer.context.symbols import CompactContext, CompactRow, compact_text
from engineer.domain import Domain
from engineer.edits import EditError, Edits, edits_text, read_edits
from engineer.engineers.rule import compute_rule_edits
from engineer.space import FrozenModel
from engineer.synthetic import FACTS, Fact, make_synthetic_contexts, replace_fact

MIN_FLIP_RATE = 0.9
"""Minimum share of flipped edits for a model to count as reading a fact."""

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class MeasuredModel(Protocol):
    """Protocol of models that can be measured."""

    def answers(self, contexts: Sequence[str]) -> list[str]:
        """Return the greedy answer to each context, without constrained decoding."""

    def answer_costs(self, contexts: Sequence[str], answers: Sequence[str]) -> list[float]:
        """Return the negative log-probability of each answer, including its end, in nats."""


class FactEffect(FrozenModel):
    """The effect of swapping one fact on a model."""

    # Aliases are the keys of `reading.json`.
    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    fact: Fact
    gap: float  # mean increase in the cost of the rule's answer, nats
    gap_error: float = Field(ge=0.0)
    """Standard error of `gap` for independent contexts. It is too small for the contexts of a real
    run, which repeat."""
    rule_changes: int = Field(alias="turned", ge=0)  # edits of the rule that change with the swap
    flip_rate: Share | None = Field(alias="flips")
    """Share of the rule's changed edits at which the model's edit changes too; null without any."""


class ReadingReport(FrozenModel):
    """The reading measurements of a model."""

    # Aliases are the keys of `reading.json`.
    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    contexts: int = Field(ge=1)  # number of contexts without swaps
    answer_cost: float = Field(alias="nats", ge=0.0)  # mean cost of the rule's answers, nats
    well_formed: Share  # share of answers that are edits with balanced shares
    accuracy: Share = Field(alias="right")  # share of the model's edits that equal the rule's
    unedited: Share  # share of the rule's edits that are `=`
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
        """Whether the model follows all measurable facts, of which there must be at least one."""
        return not self.unread and any(effect.flip_rate is not None for effect in self.facts)

    def sentence(self) -> str:
        """Return a sentence that names the facts that the model reads."""
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
        unread = ", ".join(
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
            return f"It doesn't read: it does not follow {unread}."
        return f"It reads part of its evidence: it follows {followed}, but not {unread}."


@dataclass(frozen=True)
class ReadingSet:
    """Contexts of one domain, and variants of each with one swapped fact."""

    domain: Domain
    originals: tuple[CompactContext, ...]
    variants: dict[Fact, tuple[CompactContext, ...]]  # by swapped fact, in the order of `originals`


def make_reading_set(domain: Domain, count: int, seed: int) -> ReadingSet:
    """Draw `count` contexts with all blocks from simulated runs, and swap each of their facts."""
    rng = np.random.default_rng(seed)
    contexts: list[CompactContext] = []
    while len(contexts) < 2 * count:
        contexts += _complete_contexts(make_synthetic_contexts(rng, domain))
    originals, sources = contexts[:count], contexts[count : 2 * count]
    variants = {
        fact: tuple(
            replace_fact(context, source, fact)
            for context, source in zip(originals, sources, strict=True)
        )
        for fact in FACTS
    }
    return ReadingSet(domain, tuple(originals), variants)


def measure_reading(contexts: ReadingSet, model: MeasuredModel) -> ReadingReport:
    """Measure a model on all contexts of a set; errors of the model propagate."""
    domain, space = contexts.domain, contexts.domain.space
    rule_edits = [compute_rule_edits(context, domain) for context in contexts.originals]
    context_lists = [contexts.originals, *contexts.variants.values()]
    edits, *edits_by_fact = _answer_contexts(model, context_lists, domain)
    original_cost, *swapped_costs = _compute_costs(model, rule_edits, context_lists, domain)
    effects = []
    swaps = zip(contexts.variants.items(), edits_by_fact, swapped_costs, strict=True)
    for (fact, variants), swapped_edits, swapped_cost in swaps:
        cost_increase = swapped_cost - original_cost
        swapped_rule_edits = [compute_rule_edits(context, domain) for context in variants]
        flips = [
            model_answer[group][knob] != swapped_answer[group][knob]
            and _MALFORMED not in (model_answer[group][knob], swapped_answer[group][knob])
            for rule_answer, swapped_rule_answer, model_answer, swapped_answer in zip(
                rule_edits, swapped_rule_edits, edits, swapped_edits, strict=True
            )
            for group in space.groups
            for knob in space.knobs
            if rule_answer[group][knob] != swapped_rule_answer[group][knob]
        ]
        effects.append(
            FactEffect(
                fact=fact,
                gap=float(cost_increase.mean()),
                gap_error=float(cost_increase.std(ddof=1) / np.sqrt(len(cost_increase))),
                rule_changes=len(flips),
                flip_rate=float(np.mean(flips)) if flips else None,
            )
        )
    return ReadingReport(
        contexts=len(rule_edits),
        answer_cost=float(original_cost.mean()),
        well_formed=float(np.mean([_is_balanced(answer, domain) for answer in edits])),
        accuracy=_compute_accuracy(edits, rule_edits),
        unedited=_compute_accuracy([_uniform_edits(domain, 0)] * len(rule_edits), rule_edits),
        facts=tuple(effects),
    )


def _complete_contexts(contexts: Sequence[CompactContext]) -> list[CompactContext]:
    """Return the contexts that contain all blocks."""

    def is_complete(row: CompactRow) -> bool:
        return row.valid is not None and row.learnability is not None

    return [
        context
        for context in contexts
        if context.state is not None and all(map(is_complete, context.groups.values()))
    ]


_MALFORMED = 2
"""Placeholder for the edits of unusable answers, which never match and never flip."""


def _answer_contexts(
    model: MeasuredModel, context_lists: Sequence[Sequence[CompactContext]], domain: Domain
) -> list[list[Edits]]:
    """Return the model's edits for all contexts. One call lets the engine batch all of them."""
    texts = _format_contexts(context_lists, domain)
    edits = iter([_read_answer(text, domain) for text in model.answers(texts)])
    return [[next(edits) for _ in contexts] for contexts in context_lists]


def _format_contexts(
    context_lists: Sequence[Sequence[CompactContext]], domain: Domain
) -> list[str]:
    return [compact_text(context, domain) for contexts in context_lists for context in contexts]


def _read_answer(text: str, domain: Domain) -> Edits:
    try:
        edits = read_edits(text, domain)
    except EditError:
        edits = None
    return edits if edits is not None else _uniform_edits(domain, _MALFORMED)


def _compute_costs(
    model: MeasuredModel,
    rule_edits: Sequence[Edits],
    context_lists: Sequence[Sequence[CompactContext]],
    domain: Domain,
) -> np.ndarray:
    """Return the negative log-probability of the rule's answers, float (lists, contexts), nats."""
    answers = [edits_text(edits, domain) for edits in rule_edits] * len(context_lists)
    costs = model.answer_costs(_format_contexts(context_lists, domain), answers)
    return np.reshape(costs, (len(context_lists), len(rule_edits)))


def _uniform_edits(domain: Domain, edit: int) -> Edits:
    return {group: dict.fromkeys(domain.space.knobs, edit) for group in domain.space.groups}


def _compute_accuracy(edits: Sequence[Edits], rule_edits: Sequence[Edits]) -> float:
    matches = [
        answer[group][knob] == edit
        for answer, rule_answer in zip(edits, rule_edits, strict=True)
        for group, knobs in rule_answer.items()
        for knob, edit in knobs.items()
    ]
    return float(np.mean(matches))


def _is_balanced(edits: Edits, domain: Domain) -> bool:
    """Return whether shares move both up and down, or not at all."""
    share_edits = {edits[group][domain.space.share] for group in domain.space.groups}
    return _MALFORMED not in share_edits and (1 in share_edits) == (-1 in share_edits)


def format_reading(reading: ReadingReport) -> str:
    """Format a reading as a table and sentences."""
    lines = [
        f"{reading.contexts} contexts, {reading.answer_cost:.2f} nats per answer of the rule",
        f"well-formed answers {reading.well_formed:.1%}",
        f"edits as the rule's {reading.accuracy:.1%} (no edits at all {reading.unedited:.1%})",
    ]
    lines += ["", f"{'fact':<14}{'gap, nats':>16}{'flips':>8}{'edits':>7}"]
    for effect in reading.facts:
        gap = f"{effect.gap:.2f} +- {effect.gap_error:.2f}"
        rate = "-" if effect.flip_rate is None else f"{effect.flip_rate:.1%}"
        lines.append(f"{effect.fact:<14}{gap:>16}{rate:>8}{effect.rule_changes:>7}")
    return "\n".join([*lines, "", reading.sentence()])
