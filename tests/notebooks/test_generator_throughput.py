"""The notebook runs from top to bottom in a real kernel, at its small size."""

import os
import re

import pytest

from tests.paths import ROOT

NOTEBOOK = ROOT / "notebooks" / "generator_throughput.ipynb"

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")


@pytest.fixture(scope="module")
def executed():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    before = os.environ.get("JAXLAKE_NOTEBOOK_SIZE")
    os.environ["JAXLAKE_NOTEBOOK_SIZE"] = "small"
    try:
        client = nbclient.NotebookClient(
            notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": ROOT}}
        )
        return client.execute()
    finally:
        del os.environ["JAXLAKE_NOTEBOOK_SIZE"]
        if before is not None:
            os.environ["JAXLAKE_NOTEBOOK_SIZE"] = before


def _printed(notebook) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.output_type == "stream")


@pytest.mark.slow
def test_every_cell_runs_and_three_plots_are_drawn(executed):
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3


@pytest.mark.slow
def test_no_configuration_traces_the_generator_again(executed):
    traces, shapes = re.search(r"(\d+) traces for (\d+) shapes", _printed(executed)).groups()
    assert traces == shapes


@pytest.mark.slow
def test_the_conclusions_say_what_was_measured(executed):
    printed = _printed(executed)
    conclusions = [line for line in printed.splitlines() if line.startswith("- ")]
    assert len(conclusions) == 7
    made = re.search(r"(\d+) boards for 64 configurations", printed)
    assert int(made[1]) == 64 * 8
    parts = [float(part) for part in re.findall(r"([\d.]+) µs a kept board", printed)]
    assert len(parts) == 4
    share = re.search(r"Most of the time, (\d+)%", printed)
    assert abs(float(share[1]) - 100 * max(parts) / sum(parts)) < 1


def test_the_committed_notebook_holds_no_outputs():
    """Outputs would be numbers of one machine, and would change with every run."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
