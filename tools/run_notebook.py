"""Run a notebook from top to bottom and write it back with its outputs, without those of stderr.

    PYTHONPATH=. .venv/bin/python tools/run_notebook.py notebooks/sweep.ipynb

It runs in the notebook's own folder. JAXLAKE_NOTEBOOK_SIZE and JAXLAKE_RUN mean what the notebook
says.
"""

import argparse
from pathlib import Path

import nbclient
import nbformat

from jaxlake.files import write_text_whole

_TIMEOUT = 900
"""Seconds that one cell may take."""


def execute(notebook: Path, folder: Path) -> nbformat.NotebookNode:
    """Return the notebook as it is after running in a folder; an error in a cell is raised."""
    client = nbclient.NotebookClient(
        nbformat.read(notebook, as_version=4),
        timeout=_TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": folder}},
    )
    return client.execute()


def without_traces(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Take out what differs from run to run and from machine to machine, but for the outputs."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.metadata.pop("execution", None)
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def main() -> None:
    """Run one notebook."""
    parser = argparse.ArgumentParser(description="Run a notebook and keep its outputs.")
    parser.add_argument("notebook", type=Path)
    path = parser.parse_args().notebook
    executed = without_traces(execute(path, path.resolve().parent))
    write_text_whole(path, nbformat.writes(executed) + "\n")


if __name__ == "__main__":
    main()
