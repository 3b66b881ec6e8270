"""Compact contexts: one symbol per fact, against a reference implementation."""

import math
import re
from collections.abc import Collection
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer import BLOCKS, StageView, build_context
from engineer.context.symbols import make_compact_context
from engineer.context.view import FULL_DETAIL, Detail
from tests.engineer.builders import from_rows, hole_tally, random_view

PREVIOUS = from_rows((0.45, 0.2, 0.25), (0.35, 0.15, 0.5), (0.2, 0.0, 0.9))


def build_compact(
    view: StageView, blocks: Collection[str] = BLOCKS, detail: Detail = FULL_DETAIL
) -> str:
    return build_context(view, blocks=tuple(blocks), style="compact", detail=detail).text


@pytest.fixture
def complete_view(view: StageView) -> StageView:
    """Return a view in which every fact is known."""
    rates = {"3": 0.6, "4": 0.5, "5": 0.3}
    return replace(view, designed_from=PREVIOUS, valid_before=rates)


def test_compact_context_writes_one_symbol_per_fact(complete_view):
    assert build_compact(complete_view) == (
        "stage next\n"
        "n3 valid8 hole swap + learn4 data5 + hole4 = wait3 =\n"
        "n4 valid5 goal parse = learn9 data3 - hole2 - wait5 =\n"
        "n5 valid1 vertex board - learn1 data2 = hole0 = wait10 +\n"
        "edits\n"
    )


def test_omitted_facts_become_question_marks(complete_view):
    refused_view = replace(complete_view, refusal="n3 is missing")
    text = build_compact(refused_view)
    assert text.startswith("stage next refused\n")
    detail = FULL_DETAIL._replace(training=False)
    assert build_compact(refused_view, detail=detail) == re.sub(r"learn\d+", "?", text)
    detail = FULL_DETAIL._replace(history=0)
    expected = build_compact(refused_view, ["failure_breakdown", "training_details"])
    assert build_compact(refused_view, detail=detail) == expected
    detail = FULL_DETAIL._replace(refusal=False)
    assert build_compact(refused_view, detail=detail) == text.replace(" refused", "")
    # The rest of the details belongs to the other style.
    minimum = Detail(0, 1, *[False] * len(FULL_DETAIL[2:]))._replace(training=True, refusal=True)
    assert build_compact(refused_view, detail=minimum) == text


def exact_trend(valid: int, count: int, rate_before: Fraction) -> str:
    """Return the sign of a change above one standard error, in exact fractions."""
    rate = Fraction(valid, count)
    pooled_rate = (valid + rate_before * count + 1) / (2 * count + 2)
    significant = (rate - rate_before) ** 2 * count > 2 * pooled_rate * (1 - pooled_rate)
    return "=" if not significant else "+" if rate > rate_before else "-"


# The only three changes of exactly one standard error below 120 answers.
ONE_STANDARD_ERROR = [(5, 3, 8), (18, 14, 32), (39, 33, 72)]


@pytest.mark.parametrize(("valid", "other_valid", "count"), ONE_STANDARD_ERROR)
def test_change_of_one_standard_error_is_flat(view, valid, other_valid, count):
    for a, b in ((valid, other_valid), (other_valid, valid), (count - valid, count - other_valid)):
        evidence = view.evidence.model_copy(update={"validation": {"3": hole_tally(a, count)}})
        changed_view = replace(view, evidence=evidence, valid_before={"3": b / count})
        assert make_compact_context(changed_view, BLOCKS).groups["3"].trend == 0


def to_tenths(ratio: Fraction) -> int:
    """Round to tenths, halves up, in exact fractions."""
    return math.floor(10 * ratio + Fraction(1, 2))


def sign(start: float, end: float) -> str:
    return "+" if end > start else "-" if end < start else "="


def to_fraction(number: float) -> Fraction:
    """Return the shortest decimal of a number as a fraction."""
    return Fraction(Decimal(repr(number)))


def expected_text(view: StageView, blocks: Collection[str]) -> str:
    """Write a compact context independently of the package."""
    domain, space, evidence = view.domain, view.domain.space, view.evidence
    has_history = "history" in blocks
    state = "next" if view.designed_from else "first"
    lines = ["stage " + (("rolled" if view.notice else state) if has_history else "?")]
    lines[0] += " refused" if view.refusal else ""
    current, trained = view.current.values(), (view.trained or view.current).values()
    for group in space.groups:
        tally = evidence.validation.get(group)
        is_validated = tally is not None and tally.count > 0
        row = [domain.group_symbol.replace("{0}", group)]
        if is_validated and "failure_breakdown" in blocks:
            row.append(f"valid{to_tenths(Fraction(tally.valid, tally.count))}")
            # A stable sort by falling counts keeps the order of equal ones.
            counts = [(tally.failures.get(label.key, 0), label.word) for label in domain.failures]
            counts = [pair for pair in sorted(counts, key=lambda pair: -pair[0]) if pair[0]]
            row += ([word for _, word in counts] + ["none"] * 2)[:2]
        else:
            row += ["?"] * 3
        if is_validated and has_history and group in view.valid_before:
            row.append(exact_trend(tally.valid, tally.count, Fraction(view.valid_before[group])))
        else:
            row.append("?")
        learnability = evidence.training.learnability if evidence.training else {}
        if group in learnability and "training_details" in blocks:
            row.append(f"learn{to_tenths(to_fraction(learnability[group]) * 4)}")
        else:
            row.append("?")
        for knob in space.knobs:
            if knob == space.share:
                low = to_fraction(space.min_share)
                high = 1 - low * (len(space.groups) - 1)
            else:
                low, high = Fraction(0), to_fraction(space.maximum(knob))
            value = to_fraction(current[group][knob])
            if value in (low, high):
                level = 0 if value == low else 10
            else:
                level = min(max(to_tenths((value - low) / (high - low)), 1), 9)
            row.append(f"{knob.split('_')[0]}{level}")
            past = view.designed_from
            has_edit = past is not None and has_history
            row.append(sign(past.values()[group][knob], trained[group][knob]) if has_edit else "?")
        lines.append(" ".join(row))
    return "\n".join([*lines, "edits", ""])


@settings(max_examples=400)
@given(seed=st.integers(0, 2**32 - 1), blocks=st.sets(st.sampled_from(BLOCKS)))
def test_symbols_match_reference_implementation(seed, blocks):
    view = random_view(np.random.default_rng(seed))
    assert build_compact(view, blocks) == expected_text(view, blocks)
    assert build_compact(view) == expected_text(view, BLOCKS)
