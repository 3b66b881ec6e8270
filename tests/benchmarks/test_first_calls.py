"""The benchmark of first calls attributes compilation to the first call."""

from benchmarks import first_calls


def test_first_call_alone_includes_compilation():
    row = first_calls._measure_here("verify")
    assert 0 < row["compiling"] < row["first"]
    assert row["second"] < row["compiling"]
