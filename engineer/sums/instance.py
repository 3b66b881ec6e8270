"""One sum, and what tells sums apart."""

from dataclasses import dataclass
from typing import NamedTuple


class Kind(NamedTuple):
    """What the knobs speak of."""

    digits: int  # of each operand
    operands: int  # 2 or 3
    carries: bool  # at least one column adds up to 10 or more


@dataclass(frozen=True)
class Sum:
    """Two or three operands with the same number of digits, to be added; `0` has one digit."""

    operands: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.operands) not in (2, 3):
            raise ValueError(f"operands must be two or three, got {self.operands}")
        if min(self.operands) < 0 or len({len(str(one)) for one in self.operands}) != 1:
            raise ValueError(f"operands must have equally many digits, got {self.operands}")

    @property
    def question(self) -> str:
        """What is asked, such as `47 + 85 = `."""
        return " + ".join(map(str, self.operands)) + " = "

    @property
    def total(self) -> int:
        """The right answer."""
        return sum(self.operands)

    @property
    def digits(self) -> int:
        """Digits of each operand."""
        return len(str(self.operands[0]))

    @property
    def carries(self) -> int:
        """Columns that hand a carry on to the next one."""
        return sum(self.carry_into(column) > 0 for column in range(1, self.digits + 1))

    @property
    def kind(self) -> Kind:
        """The kind whose quota the sum counts towards."""
        return Kind(self.digits, len(self.operands), self.carries > 0)

    def carry_into(self, column: int) -> int:
        """The carry that comes into a column, the lowest being 0."""
        return sum(one % 10**column for one in self.operands) // 10**column

    def column(self, column: int) -> int:
        """The operands' digits in a column added up, without a carry."""
        return sum(one // 10**column % 10 for one in self.operands)
