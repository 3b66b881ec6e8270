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
from engineer.context.symbols import read_out
from engineer.context.view import FULL_DETAIL, Detail
from tests.engineer.builders import lake, readable_view, tally

BEFORE = lake((0.45, 0.2, 0.25), (0.35, 0.15, 0.5), (0.2, 0.0, 0.9))


def compact(view: StageView, blocks: Collection[str] = BLOCKS, detail: Detail = FULL_DETAIL) -> str:
    return build_context(view, blocks=tuple(blocks), style="compact", detail=detail).text


@pytest.fixture
def designed(view: StageView) -> StageView:
    """A view of which every symbol is known."""
    rates = {"3": 0.6, "4": 0.5, "5": 0.3}
    return replace(view, designed_from=BEFORE, valid_before=rates)


def test_compact_context_writes_one_symbol_per_fact(designed):
    assert compact(designed) == (
        "stage next\n"
        "n3 valid8 hole swap + learn4 data5 + hole4 = wait3 =\n"
        "n4 valid5 goal parse = learn9 data3 - hole2 - wait5 =\n"
        "n5 valid1 vertex board - learn1 data2 = hole0 = wait10 +\n"
        "edits\n"
    )


def test_omitted_facts_become_question_marks(designed):
    refused = replace(designed, refusal="n3 is missing")
    text = compact(refused)
    assert text.startswith("stage next refused\n")
    without = FULL_DETAIL._replace(training=False)
    assert compact(refused, detail=without) == re.sub(r"learn\d+", "?", text)
    without = FULL_DETAIL._replace(history=0)
    expected = compact(refused, ["failure_breakdown", "training_details"])
    assert compact(refused, detail=without) == expected
    without = FULL_DETAIL._replace(refusal=False)
    assert compact(refused, detail=without) == text.replace(" refused", "")
    # The rest of the details belongs to the other style.
    least = Detail(0, 1, *[False] * len(FULL_DETAIL[2:]))._replace(training=True, refusal=True)
    assert compact(refused, detail=least) == text


def exact_trend(valid: int, count: int, before: Fraction) -> str:
    """The sign of a change above one standard error, in exact fractions."""
    now = Fraction(valid, count)
    pooled = (valid + before * count + 1) / (2 * count + 2)
    above = (now - before) ** 2 * count > 2 * pooled * (1 - pooled)
    return "=" if not above else "+" if now > before else "-"


# A change of exactly one standard error is noise. There are three such changes below 120 answers.
ONE_ERROR = [(5, 3, 8), (18, 14, 32), (39, 33, 72)]


@pytest.mark.parametrize(("valid", "before", "count"), ONE_ERROR)
def test_change_of_one_standard_error_is_flat(view, valid, before, count):
    for a, b in ((valid, before), (before, valid), (count - valid, count - before)):
        evidence = view.evidence.model_copy(update={"validation": {"3": tally(a, count)}})
        one = replace(view, evidence=evidence, valid_before={"3": b / count})
        assert read_out(one, BLOCKS).groups["3"].trend == 0


def rounded(ratio: Fraction) -> int:
    """Tenths, halves rounded up, in exact fractions."""
    return math.floor(10 * ratio + Fraction(1, 2))


def sign(old: float, new: float) -> str:
    return "+" if new > old else "-" if new < old else "="


def exact(number: float) -> Fraction:
    """The shortest decimal of a number."""
    return Fraction(Decimal(repr(number)))


def expected_text(view: StageView, blocks: Collection[str]) -> str:
    """A compact context, written by other means than the package's."""
    domain, space, evidence = view.domain, view.domain.space, view.evidence
    past = "history" in blocks
    state = "next" if view.designed_from else "first"
    lines = ["stage " + (("rolled" if view.notice else state) if past else "?")]
    lines[0] += " refused" if view.refusal else ""
    now, trained = view.current.values(), (view.trained or view.current).values()
    for group in space.groups:
        one = evidence.validation.get(group)
        known = one is not None and one.count > 0
        row = [domain.group_symbol.replace("{0}", group)]
        if known and "failure_breakdown" in blocks:
            row.append(f"valid{rounded(Fraction(one.valid, one.count))}")
            # A stable sort by falling counts keeps the order of equal ones.
            found = [(one.failures.get(term.key, 0), term.word) for term in domain.failures]
            found = [pair for pair in sorted(found, key=lambda pair: -pair[0]) if pair[0]]
            row += ([word for _, word in found] + ["none"] * 2)[:2]
        else:
            row += ["?"] * 3
        if known and past and group in view.valid_before:
            row.append(exact_trend(one.valid, one.count, Fraction(view.valid_before[group])))
        else:
            row.append("?")
        measured = evidence.training.learnability if evidence.training else {}
        if group in measured and "training_details" in blocks:
            row.append(f"learn{rounded(exact(measured[group]) * 4)}")
        else:
            row.append("?")
        for knob in space.knobs:
            if knob == space.share:
                low = exact(space.min_share)
                high = 1 - low * (len(space.groups) - 1)
            else:
                low, high = Fraction(0), exact(space.maximum(knob))
            value = exact(now[group][knob])
            if value in (low, high):
                level = 0 if value == low else 10
            else:
                level = min(max(rounded((value - low) / (high - low)), 1), 9)
            row.append(f"{knob.split('_')[0]}{level}")
            old = view.designed_from
            edited = old is not None and past
            row.append(sign(old.values()[group][knob], trained[group][knob]) if edited else "?")
        lines.append(" ".join(row))
    return "\n".join([*lines, "edits", ""])


@settings(max_examples=400)
@given(seed=st.integers(0, 2**32 - 1), blocks=st.sets(st.sampled_from(BLOCKS)))
def test_symbols_match_reference_implementation(seed, blocks):
    view = readable_view(np.random.default_rng(seed))
    assert compact(view, blocks) == expected_text(view, blocks)
    assert compact(view) == expected_text(view, BLOCKS)
