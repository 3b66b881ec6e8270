"""Compact contexts with the rule's edits, and contrasting pairs of them.

A model can imitate most edits without reading most of its context. Contrasting pairs reward
reading: the two contexts differ in one fact about all groups, and the rule's answers differ too.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

import numpy as np

from engineer.context.build import BlockName
from engineer.context.symbols import CompactContext, compact_text, make_compact_context
from engineer.domain import Domain
from engineer.edits import edits_text
from engineer.engineers.rule import compute_rule_edits
from engineer.synthetic.simulated_run import simulate_run

Fact = Literal["valid", "failures", "trend", "learnability", "levels", "last_edit"]
"""The facts in a row of symbols."""
FACTS: tuple[Fact, ...] = get_args(Fact)

_BLOCKS: tuple[BlockName, ...] = ("failure_breakdown", "training_details", "history")
_BLOCK_DROP_PROBABILITY = 0.1
_REFUSAL_PROBABILITY = 0.1
_MAX_DRAWS = 12


class DesignExample(NamedTuple):
    """A context and its target answer."""

    context: str
    answer: str


def make_design_example(context: CompactContext, domain: Domain) -> DesignExample:
    """Return the text of a context with the rule's answer."""
    return DesignExample(
        compact_text(context, domain), edits_text(compute_rule_edits(context, domain), domain)
    )


def make_synthetic_contexts(
    rng: np.random.Generator,
    domain: Domain,
    *,
    runs: int = 4,
    stages: int = 4,
    counts: tuple[int, int] = (16, 256),
) -> list[CompactContext]:
    """Return contexts of simulated runs, some with omitted blocks or after a rejected answer.

    Args:
        rng: The random generator.
        domain: The environment.
        runs: Number of simulated runs.
        stages: Maximum number of stages per run.
        counts: Minimum and maximum number of validation answers per group.
    """
    contexts = []
    for _ in range(runs):
        for view in simulate_run(rng, domain, int(rng.integers(1, stages + 1)), counts=counts):
            blocks = [block for block in _BLOCKS if rng.random() >= _BLOCK_DROP_PROBABILITY]
            refusal = "the answer could not be used" if rng.random() < _REFUSAL_PROBABILITY else ""
            contexts.append(make_compact_context(replace(view, refusal=refusal), blocks))
    return contexts


def replace_fact(context: CompactContext, source: CompactContext, fact: Fact) -> CompactContext:
    """Replace one fact of every group by the same fact of another context."""
    groups = {
        group: replace(row, **{fact: getattr(source.groups[group], fact)})
        for group, row in context.groups.items()
    }
    return replace(context, groups=groups)


def make_contrasting_context(
    rng: np.random.Generator,
    context: CompactContext,
    sources: Sequence[CompactContext],
    domain: Domain,
) -> CompactContext | None:
    """Replace one fact of a context such that the rule's answer changes.

    The fact and the source of its new value are drawn at random, up to 12 times. The result is None
    if the answer never changes.
    """
    answer = compute_rule_edits(context, domain)
    for _ in range(_MAX_DRAWS):
        fact = FACTS[int(rng.integers(len(FACTS)))]
        source = sources[int(rng.integers(len(sources)))]
        contrasting_context = replace_fact(context, source, fact)
        if compute_rule_edits(contrasting_context, domain) != answer:
            return contrasting_context
    return None
