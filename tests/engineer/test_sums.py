"""Column addition, the second environment, against plain counting and schoolbook addition."""

import json
import math
import re
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from engineer.context import STYLES, View, build_context
from engineer.domain import InfeasibleError
from engineer.engineers import RuleEngineer
from engineer.engineers.catalogue import SCRIPTED, Setup, scripted
from engineer.evidence import StageEvidence
from engineer.learnability import learnability_model
from engineer.pipeline import Guard, review
from engineer.space import answer_pattern, answer_text
from engineer.sums import (
    DigitKnobs,
    Kind,
    Sum,
    SumsBounds,
    SumsConfiguration,
    existing,
    generate,
    quotas,
    statistics,
    sums_domain,
    sums_evidence,
    verify,
)
from engineer.sums.__main__ import main
from engineer.sums.domain import FAILURES, STATISTICS
from engineer.sums.learning import Course, train
from engineer.sums.loop import BOUNDS, INITIAL, Loop, run
from engineer.sums.trainee import END, Trainee, answer, columns_of, untrained

ROOT = Path(__file__).resolve().parents[2]


def one_group(digits: int, carry: float, third: float) -> SumsConfiguration:
    return SumsConfiguration(
        digits={digits: DigitKnobs(data_ratio=1.0, carry_ratio=carry, third_ratio=third)}
    )


def schoolbook(operands: tuple[int, ...]) -> tuple[str, list[int]]:
    """The sum as on paper: its digits, and the carries written above the columns, lowest first."""
    rows = [str(one)[::-1] for one in operands]
    carries, digits = [0], ""
    for column in range(len(rows[0])):
        amount = carries[-1]
        for row in rows:
            amount += int(row[column])
        digits += str(amount)[-1]
        carries.append(0 if amount < 10 else int(str(amount)[0]))
    return ((str(carries[-1]) if carries[-1] else "") + digits[::-1]), carries


def every_sum(digits: int, operands: int) -> list[tuple[int, ...]]:
    numbers = range(10) if digits == 1 else range(10 ** (digits - 1), 10**digits)
    return list(product(numbers, repeat=operands))


def carries(operands: tuple[int, ...]) -> bool:
    return any(schoolbook(operands)[1])


@st.composite
def sums(draw, most: int = 6) -> Sum:
    digits = draw(st.integers(1, most))
    number = st.integers(0 if digits == 1 else 10 ** (digits - 1), 10**digits - 1)
    return Sum(tuple(draw(st.lists(number, min_size=2, max_size=3))))


@st.composite
def configurations(draw, bounds: SumsBounds = BOUNDS) -> SumsConfiguration:
    """On the grid and within the bounds."""
    least = bounds.to_units(bounds.min_share)
    spare = bounds.units - least * len(bounds.digits)
    cuts = sorted(draw(st.tuples(*[st.integers(0, spare)] * (len(bounds.digits) - 1))))
    parts = [b - a for a, b in zip([0, *cuts], [*cuts, spare], strict=True)]
    ratio = st.integers(0, bounds.units).map(bounds.from_units)
    return SumsConfiguration(
        digits={
            digits: DigitKnobs(
                data_ratio=bounds.from_units(least + part),
                carry_ratio=draw(ratio),
                third_ratio=draw(ratio),
            )
            for digits, part in zip(bounds.digits, parts, strict=True)
        }
    )


# Sums and their generator


@pytest.mark.parametrize(("digits", "operands"), [(1, 2), (1, 3), (2, 2)])
def test_kinds_are_as_large_as_counting_says(digits, operands):
    counted = Counter(carries(one) for one in every_sum(digits, operands))
    for carry in (False, True):
        assert existing(Kind(digits, operands, carry)) == counted[carry]


@pytest.mark.parametrize("digits", [2, 3, 6])
@pytest.mark.parametrize("operands", [2, 3])
def test_kinds_of_long_numbers_make_up_all_sums_of_their_size(digits, operands):
    total = sum(existing(Kind(digits, operands, carry)) for carry in (False, True))
    assert total == (9 * 10 ** (digits - 1)) ** operands


@pytest.mark.parametrize("operands", [2, 3])
@pytest.mark.parametrize("carry", [0.0, 1.0])
def test_all_sums_of_a_kind_are_drawn_when_all_are_asked_for(operands, carry):
    wanted = {one for one in every_sum(1, operands) if carries(one) == bool(carry)}
    drawn = generate(one_group(1, carry, float(operands - 2)), len(wanted), seed=3)
    assert {one.operands for one in drawn} == wanted
    assert len(drawn) == len(wanted)


@settings(max_examples=60, deadline=None)
@given(configuration=configurations(), count=st.integers(0, 60), seed=st.integers(0, 2**32))
def test_quotas_are_met_by_different_sums(configuration, count, seed):
    drawn = generate(configuration, count, seed)
    assert drawn == generate(configuration, count, seed)
    assert len(set(drawn)) == len(drawn) == count
    for digits, knobs in configuration.digits.items():
        group = [one.operands for one in drawn if len(str(one.operands[0])) == digits]
        assert abs(len(group) - knobs.data_ratio * count) < 1
        with_carry = sum(carries(one) for one in group)
        with_three = sum(len(one) == 3 for one in group)
        assert abs(with_carry - knobs.carry_ratio * len(group)) <= 0.5 + 1e-6
        assert abs(with_three - knobs.third_ratio * len(group)) <= 0.5 + 1e-6


@settings(max_examples=60, deadline=None)
@given(configuration=configurations(), count=st.integers(0, 3000))
def test_quotas_of_kinds_are_never_negative_and_make_up_the_stage(configuration, count):
    parts = quotas(configuration, count)
    assert sum(parts.values()) == count
    assert min(parts.values()) >= 0


def test_carries_are_as_frequent_with_three_operands_as_with_two():
    drawn = generate(one_group(3, 0.25, 0.4), 200, seed=0)
    counts = Counter((len(one.operands), carries(one.operands)) for one in drawn)
    assert counts == {(2, False): 90, (2, True): 30, (3, False): 60, (3, True): 20}


def test_what_does_not_exist_is_reported_missing():
    configuration = one_group(1, 1.0, 0.0)
    drawn = generate(configuration, 60, seed=0)
    assert len(set(drawn)) == len(drawn) == 45
    assert statistics(configuration, 60, drawn)["1"] == {
        "carries": 1.0,
        "operands": 2.0,
        "missing": 15.0,
    }


def test_held_out_sums_never_come():
    held_out = generate(one_group(1, 1.0, 0.0), 20, seed=1)
    for asked in (25, 45):
        rest = generate(one_group(1, 1.0, 0.0), asked, seed=2, held_out=held_out)
        assert len(set(rest)) == len(rest) == 25
        assert not set(rest) & set(held_out)


def test_other_seeds_draw_other_sums_all_over_their_kind():
    draws = [generate(one_group(2, 0.5, 0.0), 200, seed) for seed in range(20)]
    assert len(set(draws)) == 20
    seen = Counter(one.operands for drawn in draws for one in drawn)
    # 4,000 draws from 1,980 + 6,120 sums: 2,000 of 1,980 give 1,260 different ones, 2,000 of 6,120
    # give 1,710, if all are equally likely.
    assert 2850 < len(seen) < 3100
    assert {one[0] for one in seen} == set(range(10, 100))


def test_a_negative_count_is_refused():
    with pytest.raises(ValueError, match="count must be at least 0, got -1"):
        generate(one_group(1, 0.0, 0.0), -1, seed=0)


@pytest.mark.parametrize("operands", [(4,), (1, 2, 3, 4), (5, 10), (-1, 2)])
def test_what_is_no_column_addition_is_refused(operands):
    with pytest.raises(ValueError, match="operands must"):
        Sum(operands)


# The verifier


@settings(deadline=None)
@given(one=sums())
def test_the_sum_is_the_only_right_answer(one):
    right, above = schoolbook(one.operands)
    assert int(right) == sum(one.operands)
    assert verify(one, right) == (None, None)
    assert verify(one, f" {right}\n").valid
    assert not verify(one, "0" + right).valid
    assert one.carries == sum(carry > 0 for carry in above)


def expected_failure(one: Sum, text: str) -> tuple[str | None, int | None]:
    """The taxonomy, from the digits and carries of schoolbook addition."""
    right, above = schoolbook(one.operands)
    width = max(len(right), len(text))
    for column in range(width):
        place = width - 1 - column
        due, given_digit = right.rjust(width)[place], text.rjust(width)[place]
        if due == given_digit:
            continue
        if " " in (due, given_digit):
            return "wrong_length", column
        carry = above[column] if column < len(above) else 0
        if carry and given_digit == str((int(due) - carry) % 10):
            return "carry_missed", column
        return "wrong_digit", column
    return None, None


@settings(max_examples=300, deadline=None)
@given(one=sums(4), data=st.data())
def test_the_first_failure_is_found_and_named_as_on_paper(one, data):
    right = list(schoolbook(one.operands)[0])
    for place in data.draw(st.sets(st.integers(0, len(right) - 1))):
        right[place] = str(data.draw(st.integers(0, 9)))
    cut = data.draw(st.integers(0, 1))
    text = data.draw(st.sampled_from(["", "0", "7"])) + "".join(right)[cut:]
    assume(text)
    assert verify(one, text) == expected_failure(one, text)


@settings(deadline=None)
@given(one=sums(), data=st.data())
def test_a_carry_left_out_is_called_a_missed_carry(one, data):
    right, above = schoolbook(one.operands)
    columns = [column for column in range(len(right)) if above[column]]
    assume(columns)
    column = data.draw(st.sampled_from(columns))
    place = len(right) - 1 - column
    dropped = str((int(right[place]) - above[column]) % 10)
    text = right[:place] + dropped + right[place + 1 :]
    assert verify(one, text) == ("carry_missed", column)


@pytest.mark.parametrize(
    ("answer_text", "failure", "time"),
    [
        ("132", None, None),
        ("122", "carry_missed", 1),
        ("22", "carry_missed", 1),
        ("032", "carry_missed", 2),
        ("32", "wrong_length", 2),
        ("1132", "wrong_length", 3),
        ("0132", "wrong_length", 3),
        ("232", "wrong_digit", 2),
        ("131", "wrong_digit", 0),
        ("1", "wrong_digit", 0),
        ("", "parse_error", None),
        ("-132", "parse_error", None),
        ("132.0", "parse_error", None),
        ("1 32", "parse_error", None),
        ("it is 132", "parse_error", None),
        ("١٣٢", "parse_error", None),
        ("1³2", "parse_error", None),
    ],
)
def test_answers_to_47_plus_85(answer_text, failure, time):
    assert verify(Sum((47, 85)), answer_text) == (failure, time)


@settings(deadline=None)
@given(text=st.text())
@example("9" * 50_000)
@example("2" * 49_997 + "132")
def test_any_text_has_a_verdict_of_the_taxonomy(text):
    verdict = verify(Sum((47, 85)), text)
    assert verdict.failure in {None, *(term.key for term in FAILURES)}
    assert verdict.valid == (text.strip() == "132")


# What the engineer asks for

CURRENT = SumsConfiguration(
    digits={
        1: DigitKnobs(data_ratio=0.5, carry_ratio=0.2, third_ratio=0.5),
        2: DigitKnobs(data_ratio=0.3, carry_ratio=0.5, third_ratio=0.0),
        3: DigitKnobs(data_ratio=0.2, carry_ratio=1.0, third_ratio=1.0),
    }
)
DOMAIN = sums_domain(BOUNDS, instances=128)
GOOD = answer_text(CURRENT)


def changed(**changes: object) -> str:
    """The current configuration with some knobs changed, `s1_carry_ratio=0.9` and the like."""
    groups = json.loads(GOOD)
    for name, value in changes.items():
        group, _, knob = name.partition("_")
        groups[group[1:]][knob] = value
    return json.dumps(groups)


def test_the_canonical_answer_is_used_as_written():
    decision = review(f"Carries first.\n{GOOD}", CURRENT, DOMAIN)
    assert (decision.kind, decision.configuration) == ("accepted", CURRENT)
    assert decision.repairs == decision.diff == ()
    assert re.fullmatch(answer_pattern(BOUNDS), GOOD)


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        (changed(s2_carry_ratio=7), ["clamp 2.carry_ratio"]),
        (changed(s3_third_ratio=0.57), ["round 3.third_ratio"]),
        (
            changed(s1_data_ratio=1.0, s2_data_ratio=1.0, s3_data_ratio=0.0),
            [
                "normalise 1.data_ratio",
                "normalise 2.data_ratio",
                "minimum_share 2.data_ratio",
                "minimum_share 3.data_ratio",
            ],
        ),
        (changed(s1_carry_ratio=1.0, s1_third_ratio=0.0), ["feasibility 1.carry_ratio"]),
    ],
)
def test_repairs_are_those_of_the_lake(text, repairs):
    decision = review(text, CURRENT, DOMAIN)
    assert decision.configuration is not None
    assert [f"{repair.name} {repair.field}" for repair in decision.repairs] == repairs


def test_a_guard_bounds_the_steps_of_any_environment():
    decision = review(changed(s2_carry_ratio=1.0), CURRENT, DOMAIN, Guard(max_step=0.1))
    assert decision.configuration.values()["2"]["carry_ratio"] == 0.6


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "holds no complete JSON object with digit counts as keys"),
        (GOOD.replace('"3"', '"4"'), 'digit count "4" is not one of 1, 2, 3'),
        (GOOD.replace("carry_ratio", "hole_ratio", 1), '1."hole_ratio" is not one of'),
        (changed(s1_carry_ratio=float("nan")), "1.carry_ratio must be a finite number, got nan"),
        (changed(s1_carry_ratio="a lot"), '1.carry_ratio must be a number, got "a lot"'),
    ],
)
def test_refusals_name_the_environments_own_words(text, reason):
    decision = review(text, CURRENT, DOMAIN)
    assert decision.kind == "rejected"
    assert reason in decision.reason


def test_more_sums_than_there_are_is_refused_with_the_number_there_is():
    domain = sums_domain(BOUNDS, instances=4000, held_out=[Sum((1, 2)), Sum((3, 4))])
    decision = review(GOOD, CURRENT, domain)
    assert decision.kind == "rejected"
    assert decision.reason == (
        "digit count 1: data_ratio 0.5 asks for 2000 different sums, which its carry_ratio and"
        " third_ratio can't be set to: 1098 can be had"
    )


@pytest.mark.parametrize(
    ("share", "instances", "carry", "third", "count"),
    [
        (0.5, 91, 1.0, 0.0, 46),  # of 45.5: one more than there are
        (0.3, 254, 0.15, 0.15, 76),  # of 76.2: 56 of two operands without a carry, one too many
    ],
)
def test_sums_suffice_to_whichever_whole_number_a_share_is_rounded(
    share, instances, carry, third, count
):
    knobs = DigitKnobs(data_ratio=share, carry_ratio=carry, third_ratio=third)
    rest = DigitKnobs(data_ratio=round(1 - share, 2), carry_ratio=0.0, third_ratio=0.0)
    asked = SumsConfiguration(digits={1: knobs, 2: rest})
    assert statistics(asked, instances, generate(asked, instances, 0))["1"]["missing"] == 1.0
    domain = sums_domain(SumsBounds(digits=(1, 2)), instances)
    decision = review(answer_text(asked), asked, domain)
    drawn = generate(decision.configuration, instances, 0)
    assert sum(one.digits == 1 for one in drawn) == count
    assert len(set(drawn)) == instances


@settings(max_examples=150, deadline=None)
@given(
    configuration=configurations(),
    instances=st.integers(1, 1500),
    seed=st.integers(0, 2**32),
    held=st.integers(0, 40),
)
def test_every_reviewed_configuration_has_all_its_sums(configuration, instances, seed, held):
    held_out = generate(one_group(1, 0.5, 0.2), held, seed)
    decision = review(answer_text(configuration), CURRENT, sums_domain(BOUNDS, instances, held_out))
    if decision.configuration is None:
        assert instances > 1000
        return
    drawn = generate(decision.configuration, instances, seed, held_out)
    assert len(set(drawn)) == instances
    rows = statistics(decision.configuration, instances, drawn)
    assert {row["missing"] for row in rows.values()} == {0.0}


def one_digit_possible(count: int, carry: float, third: float) -> bool:
    """By counting: 55 + 45 sums of two operands and 220 + 780 of three, without and with carry."""
    with_carry, with_three = (math.floor(count * ratio + 0.5 + 1e-9) for ratio in (carry, third))
    both = math.floor(with_three * with_carry / count + 0.5 + 1e-9)
    return (
        count - with_carry - with_three + both <= 55
        and with_carry - both <= 45
        and with_three - both <= 220
        and both <= 780
    )


@settings(max_examples=100, deadline=None)
@given(
    count=st.integers(1, 1200),
    carry=st.integers(0, 20),
    third=st.integers(0, 20),
    most=st.integers(0, 20),
)
def test_the_nearest_knobs_are_possible_and_none_nearer_are(count, carry, third, most):
    bounds = SumsBounds(digits=(1,), max_third_ratio=most / 20)
    asked = {"data_ratio": 1.0, "carry_ratio": carry / 20, "third_ratio": min(third, most) / 20}
    nearest = sums_domain(bounds, count).nearest
    possible = {
        abs(c - carry) + abs(t - min(third, most))
        for c in range(21)
        for t in range(most + 1)
        if one_digit_possible(count, c / 20, t / 20)
    }
    if not possible:
        with pytest.raises(InfeasibleError, match=f"asks for {count} different sums"):
            nearest("1", asked)
        return
    got = nearest("1", asked)
    assert one_digit_possible(count, got["carry_ratio"], got["third_ratio"])
    away = sum(round(20 * abs(got[knob] - asked[knob])) for knob in ("carry_ratio", "third_ratio"))
    assert away == min(possible)
    assert got["data_ratio"] == 1.0
    assert nearest("1", got) == got
    assert (got == asked) == (away == 0)


@pytest.mark.parametrize("digits", [(), (0,), (7,), (1, 1), (1.5,)])
def test_impossible_numbers_of_digits_are_refused(digits):
    with pytest.raises(ValueError, match="digits"):
        SumsBounds(digits=digits)


def test_configurations_order_their_groups_and_survive_json():
    digits = dict(reversed(CURRENT.digits.items()))
    assert list(SumsConfiguration(digits=digits).values()) == ["1", "2", "3"]
    assert SumsConfiguration.model_validate_json(CURRENT.model_dump_json()) == CURRENT
    with pytest.raises(ValueError, match=r"sum to 1, they sum to 0\.5"):
        SumsConfiguration(digits={1: CURRENT.digits[1]})


# What the engineer reads


@pytest.fixture(scope="module")
def stages():
    return list(run(Loop(stages=4, course=Course(updates=10)), RuleEngineer()))


@pytest.mark.parametrize("style", STYLES)
def test_the_context_holds_no_word_of_the_lake(stages, style):
    shown = stages[2]
    view = View(
        Loop().domain(), shown.evidence, shown.configuration, notice="", refusal="none was given"
    )
    text = build_context(view, style=style).text
    for block in ("ailure", "istory", "raining", "uideline", "nvironment"):
        assert block in text
    lake = r"\b(lakes?|frozen|holes?|waits?|map sizes?|boards?|agents?|goals?|cells?|path\w*)\b"
    assert re.findall(lake, text, re.IGNORECASE) == []
    assert all(f'"{group}":' in text for group in BOUNDS.groups)


def test_the_full_context_speaks_of_sums(stages):
    text = stages[1].record.context
    assert "- 1-digit sums: " in text
    assert "By carries: 0 columns " in text
    assert "By operands: 2 operands " in text
    assert "missed carry" in text
    assert re.search(r'on sum "\d+( \+ \d+)+ =": "\d*"', text)
    assert "sums that do not exist 0" in text


def test_evidence_counts_what_the_verifier_says():
    asked = generate(CURRENT, 120, seed=5)
    wrong = {0: "x", 1: "", 2: "9999999", 3: "5"}
    texts = [wrong.get(i % 7, str(one.total)) for i, one in enumerate(asked)]
    evidence = sums_evidence(2, asked, texts, failed_cases=100)
    verdicts = [verify(one, text) for one, text in zip(asked, texts, strict=True)]
    columns: dict[str, list[int]] = {}
    for verdict in verdicts:
        if verdict.time is not None:
            columns.setdefault(verdict.failure, []).append(verdict.time)
    for group, tally in evidence.validation.items():
        mine = [v for v, one in zip(verdicts, asked, strict=True) if one.digits == int(group)]
        assert tally.count == len(mine)
        assert tally.valid == sum(v.failure is None for v in mine)
        assert tally.failures == Counter(v.failure for v in mine if v.failure)
        for levels in tally.slices.values():
            assert sum(level.count for level in levels.values()) == tally.count
            assert sum(level.valid for level in levels.values()) == tally.valid
    for key, time in evidence.failure_times.items():
        ordered = sorted(columns[key])
        assert time.median == ordered[(len(ordered) - 1) // 2]
        assert time.latest == ordered[math.floor(0.9 * (len(ordered) - 1))]
    assert set(evidence.failure_times) == set(columns)
    pairs = [(case.group, case.failure) for case in evidence.failed_cases]
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) == {
        (group, kind) for group, tally in evidence.validation.items() for kind in tally.failures
    }
    assert StageEvidence.model_validate_json(evidence.model_dump_json()) == evidence


def test_slices_tell_columns_that_carry_and_operands_apart():
    asked = [Sum((12, 34)), Sum((47, 85)), Sum((47, 32, 15)), Sum((18, 15))]
    evidence = sums_evidence(0, asked, ["46", "132", "0", "23"])
    tally = evidence.validation["2"]
    levels = {
        factor: {name: (part.valid, part.count) for name, part in parts.items()}
        for factor, parts in tally.slices.items()
    }
    assert levels == {
        "carries": {"0 columns": (1, 1), "1 column": (0, 2), "2 columns": (1, 1)},
        "operands": {"2 operands": (2, 3), "3 operands": (0, 1)},
    }
    assert [case.completion for case in evidence.failed_cases] == ["0", "23"]


def test_times_of_failures_are_those_of_half_and_of_nine_in_ten():
    asked = [Sum((111111, 111111))] * 10
    wrong = [f"{222222 + 10**column}" for column in (5, 0, 1, 0, 3, 5, 2, 0, 1, 4)]
    times = sums_evidence(0, asked, wrong).failure_times
    assert {key: (time.median, time.latest) for key, time in times.items()} == {
        "wrong_digit": (1.0, 5.0)
    }


@pytest.mark.parametrize("answers", [[], ["1"], ["1", "2", "3"]])
def test_answers_that_are_not_one_for_each_sum_are_refused(answers):
    with pytest.raises(ValueError, match=f"got {len(answers)} answers to 2 instances"):
        sums_evidence(1, [Sum((1, 2)), Sum((3, 4))], answers)


def test_statistics_have_the_domains_names(stages):
    for row in stages[1].evidence.environment.values():
        assert set(row) == {term.key for term in STATISTICS}


# The trainee and the loop


def rate(trainee, asked, seed: int = 0) -> float:
    texts = answer(trainee, asked, seed)
    return sum(verify(*pair).valid for pair in zip(asked, texts, strict=True)) / len(asked)


def test_the_trainee_gets_better_at_sums_it_was_not_trained_on():
    loop = Loop()
    held_out = loop.held_out()
    before = loop.warm_start()
    shown = generate(loop.initial(), loop.instances, seed=1, held_out=held_out)
    after, evidence = train(before, shown, seed=2, course=Course(updates=80))
    assert rate(after, held_out) > rate(before, held_out) + 0.1
    assert evidence.reward_last > evidence.reward_first
    assert set(evidence.learnability) == {"1", "2", "3"}


def test_nothing_is_learned_from_columns_that_were_not_written():
    columns = columns_of([Sum((1, 2))])  # 3, then twice nothing
    learned = untrained().ascended(columns, np.array([[END, 7, 7]]), np.ones(1))
    chances = learned.probabilities(columns)[0]
    assert chances[0].argmax() == END
    np.testing.assert_allclose(chances[1:], 1 / 11)


def test_a_step_follows_the_gradient_of_the_log_probability():
    columns = columns_of([Sum((8, 5))])  # 13, then a carry, then nothing
    actions, start = np.array([[3, 1, END]]), untrained()
    rng = np.random.default_rng(0)
    start = Trainee(rng.normal(size=start.plain.shape), rng.normal(size=start.carried.shape))

    def log_probability(trainee: Trainee) -> float:
        chances = trainee.probabilities(columns)[0]
        return float(np.log(chances[range(3), actions[0]]).sum())

    slope = start.ascended(columns, actions, np.ones(1)).plain - start.plain
    for row, action in ((13, 3), (13, 4), (28, 1), (28, END), (28, 0), (5, 5)):
        step = np.zeros_like(start.plain)
        step[row, action] = 1e-6
        rise = log_probability(Trainee(start.plain + step, start.carried)) - log_probability(start)
        assert slope[row, action] == pytest.approx(rise / 1e-6, abs=1e-4)


def test_carries_are_learned_from_sums_that_carry():
    loop = Loop()
    asked = [one for one in loop.held_out() if one.digits == 2 and one.carries]
    rates = {}
    for ratio in (0.0, 1.0):
        shown = generate(one_group(2, ratio, 0.5), 128, seed=1, held_out=loop.held_out())
        trained, _ = train(loop.warm_start(), shown, seed=2, course=Course(updates=160))
        rates[ratio] = rate(trained, asked)
    assert rates[1.0] > rates[0.0] + 0.15


def test_a_run_is_the_same_for_the_same_seed(stages):
    again = list(run(Loop(stages=4, course=Course(updates=10)), RuleEngineer()))
    other = list(run(Loop(stages=4, course=Course(updates=10), seed=1), RuleEngineer()))
    assert [stage.evidence for stage in again] == [stage.evidence for stage in stages]
    assert [stage.evidence for stage in other] != [stage.evidence for stage in stages]


def test_each_stage_trains_on_what_was_designed_before_it(stages):
    warm, first, second, third, last = stages
    assert warm.configuration is None
    assert warm.record is last.record is None
    assert first.configuration == Loop().initial()
    for stage, after in ((first, second), (second, third), (third, last)):
        assert after.configuration == stage.record.configuration
    assert len({answer_text(stage.configuration) for stage in stages[1:]}) > 1
    assert "Stage 1 (configuration initial)" in third.record.context
    assert "Stage 2 (configuration accepted)" in third.record.context
    for group, tally in second.evidence.validation.items():
        earlier = first.evidence.validation[group].valid_percent
        change = f"{earlier} to {tally.valid_percent}%"
        assert re.search(rf"^- {group}-digit .* valid {change}", third.record.context, re.MULTILINE)


def test_no_stage_trains_on_the_validation_set(stages):
    held_out = set(Loop().held_out())
    for stage in stages[1:]:
        assert len(set(stage.sums)) == Loop().instances
        assert not held_out & set(stage.sums)


@pytest.mark.parametrize("name", [*SCRIPTED, "shuffled:learnability"])
def test_every_scripted_engineer_designs_sums(name):
    loop = Loop(stages=3, instances=64, course=Course(updates=3, prompts=8, answers=4))
    engineer = scripted(name, Setup(BOUNDS, loop.initial(), loop.stages, loop.seed))
    stages = list(run(loop, engineer))
    for stage in stages[1:-1]:
        assert stage.record.kind in ("accepted", "repaired")
        assert stage.record.engineer == name
    for stage in stages[1:]:
        assert {row["missing"] for row in stage.evidence.environment.values()} == {0.0}


@pytest.mark.parametrize("change", [{"stages": 0}, {"instances": 0}, {"seed": -1}])
def test_a_loop_that_cannot_run_is_refused(change):
    name, value = next(iter(change.items()))
    with pytest.raises(ValueError, match=f"{name} must be at least {value + 1}, got {value}"):
        Loop(**change)


# What a replay's scores need to know


def test_a_knob_shows_in_the_slices_and_behind_its_failures():
    instances = generate(INITIAL, 300, seed=5)
    # Sums of two operands are solved, those of three never.
    answers = [str(sum(one.operands)) if len(one.operands) == 2 else "0" for one in instances]
    domain = sums_domain(BOUNDS, instances=128)
    view = View(domain, sums_evidence(1, instances, answers), INITIAL)
    model = learnability_model(view)
    for group in BOUNDS.groups:
        few, many = (
            model.rate(group, {"carry_ratio": 0.2, "third_ratio": share}) for share in (0.1, 0.4)
        )
        assert few - many == pytest.approx(0.3, abs=0.1)
    assert domain.causes == {"carry_missed": "carry_ratio"}


# The command line


def test_the_command_runs_stages_and_says_what_was_designed(capsys):
    assert main(["--stages", "2", "--engineer", "failure_proportional", "--context"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.split("\n") if line.startswith(("warm", "stage"))] == [
        "warm start",
        "stage 1",
        "stage 2",
    ]
    assert "design by failure_proportional: accepted, used as written" in out
    assert re.search(r"^  3\.data_ratio 0\.3 -> 0\.\d+$", out, re.MULTILINE)
    assert "## Failure breakdown" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engineer", "nobody"], "engineer: got 'nobody', allowed are"),
        (["--stages", "0"], "stages must be at least 1, got 0"),
        (["--stages", "two"], "argument --stages: invalid int value: 'two'"),
        (["--seed", "-3"], "seed must be at least 0, got -3"),
        (["--instances", "100000"], "data_ratio 0.4 asks for 40000 different sums"),
        (["--size", "3"], "unrecognized arguments: --size 3"),
    ],
)
def test_bad_arguments_end_with_status_2_and_say_why(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_the_module_runs_as_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "engineer.sums", "--stages", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "stage 1" in done.stdout


def test_the_code_of_the_documentation_runs():
    text = (ROOT / "docs" / "your_environment.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/your_environment.md", "exec"), names)
