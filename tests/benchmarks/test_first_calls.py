"""First calls: what is compiled in the first call is not compiled again in the second."""

from benchmarks import first_calls


def test_compiling_is_part_of_the_first_call_and_stands_in_the_table():
    row = first_calls._measure_here("verify")
    assert 0 < row["compiling"] < row["first_wall"]
    assert row["second_wall"] < row["compiling"]
    lines = first_calls.table({"verify": row, "other": {"first_wall": 1.5}}).splitlines()
    assert lines[-1].startswith("| other | 1.5 |")
    assert len({line.count("|") for line in lines}) == 1
