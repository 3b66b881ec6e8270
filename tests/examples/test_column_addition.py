"""Column addition, the second environment, against counting and schoolbook addition."""

import math
from itertools import product

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from engineer import InfeasibleError, answer_text, review_answer
from examples.column_addition.__main__ import SPACE, addition
from examples.column_addition.engineer_side import FAILURES, addition_domain
from examples.column_addition.environment import (
    AdditionConfiguration,
    AdditionSpace,
    Sum,
    check_answer,
    compute_quotas,
    count_sums,
    draw_sums,
)
from tests.examples.additions import CURRENT, make_group


def add_digits(first: int, second: int) -> tuple[str, list[int]]:
    """Return the digits of the sum, and the carries into the columns, lowest first."""
    carries, digits = [0], ""
    for digit_1, digit_2 in zip(str(first)[::-1], str(second)[::-1], strict=True):
        column_total = carries[-1] + int(digit_1) + int(digit_2)
        digits += str(column_total)[-1]
        carries.append(column_total // 10)
    return ("1" if carries[-1] else "") + digits[::-1], carries


@st.composite
def sums(draw) -> Sum:
    num_digits = draw(st.integers(1, 6))
    minimum = 0 if num_digits == 1 else 10 ** (num_digits - 1)
    number = st.integers(minimum, 10**num_digits - 1)
    return Sum(draw(number), draw(number))


@st.composite
def configurations(draw) -> AdditionConfiguration:
    """Draw a valid configuration on the grid."""
    cuts = sorted(draw(st.tuples(st.integers(0, 7), st.integers(0, 7))))
    shares = (1 + cuts[0], 1 + cuts[1] - cuts[0], 8 - cuts[1])
    knobs = [(share / 10, draw(st.integers(0, 10)) / 10) for share in shares]
    return addition(d1=knobs[0], d2=knobs[1], d3=knobs[2])


# Sums and their generator


@pytest.mark.parametrize("num_digits", [1, 2])
@pytest.mark.parametrize("carry", [False, True])
def test_count_sums_matches_enumeration(num_digits, carry):
    numbers = range(10) if num_digits == 1 else range(10, 100)
    pairs = [p for p in product(numbers, repeat=2) if any(add_digits(*p)[1]) == carry]
    assert count_sums(num_digits, carry) == len(pairs)
    if num_digits == 1:
        problems = draw_sums(make_group(1, float(carry)), len(pairs), seed=3)
        assert sorted((problem.first, problem.second) for problem in problems) == pairs


@settings(max_examples=60)
@given(configuration=configurations(), count=st.integers(0, 60), seed=st.integers(0, 2**32))
def test_draw_meets_quotas_with_distinct_sums(configuration, count, seed):
    problems = draw_sums(configuration, count, seed)
    assert problems == draw_sums(configuration, count, seed)
    assert len({*problems}) == len(problems) == count
    assert sum(compute_quotas(configuration, count).values()) == count
    for num_digits, knobs in configuration.digits.items():
        group_sums = [problem for problem in problems if len(str(problem.first)) == num_digits]
        assert abs(len(group_sums) - knobs.data_ratio * count) < 1
        num_carry = sum(any(add_digits(problem.first, problem.second)[1]) for problem in group_sums)
        assert abs(num_carry - knobs.carry_ratio * len(group_sums)) <= 0.5 + 1e-6


def test_draw_excludes_exactly_held_out_sums():
    held_out = draw_sums(make_group(1, 1.0), 20, seed=1)
    for count in (25, 45):
        problems = draw_sums(make_group(1, 1.0), count, seed=2, held_out=held_out)
        assert len(set(problems)) == len(problems) == 25
        assert not set(problems) & set(held_out)


# The verifier


def find_first_failure(problem: Sum, text: str) -> tuple[str | None, int | None]:
    """Return the kind and the column of the first failure, by schoolbook addition."""
    digits, carries = add_digits(problem.first, problem.second)
    width = max(len(digits), len(text))
    for column in range(width):
        index = width - 1 - column
        expected, digit = digits.rjust(width)[index], text.rjust(width)[index]
        if expected == digit:
            continue
        if " " in (expected, digit):
            return "wrong_length", column
        carry = carries[column] if column < len(carries) else 0
        if carry and digit == str((int(expected) - carry) % 10):
            return "carry_missed", column
        return "wrong_digit", column
    return None, None


@settings(max_examples=300)
@given(problem=sums(), data=st.data())
def test_check_answer_matches_schoolbook_addition(problem, data):
    solution, carries = add_digits(problem.first, problem.second)
    assert problem.carries == any(carries)
    assert check_answer(problem, f" {solution}\n") == (None, None)
    assert check_answer(problem, "0" + solution) != (None, None)
    digits = list(solution)
    for index in data.draw(st.sets(st.integers(0, len(solution) - 1))):
        digits[index] = str(data.draw(st.integers(0, 9)))
    text = data.draw(st.sampled_from(["", "0", "7"])) + "".join(digits)[data.draw(st.booleans()) :]
    assume(text)
    assert check_answer(problem, text) == find_first_failure(problem, text)


@pytest.mark.parametrize(
    ("text", "failure", "column"),
    [
        ("132", None, None),
        ("122", "carry_missed", 1),
        ("1", "wrong_digit", 0),
        *((text, "parse_error", None) for text in ("", "-132", "132.0", "1 32", "١٣٢", "1³2")),
    ],
)
def test_check_answer_names_the_failure(text, failure, column):
    assert check_answer(Sum(47, 85), text) == (failure, column)


@given(text=st.text())
@example("9" * 50_000)
@example("2" * 49_997 + "132")
def test_check_answer_accepts_any_text(text):
    failure, _ = check_answer(Sum(47, 85), text)
    assert failure in {None, *(label.key for label in FAILURES)}
    assert (failure is None) == (text.strip() == "132")


# Reviewed configurations


@settings(max_examples=150)
@given(
    configuration=configurations(),
    instances=st.integers(1, 300),
    seed=st.integers(0, 2**32),
    num_held_out=st.integers(0, 40),
)
@example(addition(d1=(0.5, 1.0), d2=(0.4, 0.0), d3=(0.1, 0.0)), 91, 0, 0)
def test_reviewed_configuration_can_be_drawn(configuration, instances, seed, num_held_out):
    held_out = draw_sums(make_group(1, 0.5), num_held_out, seed)
    domain = addition_domain(SPACE, instances, held_out)
    decision = review_answer(answer_text(configuration), CURRENT, domain)
    if decision.configuration is None:
        num_requested = configuration.digits[1].data_ratio * instances
        assert (
            f"{math.ceil(num_requested - 1e-9)} different sums, {100 - num_held_out} can"
            in decision.reason
        )
        assert num_requested > (100 - num_held_out) / 2
        return
    problems = draw_sums(decision.configuration, instances, seed, held_out)
    assert len(set(problems)) == instances
    assert not set(problems) & set(held_out)


@settings(max_examples=100)
@given(count=st.integers(1, 120), carry_units=st.integers(0, 20), max_units=st.integers(0, 20))
def test_nearest_knobs_returns_closest_feasible(count, carry_units, max_units):
    carry_units = min(carry_units, max_units)
    space = AdditionSpace(digits=(1,), max_carry_ratio=max_units / 20)
    request = {"data_ratio": 1.0, "carry_ratio": carry_units / 20}

    def is_feasible(ratio: float) -> bool:
        """Return whether enough sums exist: 55 without a carry and 45 with one."""
        num_carry = math.floor(count * ratio + 0.5 + 1e-9)
        return num_carry <= 45 and count - num_carry <= 55

    distances = {abs(n - carry_units) for n in range(max_units + 1) if is_feasible(n / 20)}
    nearest = addition_domain(space, count).nearest
    if not distances:
        with pytest.raises(InfeasibleError, match=f"asks for {count} different sums, 100 can"):
            nearest("1", request)
        return
    nearest_knobs = nearest("1", request)
    assert is_feasible(nearest_knobs["carry_ratio"])
    assert abs(round(20 * nearest_knobs["carry_ratio"]) - carry_units) == min(distances)
    assert (nearest_knobs["data_ratio"], nearest("1", nearest_knobs)) == (1.0, nearest_knobs)
