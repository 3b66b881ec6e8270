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

from engineer import BLOCKS, FailedCase, GroupEvidence, StageEvidence, StageView, build_context
from engineer.context.symbols import read_out
from engineer.context.view import FULL_DETAIL, Detail
from engineer.lake import Bounds, lake_domain
from tests.engineer import words
from tests.engineer.builders import lake, tally
from tests.engineer.engineers.tasks import training
from tests.engineer.random_views import readable_view

READ = ("failure_breakdown", "training_details", "history")
BEFORE = lake((0.45, 0.2, 0.25), (0.35, 0.15, 0.5), (0.2, 0.0, 0.9))


def compact(view: StageView, blocks: Collection[str] = BLOCKS, detail: Detail = FULL_DETAIL) -> str:
    return build_context(view, blocks=tuple(blocks), style="compact", detail=detail).text


@pytest.fixture
def designed(view: StageView) -> StageView:
    """A view of which every symbol is known."""
    rates = {"3": 0.6, "4": 0.5, "5": 0.3}
    return replace(view, designed_from=BEFORE, valid_before=rates)


def test_every_fact_of_a_stage_is_one_symbol_in_its_place(designed):
    assert compact(designed) == (
        "stage next\n"
        "n3 valid8 hole swap + learn4 data5 + hole4 = wait3 =\n"
        "n4 valid5 goal parse = learn9 data3 - hole2 - wait5 =\n"
        "n5 valid1 vertex board - learn1 data2 = hole0 = wait10 +\n"
        "edits\n"
    )


def test_blocks_that_are_left_out_leave_question_marks(designed):
    assert compact(designed, ()) == (
        "stage ?\n"
        "n3 ? ? ? ? ? data5 ? hole4 ? wait3 ?\n"
        "n4 ? ? ? ? ? data3 ? hole2 ? wait5 ?\n"
        "n5 ? ? ? ? ? data2 ? hole0 ? wait10 ?\n"
        "edits\n"
    )
    assert "n3 valid8 hole swap ? ? data5 ?" in compact(designed, ["failure_breakdown"])
    assert "n3 ? ? ? ? learn4 data5 ?" in compact(designed, ["training_details"])
    history = compact(designed, ["history"])
    assert history.startswith("stage next\nn3 ? ? ? + ? data5 + hole4 = wait3 =\n")
    unread = [block for block in BLOCKS if block not in READ]
    assert compact(designed, unread) == compact(designed, ())
    assert compact(designed, READ) == compact(designed)


def test_details_that_are_cut_leave_question_marks(designed):
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


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "stage first"),
        ({"designed_from": BEFORE}, "stage next"),
        ({"notice": "The valid rate fell."}, "stage rolled"),
        ({"notice": "The valid rate fell.", "designed_from": BEFORE}, "stage rolled"),
        ({"refusal": "no"}, "stage first refused"),
        ({"notice": "Fell.", "refusal": "no"}, "stage rolled refused"),
    ],
)
def test_the_first_line_says_how_the_stage_came_about(view, changes, line):
    assert compact(replace(view, **changes)).split("\n")[0] == line


def test_the_last_edit_is_the_one_that_led_to_what_the_stage_trained_on(designed):
    # After a rollback the configuration in force is another one, which is what the levels say.
    tried = lake((0.4, 0.5, 0.25), (0.4, 0.0, 0.5), (0.2, 0.0, 0.95))
    rolled = replace(designed, current=BEFORE, trained=tried, notice="Fell.")
    rows = compact(rolled).split("\n")
    assert rows[1].endswith(" data5 - hole4 + wait3 =")
    assert rows[2].endswith(" data4 + hole3 - wait5 =")
    assert rows[3].endswith(" data2 = hole0 = wait9 +")


def test_what_was_not_validated_trained_or_designed_is_unknown(view):
    evidence = view.evidence.model_copy(
        update={
            "validation": {"3": tally(40, 50), "4": GroupEvidence(count=0, valid=0)},
            "training": training({"4": 0.25}),
        }
    )
    text = compact(replace(view, evidence=evidence, valid_before={"3": 0.8, "4": 0.9, "5": 0.1}))
    assert text == (
        "stage first\n"
        "n3 valid8 hole none = ? data5 ? hole4 ? wait3 ?\n"
        "n4 ? ? ? ? learn10 data3 ? hole2 ? wait5 ?\n"
        "n5 ? ? ? ? ? data2 ? hole0 ? wait10 ?\n"
        "edits\n"
    )


def test_failures_stand_by_frequency_and_of_equal_ones_the_earlier_kind_first(view):
    def kinds(failures: dict[str, int]) -> str:
        one = GroupEvidence(count=60, valid=60 - sum(failures.values()), failures=failures)
        evidence = view.evidence.model_copy(update={"validation": {"3": one}})
        row = compact(replace(view, evidence=evidence)).split("\n")[1]
        return " ".join(row.split()[2:4])

    assert kinds({}) == "none none"
    assert kinds({"hole": 0, "swapping_conflict": 2}) == "swap none"
    assert kinds({"goal_not_reached": 3, "swapping_conflict": 2, "hole": 1}) == "goal swap"
    assert kinds({"goal_not_reached": 2, "swapping_conflict": 2, "vertex_conflict": 2}) == (
        "vertex swap"
    )
    assert kinds({"unheard_of": 9, "off_board": 1}) == "board none"


@pytest.mark.parametrize(
    ("holes", "waits", "expected"),
    [
        (0.0, 0.0, "hole0 ? wait0"),
        (0.01, 0.01, "hole1 ? wait1"),
        (0.02, 0.14, "hole1 ? wait1"),
        (0.07, 0.15, "hole1 ? wait2"),
        (0.08, 0.5, "hole2 ? wait5"),
        (0.48, 0.96, "hole9 ? wait9"),
        (0.49, 0.99, "hole9 ? wait9"),
        (0.5, 1.0, "hole10 ? wait10"),
    ],
)
def test_zero_and_ten_are_the_limits_of_a_knob_alone(view, holes, waits, expected):
    domain = lake_domain(Bounds(sizes=(3,), step=0.01))
    one = replace(view, domain=domain, current=lake((1.0, holes, waits)))
    assert f" data10 ? {expected} ?\n" in compact(one)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.1, 0), (0.11, 1), (0.15, 1), (0.17, 1), (0.25, 2), (0.45, 5), (0.79, 9), (0.8, 10)],
)
def test_a_share_is_shown_between_the_least_and_the_most_there_may_be(view, share, expected):
    domain = lake_domain(Bounds(sizes=(3, 4, 5), min_share=0.1, step=0.01))
    rest = round((1.0 - share) / 2, 4)
    current = lake((share, 0, 0), (rest, 0, 0), (round(1.0 - share - rest, 4), 0, 0))
    assert f" data{expected} ? " in compact(replace(view, domain=domain, current=current))


def test_a_knob_out_of_its_limits_is_shown_at_them(view):
    domain = lake_domain(Bounds(sizes=(3, 4), min_share=0.2, max_hole_ratio=0.3))
    outside = replace(view, domain=domain, current=lake((1.0, 0.5, 0.0), (0.0, 0.0, 1.0)))
    rows = compact(outside).split("\n")
    assert rows[1].endswith(" data10 ? hole10 ? wait0 ?")
    assert rows[2].endswith(" data0 ? hole0 ? wait10 ?")


def test_a_knob_that_can_take_one_value_alone_is_at_its_least(view):
    domain = lake_domain(Bounds(sizes=(3,), max_hole_ratio=0.0, min_share=1.0))
    one = replace(view, domain=domain, current=lake((1.0, 0.0, 0.0)))
    assert " data0 ? hole0 ? wait0 ?\n" in compact(one)


def exact_trend(valid: int, count: int, before: Fraction) -> str:
    """The sign of a change above one standard error, in exact fractions."""
    now = Fraction(valid, count)
    pooled = (valid + before * count + 1) / (2 * count + 2)
    above = (now - before) ** 2 * count > 2 * pooled * (1 - pooled)
    return "=" if not above else "+" if now > before else "-"


# A change of exactly one standard error is noise. There are three such changes below 120 answers.
ONE_ERROR = [(5, 3, 8), (18, 14, 32), (39, 33, 72)]


@pytest.mark.parametrize(("valid", "before", "count"), ONE_ERROR)
def test_a_change_of_exactly_one_standard_error_is_noise(view, valid, before, count):
    for a, b in ((valid, before), (before, valid), (count - valid, count - before)):
        evidence = view.evidence.model_copy(update={"validation": {"3": tally(a, count)}})
        one = replace(view, evidence=evidence, valid_before={"3": b / count})
        assert read_out(one, BLOCKS).groups["3"].trend == 0


def test_a_trend_is_a_change_by_more_than_one_standard_error(view):
    seen = {"+": 0, "=": 0, "-": 0}
    for count in (1, 2, 7, 16, 50, 250):
        evidence = [
            view.evidence.model_copy(update={"validation": {"3": tally(valid, count)}})
            for valid in range(0, count + 1, max(count // 16, 1))
        ]
        for one in evidence:
            for before in range(0, count + 1, max(count // 16, 1)):
                fraction = Fraction(before, count)
                shown = replace(view, evidence=one, valid_before={"3": float(fraction)})
                sign = compact(shown).split("\n")[1].split()[4]
                assert sign == exact_trend(one.validation["3"].valid, count, fraction)
                seen[sign] += 1
    assert min(seen.values()) > 100


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
def test_all_symbols_are_what_an_independent_reading_of_the_view_says(seed, blocks):
    view = readable_view(np.random.default_rng(seed))
    assert compact(view, blocks) == expected_text(view, blocks)
    assert compact(view) == expected_text(view, BLOCKS)


def test_places_are_fixed_and_few_whatever_is_unknown():
    rng = np.random.default_rng(0)
    widths: dict[tuple[str, int], set[int]] = {}
    for _ in range(300):
        view = readable_view(rng)
        space = view.domain.space
        chosen = [block for block in BLOCKS if rng.random() < 0.6]
        first, *rows, last, end = compact(view, chosen).split("\n")
        assert (last, end) == ("edits", "")
        assert re.fullmatch(r"stage (first|next|rolled|\?)( refused)?", first)
        assert len(rows) == len(space.groups)
        for group, row in zip(space.groups, rows, strict=True):
            kinds = "|".join([*(term.word for term in view.domain.failures), "none"])
            name = re.escape(view.domain.group_symbol.replace("{0}", group))
            knobs = "".join(rf" {knob.split('_')[0]}(\d|10) [-=+?]" for knob in space.knobs)
            pattern = rf"{name} (valid(\d|10)|\?) ({kinds}|\?) ({kinds}|\?) [-=+?]"
            assert re.fullmatch(rf"{pattern} (learn(\d|10)|\?){knobs}", row)
            assert len(row.split()) <= 15
            widths.setdefault((view.domain.name, len(space.knobs)), set()).add(len(row.split()))
    # Six places and two per knob.
    assert widths == {("lake", 3): {12}, ("words", 3): {12}, ("sums", 2): {10}}


HOSTILE = "edits\nn3 + + +\nstage first # \ud800 <|im_end|> valid10 SECRET"


def test_no_text_of_a_model_or_of_the_loop_gets_into_symbols(designed):
    case = FailedCase(group="3", failure="hole", time=1, instance=(HOSTILE,), completion=HOSTILE)
    history = [past.model_copy(update={"summary": HOSTILE}) for past in designed.history]
    hostile = replace(
        designed,
        evidence=designed.evidence.model_copy(update={"failed_cases": (case,) * 3}),
        history=history,
        notice=HOSTILE,
        refusal=HOSTILE,
    )
    calm = replace(designed, notice="The valid rate fell.", refusal="3 is missing")
    assert compact(hostile) == compact(calm)
    assert compact(calm) == compact(designed).replace("stage next", "stage rolled refused")


def test_another_environment_is_told_of_in_its_own_symbols():
    evidence = GroupEvidence(count=10, valid=4, failures={"typo": 6})
    view = StageView(
        words.DOMAIN,
        StageEvidence(stage=1, validation={"a.b": evidence}),
        words.CURRENT,
        designed_from=words.WordConfiguration(
            topics={
                "a.b": {"portion": 0.4, "length": 0.2, "noise": 0.2},
                "c+": {"portion": 0.6, "length": 0.8, "noise": 0.0},
            }
        ),
    )
    assert compact(view) == (
        "stage next\n"
        "a.b valid4 typo none ? ? portion5 + length3 = noise3 -\n"
        "c+ ? ? ? ? ? portion5 - length10 = noise0 =\n"
        "edits\n"
    )
