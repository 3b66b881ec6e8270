"""The notebook runs from top to bottom in a real kernel, at its small size."""

import re

import pytest

from tests.notebooks.executing import execute, pictures, printed
from tests.paths import ROOT

NOTEBOOK = ROOT / "notebooks" / "generator_throughput.ipynb"


@pytest.fixture(scope="module")
def executed():
    return execute(NOTEBOOK, ROOT, JAXLAKE_NOTEBOOK_SIZE="small")


@pytest.mark.slow
def test_every_cell_runs_and_three_plots_are_drawn(executed):
    assert pictures(executed) == 3


@pytest.mark.slow
def test_no_configuration_traces_the_generator_again(executed):
    traces, shapes = re.search(r"(\d+) traces for (\d+) shapes", printed(executed)).groups()
    assert traces == shapes


@pytest.mark.slow
def test_the_conclusions_say_what_was_measured(executed):
    text = printed(executed)
    conclusions = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(conclusions) == 7
    made = re.search(r"(\d+) boards for 64 configurations", text)
    assert int(made[1]) == 64 * 8
    whole, *parts = [float(part) for part in re.findall(r"(-?[\d.]+) µs a kept board", text)]
    assert len(parts) == 4
    assert abs(sum(parts) - whole) < 0.1
    if parts[-1] >= 0:
        share = re.search(r"Most of the time, (\d+)%", text)
        assert abs(float(share[1]) - 100 * max(parts) / whole) < 1
    else:
        apart = re.search(r"take ([\d.]+) times the time of the whole: no shares", text)
        assert abs(float(apart[1]) - sum(parts[:-1]) / whole) < 0.01
