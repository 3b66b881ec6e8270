"""Paired comparison of two sets of answers to the same boards."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class PairedComparison:
    """Difference between two sets of answers to the same boards.

    Raises:
        ValueError: The three counts are inconsistent.
    """

    count: int  # boards, at least 1
    gained: int  # boards solved only by the later answers
    lost: int  # boards solved only by the earlier answers

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count must be at least 1, got {self.count}")
        if min(self.gained, self.lost) < 0:
            raise ValueError(
                f"gained and lost must be at least 0, got {self.gained} and {self.lost}"
            )
        if self.gained + self.lost > self.count:
            raise ValueError(
                f"gained {self.gained} + lost {self.lost} must be at most count {self.count}"
            )

    @property
    def difference(self) -> float:
        """The change of the valid rate, from -1 to 1."""
        return (self.gained - self.lost) / self.count

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the bounds of the confidence interval of the difference, from -1 to 1.

        This is Wald's interval with half a board added to each of the four possible pairs of
        answers (Agresti and Min, Statistics in Medicine 24, 2005).

        Args:
            confidence: Coverage of the interval, strictly between 0 and 1.

        Returns:
            The lower and the upper bound.

        Raises:
            ValueError: `confidence` is not between 0 and 1.
        """
        if not 0.0 < confidence < 1.0:
            raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
        count, change = self.count + 2.0, self.gained - self.lost
        standard_error = math.sqrt(self.gained + self.lost + 1.0 - change * change / count) / count
        half_width = NormalDist().inv_cdf(0.5 + confidence / 2.0) * standard_error
        centre = change / count
        return max(centre - half_width, -1.0), min(centre + half_width, 1.0)

    @property
    def p_value(self) -> float:
        """The two-sided p-value of the exact McNemar test (1947)."""
        return min(1.0, 2 * self._upper_tail(max(self.gained, self.lost)))

    @property
    def p_value_of_fall(self) -> float:
        """The one-sided p-value of the exact McNemar test for a fall of the valid rate."""
        return self._upper_tail(self.lost)

    def _upper_tail(self, min_changes: int) -> float:
        """Return the probability that at least `min_changes` of all changes go in one direction.

        Under the null hypothesis, gains and losses are equally probable.
        """
        changes = self.gained + self.lost
        return sum(math.comb(changes, k) for k in range(min_changes, changes + 1)) / 2**changes


def compare(before: Iterable[bool], after: Iterable[bool]) -> PairedComparison:
    """Compare, board by board, whether the earlier and the later answers are valid.

    Args:
        before: Whether each earlier answer is valid.
        after: Whether each later answer is valid, in the same order.

    Returns:
        The counts of boards, gains and losses.

    Raises:
        ValueError: The two sequences differ in length or are empty.
    """
    pairs = list(zip(before, after, strict=True))
    return PairedComparison(
        count=len(pairs),
        gained=sum(bool(is_valid and not was_valid) for was_valid, is_valid in pairs),
        lost=sum(bool(was_valid and not is_valid) for was_valid, is_valid in pairs),
    )
