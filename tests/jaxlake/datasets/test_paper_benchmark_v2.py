"""The published benchmark: the record of its hashes, and that boards are still made to it."""

import pytest

from jaxlake.datasets import committed_record
from jaxlake.datasets.paper_benchmark import V2, cell_name, make_cell, make_record


def test_the_record_covers_the_whole_benchmark():
    record = committed_record()
    assert (record["version"], record["rows"]) == ("v2", 3150)
    assert list(record["cells"]) == [cell_name(agents, size) for agents, size in V2.cells]
    assert {cell["rows"] for cell in record["cells"].values()} == {150}
    # What the stated rule changes: 3 agents on 3x3 have room for 3 holes, not for 4.
    changed = {name for name, cell in record["cells"].items() if cell["fewer_holes"]}
    assert changed == {"3ag_3x3"}


@pytest.mark.slow
def test_boards_of_a_cell_are_those_of_the_record():
    """`jaxlake dataset benchmark DIR` makes them all; here the one that the stated rule changes."""
    cell = make_cell(V2, 3, 3)
    made = make_record(V2, cell.rows, {})["cells"]
    assert made[cell.name]["sha256"] == committed_record()["cells"][cell.name]["sha256"]
