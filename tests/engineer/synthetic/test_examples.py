"""Synthetic design examples, and contexts with one fact changed."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from engineer.context.symbols import CompactContext, compact_text
from engineer.edits import edits_pattern, read_edits
from engineer.engineers.rule import compute_rule_edits
from engineer.lake import Bounds
from engineer.synthetic import (
    FACTS,
    make_contrasting_context,
    make_design_example,
    make_synthetic_contexts,
    replace_fact,
)
from tests.engineer import words
from tests.engineer.builders import ADDITION, make_lake

LAKE = make_lake()
TIGHT_LAKE = make_lake(Bounds(sizes=(4, 10), min_share=0.1, edit_steps=2))
DOMAINS = [LAKE, TIGHT_LAKE, words.DOMAIN, ADDITION]


def draw_contexts(domain=LAKE, count: int = 400, seed: int = 0, **options) -> list[CompactContext]:
    rng = np.random.default_rng(seed)
    contexts: list[CompactContext] = []
    while len(contexts) < count:
        contexts += make_synthetic_contexts(rng, domain, **options)
    return contexts


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_examples_pair_contexts_with_rule_edits(domain):
    for context in draw_contexts(domain, 100):
        example = make_design_example(context, domain)
        assert example.context == compact_text(context, domain)
        assert read_edits(example.answer, domain) == compute_rule_edits(context, domain)
        assert re.fullmatch(edits_pattern(domain), example.answer)


@pytest.mark.parametrize("fact", FACTS)
def test_replace_fact_changes_one_fact_per_group(fact):
    original, donor = draw_contexts(count=30)[3], draw_contexts(count=30, seed=1)[7]
    changed_context = replace_fact(original, donor, fact)
    assert (changed_context.state, changed_context.refused) == (original.state, original.refused)
    assert list(changed_context.groups) == list(original.groups)
    for group, row in changed_context.groups.items():
        assert getattr(row, fact) == getattr(donor.groups[group], fact)
        restored_row = replace(row, **{fact: getattr(original.groups[group], fact)})
        assert restored_row == original.groups[group]


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_contrasting_readout_changes_one_fact_and_the_answer(domain):
    rng = np.random.default_rng(2)
    candidates = draw_contexts(domain, 200)
    fact_counts: Counter[str] = Counter()
    for context in candidates:
        changed_context = make_contrasting_context(rng, context, candidates, domain)
        if changed_context is None:
            continue
        assert (changed_context.state, changed_context.refused) == (context.state, context.refused)
        changed_facts = {
            fact
            for fact in FACTS
            for group, row in changed_context.groups.items()
            if getattr(row, fact) != getattr(context.groups[group], fact)
        }
        assert len(changed_facts) == 1
        fact_counts += Counter(changed_facts)
        example = make_design_example(context, domain)
        changed_example = make_design_example(changed_context, domain)
        assert example.context != changed_example.context
        assert example.answer != changed_example.answer
    assert fact_counts.total() > 0.8 * len(candidates)
    # Failures decide between knobs, if they point to any and there are several.
    failures_matter = domain.causes and len(domain.space.difficulty_knobs) > 1
    assert set(fact_counts) == set(FACTS) - (set() if failures_matter else {"failures"})
