"""Validation of tallies."""

import pytest
from pydantic import ValidationError

from engineer import Tally
from engineer.evidence import GroupEvidence

TALLY = {
    "count": 10,
    "valid": 8,
    "scores": {"optimal_sum_of_costs": 3, "optimal_makespan": 4},
    "failures": {"hole": 2},
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"valid": 9}, r"valid 9 \+ failures 2 must be count 10"),
        ({"failures": {"hole": 1}}, r"valid 8 \+ failures 1 must be count 10"),
        ({"scores": {"optimal_makespan": 9}}, "optimal_makespan 9 exceeds valid 8"),
        ({"count": -1}, "count\n.*greater than or equal to 0"),
        ({"failures": {"hole": 3, "swap": -1}}, "failures.swap\n.*greater than or equal to 0"),
        ({"valid": 7.5}, "valid\n.*integer"),
        ({"bonus": 1}, "bonus\n.*Extra inputs"),
    ],
)
@pytest.mark.parametrize("tally_class", [Tally, GroupEvidence])
def test_inconsistent_tally_is_rejected(tally_class, change, message):
    assert tally_class(**TALLY).percent(8) == 80
    with pytest.raises(ValidationError, match=message):
        tally_class(**TALLY | change)
