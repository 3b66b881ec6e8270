"""Contexts of random lakes with the rule's edits, for imitation and for the evidence test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from engineer import Domain
from engineer.context.symbols import CompactContext
from engineer.engineers.rule import compute_rule_edits
from engineer.lake import Bounds, lake_domain
from engineer.synthetic import (
    FACTS,
    DesignExample,
    Fact,
    make_contrasting_context,
    make_design_example,
    make_synthetic_contexts,
    replace_fact,
)
from examples.base_model.recipe import Designs

RUNS_PER_LAKE = 4
"""Simulated runs per random lake, whose stages exchange facts for contrasts."""
MAX_STAGES = 5
"""Maximum number of stages of a simulated run."""


class SwapPair(NamedTuple):
    """Two contexts that differ in one fact, and the rule's answers, which differ too."""

    fact: Fact
    plain: DesignExample
    swapped: DesignExample


def draw_examples(rng: np.random.Generator, settings: Designs) -> list[DesignExample]:
    """Draw `settings.count` different contexts with answers; a contrast follows its original."""
    examples: dict[str, DesignExample] = {}
    while len(examples) < settings.count:
        domain, contexts = _draw_lake(rng, settings)
        for context in contexts:
            contrast = make_contrasting_context(rng, context, contexts, domain)
            for candidate in (context, contrast):
                if candidate is not None:
                    example = make_design_example(candidate, domain)
                    examples.setdefault(example.context, example)
    return list(examples.values())[: settings.count]


def draw_swaps(rng: np.random.Generator, settings: Designs, pairs_per_fact: int) -> list[SwapPair]:
    """Draw pairs of contexts per fact in which the swap changes the rule's answer."""
    pairs: dict[Fact, list[SwapPair]] = {fact: [] for fact in FACTS}
    while any(len(swaps) < pairs_per_fact for swaps in pairs.values()):
        for fact, pair in _draw_swap_candidates(rng, settings):
            if len(pairs[fact]) < pairs_per_fact:
                pairs[fact].append(pair)
    return [pair for swaps in pairs.values() for pair in swaps]


def _draw_swap_candidates(
    rng: np.random.Generator, settings: Designs
) -> Iterator[tuple[Fact, SwapPair]]:
    domain, contexts = _draw_lake(rng, settings)
    for context in contexts:
        fact = FACTS[int(rng.integers(len(FACTS)))]
        swap = replace_fact(context, contexts[int(rng.integers(len(contexts)))], fact)
        if compute_rule_edits(swap, domain) != compute_rule_edits(context, domain):
            examples = (make_design_example(variant, domain) for variant in (context, swap))
            yield fact, SwapPair(fact, *examples)


def _draw_lake(rng: np.random.Generator, settings: Designs) -> tuple[Domain, list[CompactContext]]:
    """Draw a lake with random bounds, and stages of simulated runs on it."""
    min_groups, max_groups = settings.groups
    num_groups = int(rng.integers(min_groups, max_groups + 1))
    sizes = sorted(rng.choice(settings.sizes, num_groups, replace=False).tolist())
    bounds = Bounds(
        sizes=tuple(sizes),
        max_hole_ratio=float(rng.choice([0.2, 0.3, 0.4, 0.5])),
        max_wait_ratio=float(rng.choice([0.3, 0.5, 1.0])),
        min_share=float(rng.choice([0.0, 0.05, 0.1])),
        edit_steps=int(rng.choice([1, 1, 2, 4])),
    )
    domain = lake_domain(bounds, acceptance=None)
    return domain, make_synthetic_contexts(rng, domain, runs=RUNS_PER_LAKE, stages=MAX_STAGES)
