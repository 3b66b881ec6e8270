"""First calls: the second call compiles nothing."""

from benchmarks import first_calls


def test_compilation_is_part_of_the_first_call_alone():
    row = first_calls._measure_here("verify")
    assert 0 < row["compiling"] < row["first"]
    assert row["second"] < row["compiling"]
