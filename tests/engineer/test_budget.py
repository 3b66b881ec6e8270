import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engineer import Budget, Spent

counts = st.integers(0, 10**9)
spendings = st.builds(
    Spent,
    training_instances=counts,
    engineer_tokens=counts,
    probe_instances=counts,
    probe_rollouts=counts,
    seconds=st.integers(0, 10**6).map(float),
)


@given(st.lists(spendings, max_size=5))
def test_costs_add_up_field_by_field_in_any_order(parts):
    total = sum(parts, Spent())
    for name in Spent.model_fields:
        assert getattr(total, name) == sum(getattr(part, name) for part in parts)
    assert sum(reversed(parts), Spent()) == total == total + Spent()
    assert Spent.model_validate_json(total.model_dump_json()) == total


@pytest.mark.parametrize(
    ("budget", "spent", "reason"),
    [
        (Budget(), Spent(engineer_tokens=10**12, probe_rollouts=10**9, seconds=1e9), None),
        (Budget(engineer_tokens=100), Spent(engineer_tokens=99), None),
        (Budget(engineer_tokens=7), Spent(engineer_tokens=7), "engineer_tokens: 7 of 7 are spent"),
        (
            Budget(engineer_tokens=1_000_000),
            Spent(engineer_tokens=1_234_567),
            "engineer_tokens: 1234567 of 1000000 are spent",
        ),
        (Budget(probe_rollouts=0), Spent(), "probe_rollouts: 0 of 0 are spent"),
        (Budget(probe_rollouts=5), Spent(training_instances=9, probe_instances=9), None),
        (Budget(seconds=1.5), Spent(seconds=1.49), None),
        (Budget(seconds=1.5), Spent(seconds=2.00049), "seconds: 2.0 of 1.5 are spent"),
        (
            Budget(engineer_tokens=9, probe_rollouts=3, seconds=9.0),
            Spent(engineer_tokens=8, probe_rollouts=4),
            "probe_rollouts: 4 of 3 are spent",
        ),
    ],
)
def test_a_budget_is_exhausted_once_a_limit_is_reached_and_says_which(budget, spent, reason):
    assert budget.exhausted(spent) == reason


@pytest.mark.parametrize("kind", [Spent, Budget])
@pytest.mark.parametrize(
    "values",
    [{"engineer_tokens": -1}, {"seconds": float("nan")}, {"seconds": float("inf")}, {"money": 1}],
)
def test_costs_and_limits_are_finite_and_not_negative(kind, values):
    with pytest.raises(ValidationError, match=next(iter(values))):
        kind(**values)
