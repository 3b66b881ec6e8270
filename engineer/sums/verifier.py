"""Whether an answer to a sum is right, and what is wrong with it first."""

from itertools import zip_longest
from typing import Literal, NamedTuple

from engineer.sums.instance import Sum

Failure = Literal["parse_error", "wrong_length", "carry_missed", "wrong_digit"]


class Verdict(NamedTuple):
    """What became of one answer."""

    failure: Failure | None  # None: the answer is right
    time: int | None = None  # column of the failure, the lowest being 0

    @property
    def valid(self) -> bool:
        """Whether the answer is the sum."""
        return self.failure is None


def verify(instance: Sum, answer_text: str) -> Verdict:
    """Read an answer column by column, lowest first, up to the first one that isn't right.

    parse_error: the text is no number: other than decimal digits, with blanks around them at most.
    wrong_length: in this column the answer has ended and the sum goes on, or the other way round.
    carry_missed: a carry comes into this column, and the answer's digit is what the operands'
        digits alone would give.
    wrong_digit: any other digit that isn't the sum's.

    Args:
        instance: the sum.
        answer_text: a model's whole answer, of any length.
    """
    number = answer_text.strip()
    if not (number.isascii() and number.isdecimal()):
        return Verdict("parse_error")
    right, given = str(instance.total)[::-1], number[::-1]
    for column, (digit, answered) in enumerate(zip_longest(right, given)):
        if digit == answered:
            continue
        if digit is None or answered is None:
            return Verdict("wrong_length", column)
        # The digits alone differ from the right digit only where a carry comes in.
        missed = int(answered) == instance.column(column) % 10
        return Verdict("carry_missed" if missed else "wrong_digit", column)
    return Verdict(None)
