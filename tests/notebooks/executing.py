"""Notebooks run from top to bottom in a real kernel."""

from pathlib import Path

import pytest

pytest.importorskip("nbclient")

from tools import run_notebook


def execute(notebook: Path, folder: Path, **environment: str):
    """Return the notebook as it is after running in a folder; an error in a cell is raised."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return run_notebook.execute(notebook, folder)


def outputs(notebook) -> list:
    """Return all outputs of all cells."""
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def printed(notebook) -> str:
    """Return what all cells print."""
    return "".join(one.text for one in outputs(notebook) if one.output_type == "stream")


def pictures(notebook) -> int:
    """Return how many plots are drawn."""
    return sum("image/png" in output.get("data", {}) for output in outputs(notebook))
