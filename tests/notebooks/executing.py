"""Notebooks run from top to bottom in a real kernel."""

import os
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")


def execute(notebook: Path, folder: Path, **environment: str):
    """Return the notebook as it is after running in a folder; an error in a cell is raised."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        client = nbclient.NotebookClient(
            nbformat.read(notebook, as_version=4),
            timeout=600,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        )
        return client.execute()
    finally:
        os.environ.clear()
        os.environ.update(before)


def outputs(notebook) -> list:
    """Return all outputs of all cells."""
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def printed(notebook) -> str:
    """Return what all cells print."""
    return "".join(one.text for one in outputs(notebook) if one.output_type == "stream")


def pictures(notebook) -> int:
    """Return how many plots are drawn."""
    return sum("image/png" in output.get("data", {}) for output in outputs(notebook))
