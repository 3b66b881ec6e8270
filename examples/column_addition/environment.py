"""Column addition as an environment: sums, their knobs, their generator and their verifier."""

import math
import random
from collections.abc import Collection
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, ClassVar

from pydantic import Field

from engineer.space import Configuration, FrozenModel, KnobSpace, KnobValues, Ratio, apportion


@dataclass(frozen=True)
class Sum:
    """An addition of two operands with the same number of digits; 0 has one digit."""

    first: int
    second: int

    @property
    def question(self) -> str:
        """The question, such as `47 + 85 =`."""
        return f"{self.first} + {self.second} ="

    @property
    def total(self) -> int:
        """The correct answer."""
        return self.first + self.second

    @property
    def num_digits(self) -> int:
        """Number of digits of each operand."""
        return len(str(self.first))

    @property
    def carries(self) -> bool:
        """Whether at least one column adds up to 10 or more."""
        return any(self.carry_into(column) for column in range(1, self.num_digits + 1))

    @property
    def kind(self) -> tuple[int, bool]:
        """The kind that the knobs control: the number of digits, and whether a column carries."""
        return self.num_digits, self.carries

    def carry_into(self, column: int) -> int:
        """Return the carry into a column; the lowest column is 0."""
        return (self.first % 10**column + self.second % 10**column) // 10**column

    def digit_sum(self, column: int) -> int:
        """Return the sum of the operands' digits in a column, without a carry."""
        return self.first // 10**column % 10 + self.second // 10**column % 10


DigitCount = Annotated[int, Field(ge=1, le=6)]


class DigitKnobs(FrozenModel):
    """The sums of one number of digits that a stage trains on."""

    data_ratio: Ratio  # share of all the stage's sums
    carry_ratio: Ratio  # share of these sums in which a column adds up to 10 or more


class AdditionConfiguration(Configuration):
    """The configuration of one stage: knobs by number of digits."""

    digits: dict[DigitCount, DigitKnobs] = Field(min_length=1)

    def values(self) -> KnobValues:
        """The knobs as plain numbers, fewest digits first."""
        groups = sorted(self.digits.items())
        return {str(num_digits): knobs.model_dump() for num_digits, knobs in groups}


class AdditionSpace(KnobSpace):
    """The space of configurations. Groups are numbers of digits; the first knob is the share."""

    digits: tuple[DigitCount, ...] = Field(min_length=1)
    max_carry_ratio: Ratio = 1.0

    group_label: ClassVar[str] = "digit count"
    knobs: ClassVar[tuple[str, ...]] = ("data_ratio", "carry_ratio")

    @property
    def groups(self) -> tuple[str, ...]:
        """The numbers of digits, ascending."""
        return tuple(map(str, sorted(self.digits)))

    def maximum(self, knob: str) -> float:
        """The largest `carry_ratio`."""
        return self.max_carry_ratio

    def make(self, values: KnobValues) -> AdditionConfiguration:
        """Return a configuration with these numbers."""
        return AdditionConfiguration.model_validate({"digits": values})


def draw_sums(
    configuration: Configuration, count: int, seed: int, held_out: Collection[Sum] = frozenset()
) -> tuple[Sum, ...]:
    """Draw a stage's distinct sums in random order; equal arguments give equal sums.

    Sums of a kind are equally likely. If fewer exist than requested, all of them are returned,
    except held-out ones.
    """
    rng = random.Random(seed)
    sums: list[Sum] = []
    for (num_digits, carries), quota in compute_quotas(configuration, count).items():
        used_sums = {problem for problem in held_out if problem.kind == (num_digits, carries)}
        num_sums = min(len(used_sums) + quota, count_sums(num_digits, carries))
        minimum = 10 ** (num_digits - 1) if num_digits > 1 else 0
        while len(used_sums) < num_sums:
            problem = Sum(*(rng.randrange(minimum, 10**num_digits) for _ in range(2)))
            if problem.carries == carries and problem not in used_sums:
                used_sums.add(problem)
                sums.append(problem)
    rng.shuffle(sums)
    return tuple(sums)


def compute_quotas(configuration: Configuration, count: int) -> dict[tuple[int, bool], int]:
    """Return the number of sums of each kind (num_digits, carries) in a stage of `count` sums."""
    groups = configuration.values()
    counts = apportion([knobs["data_ratio"] for knobs in groups.values()], count)
    return {
        (int(group), bool(carries)): quota
        for (group, knobs), group_count in zip(groups.items(), counts, strict=True)
        for carries, quota in enumerate(split_quota(group_count, knobs["carry_ratio"]))
    }


def split_quota(count: int, carry_ratio: float) -> tuple[int, int]:
    """Return the numbers of a group's sums without and with a carry; halves round up."""
    num_carry = math.floor(count * carry_ratio + 0.5 + 1e-9)
    return count - num_carry, num_carry


def count_sums(num_digits: int, carries: bool) -> int:
    """Return the number of different sums of a kind.

    55 pairs of digits add up to at most 9. In 36 of them no digit is zero, which the highest digits
    of longer numbers require.
    """
    if num_digits == 1:
        return 45 if carries else 55
    no_carry_count = 55 ** (num_digits - 1) * 36
    return (9 * 10 ** (num_digits - 1)) ** 2 - no_carry_count if carries else no_carry_count


def check_answer(instance: Sum, text: str) -> tuple[str | None, int | None]:
    """Compare an answer with the sum column by column, from the lowest to the first wrong column.

    Returns:
        The failure and its column, counted from the lowest; (None, None) for the right answer.
        parse_error: the text is not a decimal number, apart from blanks around it.
        wrong_length: either the answer or the sum has no digit in this column.
        carry_missed: the digit would be right without the carry into this column.
        wrong_digit: any other wrong digit.
    """
    answer = text.strip()
    if not (answer.isascii() and answer.isdecimal()):
        return "parse_error", None
    for column, (expected, digit) in enumerate(
        zip_longest(str(instance.total)[::-1], answer[::-1])
    ):
        if expected == digit:
            continue
        if expected is None or digit is None:
            return "wrong_length", column
        # Without a carry into this column, the digits' sum would equal the expected digit.
        misses_carry = int(digit) == instance.digit_sum(column) % 10
        return "carry_missed" if misses_carry else "wrong_digit", column
    return None, None
