import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engineer import Spent

counts = st.integers(0, 10**9)
spent = st.builds(
    Spent,
    training_instances=counts,
    engineer_tokens=counts,
    probe_rollouts=counts,
    # Of few bits, so that sums are exact in any order.
    seconds=st.integers(0, 10**6).map(lambda n: n / 8),
)


@given(st.lists(spent))
def test_costs_add_up_in_any_order(parts):
    total = sum(parts, Spent())
    for name in Spent.model_fields:
        assert getattr(total, name) == sum(getattr(part, name) for part in parts)
    assert sum(reversed(parts), Spent()) == total == total + Spent()
    assert Spent.model_validate_json(total.model_dump_json()) == total


@pytest.mark.parametrize(
    "values",
    [{"engineer_tokens": -1}, {"seconds": float("nan")}, {"seconds": float("inf")}, {"money": 1}],
)
def test_costs_are_finite_and_not_negative(values):
    with pytest.raises(ValidationError, match=next(iter(values))):
        Spent(**values)
