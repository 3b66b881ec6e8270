"""What is true of every notebook as it is committed."""

import json
import re
from pathlib import Path

import pytest

from tests.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_hold_light_outputs_of_one_run_from_top_to_bottom(path: Path):
    assert path.stat().st_size < 300_000
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    counts = [cell["execution_count"] for cell in cells]
    assert counts == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert not [
        one for one in outputs if one["output_type"] == "error" or one.get("name") == "stderr"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_install_what_is_missing_and_name_no_place_of_a_machine(path: Path):
    text = path.read_text()
    first = next(c for c in json.loads(text)["cells"] if c["cell_type"] == "code")
    assert 'find_spec("jaxlake") is None' in "".join(first["source"])
    assert not re.search(r"/(home|root|work|tmp|usr|opt)/", text)
