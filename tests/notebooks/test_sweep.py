"""The sweep with vmap runs from top to bottom, at its small size."""

import re

import pytest

from tests.notebooks.executing import execute, outputs, pictures, printed
from tests.paths import ROOT

NOTEBOOK = ROOT / "notebooks" / "sweep.ipynb"


@pytest.mark.slow
def test_the_sweep_runs_and_paths_cross_where_boards_need_waits():
    executed = execute(NOTEBOOK, ROOT, JAXLAKE_NOTEBOOK_SIZE="small")
    text = printed(executed)
    made = int(re.search(r"(\d+) boards in", text)[1])
    assert 500 < made <= 64 * 16
    random, paths = map(float, re.search(r"random: ([\d.]+)% valid.*: ([\d.]+)%", text).groups())
    assert random < 5 < 50 < paths
    optimal, valid = map(int, re.search(r"(\d+) of (\d+) valid plans", text).groups())
    assert optimal == valid > 0
    assert pictures(executed) == 1
    assert any("<svg" in one.get("data", {}).get("text/html", "") for one in outputs(executed))
