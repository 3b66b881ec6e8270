"""Notebooks as committed, and executed from top to bottom in a real kernel."""

import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from tests.paths import ROOT
from tests.training.sample_run import write_sample_run_with_tokenizer

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def execute(name: str, folder: Path, **environment: str):
    """Run a notebook in a folder and return it; an error in a cell is raised."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in environment.items():
            patch.setenv(variable, value)
        notebook = nbformat.read(ROOT / f"notebooks/{name}.ipynb", as_version=4)
        resources = {"metadata": {"path": folder}}
        return nbclient.NotebookClient(notebook, timeout=900, resources=resources).execute()


def list_outputs(notebook) -> list:
    """Return all outputs of all cells."""
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def join_output(notebook) -> str:
    """Return the printed output of all cells."""
    streams = (output for output in list_outputs(notebook) if output.output_type == "stream")
    return "".join(output.text for output in streams)


def count_plots(notebook) -> int:
    return sum("image/png" in output.get("data", {}) for output in list_outputs(notebook))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_have_outputs_of_one_run(path: Path):
    assert path.stat().st_size < 300_000
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    counts = [cell["execution_count"] for cell in cells]
    assert counts == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert all(output["output_type"] != "error" for output in outputs)
    assert all(output.get("name") != "stderr" for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_install_requirements_and_name_no_path(path: Path):
    text = path.read_text()
    first_cell = next(c for c in json.loads(text)["cells"] if c["cell_type"] == "code")
    assert 'find_spec("jaxlake") is None' in "".join(first_cell["source"])
    assert not re.search(r"/(home|root|work|tmp|usr|opt)/", text)


@pytest.mark.slow
def test_anatomy_notebook_matches_the_run_files(tmp_path: Path):
    run = write_sample_run_with_tokenizer(tmp_path / "run", {"kind": "checkpoint"})
    (run / "checkpoints/1").mkdir(parents=True)
    (run / "checkpoints/1/an-array").touch()
    notebook = execute("anatomy_of_a_run", tmp_path, JAXLAKE_RUN=str(run))
    text = join_output(notebook)
    answers = (run / "stages/3/episodes.jsonl").read_text().splitlines()
    valid_rate = fmean(json.loads(answer)["valid"] for answer in answers)
    shown_rate = re.search(r"^stage 3: ([\d.]+)% valid", text, flags=re.MULTILINE)
    assert shown_rate[1] == f"{100 * valid_rate:.1f}"
    assert (run / "stages/1/context.txt").read_text() in text
    assert "stages/1/decision.json" in text
    assert "an-array" not in text
    assert count_plots(notebook) == 2
    pages = [output.get("data", {}).get("text/html", "") for output in list_outputs(notebook)]
    assert any("<svg" in page for page in pages)


@pytest.mark.slow
def test_throughput_notebook_supports_its_conclusions():
    notebook = execute("throughput", ROOT, JAXLAKE_NOTEBOOK_SIZE="small")
    text = join_output(notebook)
    assert count_plots(notebook) == 1
    rates = [float(rate.replace(",", "")) for rate in re.findall(r"([\d,]+) boards/s", text)]
    assert len(rates) >= 7
    assert min(rates) > 0
    sweeps = re.findall(r"on (\d+) device\(s\): +([\d,]+) boards/s", text)
    first_rate, last_rate = (float(rate.replace(",", "")) for _, rate in (sweeps[0], sweeps[-1]))
    (shown_speedup,) = re.findall(r"devices sweep ([\d.]+)x as fast", text)
    assert float(shown_speedup) == pytest.approx(last_rate / first_rate, abs=0.06)
