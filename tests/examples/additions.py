"""Configurations of column addition for tests."""

from examples.column_addition.__main__ import SPACE, addition
from examples.column_addition.engineer_side import addition_domain
from examples.column_addition.environment import AdditionConfiguration, DigitKnobs

DOMAIN = addition_domain(SPACE, instances=64)
CURRENT = addition(d1=(0.5, 0.2), d2=(0.3, 0.5), d3=(0.2, 1.0))


def make_group(num_digits: int, carry_ratio: float) -> AdditionConfiguration:
    return AdditionConfiguration(
        digits={num_digits: DigitKnobs(data_ratio=1, carry_ratio=carry_ratio)}
    )
